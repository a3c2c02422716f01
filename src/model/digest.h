// How names that come as digests become numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvr {

// Which bytes of a digest an engine takes for its integer form, big-endian. The bytes alone do not
// say; vLLM and what is built on it take the last 8, SGLang and TensorRT-LLM the first 8.
enum class DigestEnd : std::uint8_t { kLast, kFirst };
inline constexpr std::array<std::string_view, 2> kDigestEndNames = {"last", "first"};
constexpr std::string_view DigestEndName(DigestEnd end) {
  return kDigestEndNames[static_cast<std::size_t>(end)];
}

// How the end that a stream's digests are read by is known.
enum class DigestEvidence : std::uint8_t {
  kNone,        // there was no digest yet
  kConfigured,  // the operator named the engine
  kAssumed,     // nothing has told so far, and nothing depended on it
  kForm,        // fields that only one engine sends
  kNames,       // the stream called a block by a digest and by a number
};
inline constexpr std::array<std::string_view, 5> kDigestEvidenceNames = {
    "none", "configured", "assumed", "form", "names"};
constexpr std::string_view DigestEvidenceName(DigestEvidence evidence) {
  return kDigestEvidenceNames[static_cast<std::size_t>(evidence)];
}

struct DigestReading {
  DigestEnd end = DigestEnd::kLast;
  DigestEvidence evidence = DigestEvidence::kNone;

  friend bool operator==(const DigestReading&, const DigestReading&) = default;
};

}  // namespace kvr
