// The mutator of targets whose inputs are MessagePack, JSON, or JSON behind one byte; which it is,
// the input says. One time in four, and where the input is none of them, the fuzzer's own mutation
// is taken.
#include "value_mutator.h"

#include <algorithm>

#include "wire/trtllm_json.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed);

namespace kvr::fuzz {
namespace {

std::vector<std::uint8_t> Mutated(std::span<const std::byte> input, Rng& rng) {
  if (wire::LooksLikeJson(input)) return MutatedJson(input, rng);
  if (input.size() < 2 || !wire::LooksLikeJson(input.subspan(1))) return MutatedMsgpack(input, rng);
  std::vector<std::uint8_t> changed = MutatedJson(input.subspan(1), rng);
  if (!changed.empty()) changed.insert(changed.begin(), static_cast<std::uint8_t>(input[0]));
  return changed;
}

}  // namespace

std::vector<std::uint8_t> WithOneExchanged(std::span<const std::byte> input,
                                           std::span<const Part> parts,
                                           std::span<const std::string_view> awkward, Rng& rng) {
  if (parts.empty()) return {};
  const auto* const data = reinterpret_cast<const std::uint8_t*>(input.data());
  const Part out = parts[rng.Below(parts.size())];
  std::vector<std::uint8_t> changed(data, data + out.begin);
  if (rng.Below(2) == 0) {
    const Part in = parts[rng.Below(parts.size())];
    changed.insert(changed.end(), data + in.begin, data + in.end);
  } else {
    const std::string_view value = awkward[rng.Below(awkward.size())];
    changed.insert(changed.end(), value.begin(), value.end());
  }
  changed.insert(changed.end(), data + out.end, data + input.size());
  return changed;
}

}  // namespace kvr::fuzz

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                    unsigned seed) {
  kvr::Rng rng(seed);
  if (rng.Below(4) == 0) return LLVMFuzzerMutate(data, size, size_max);
  const auto changed = kvr::fuzz::Mutated(std::as_bytes(std::span(data, size)), rng);
  if (changed.empty() || changed.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::copy(changed.begin(), changed.end(), data);
  return changed.size();
}
