// Payloads of engine event streams, from tests/vectors/engine_samples.jsonl.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvr::test {

struct EngineSample {
  std::string name;
  std::string engine;
  std::vector<std::byte> payload;
  std::string decoded;  // the same as JSON, see MsgpackFromJson
};

// All of them, in the order of the file, read once. Aborts when the file cannot be read.
const std::vector<EngineSample>& EngineSamples();
// Aborts when there is none of that name.
const EngineSample& SampleByName(std::string_view name);

}  // namespace kvr::test
