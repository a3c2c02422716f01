#include "support/engine_samples.h"

#include <algorithm>

#include <simdjson.h>

#include "base/check.h"
#include "base/hex.h"

namespace kvr::test {
namespace {

std::vector<EngineSample> ReadSamples() {
  simdjson::dom::parser parser;
  simdjson::dom::document_stream lines;
  const auto error =
      parser.load_many(KVR_SOURCE_DIR "/tests/vectors/engine_samples.jsonl").get(lines);
  KVR_CHECK(error == simdjson::SUCCESS);
  std::vector<EngineSample> samples;
  for (const auto line : lines) {
    const auto payload = FromHex(std::string_view(line["hex"]));
    KVR_CHECK(payload.has_value());
    samples.push_back({std::string(std::string_view(line["name"])),
                       std::string(std::string_view(line["engine"])), *payload,
                       simdjson::minify(simdjson::dom::element(line["decoded"]))});
  }
  return samples;
}

}  // namespace

const std::vector<EngineSample>& EngineSamples() {
  static const std::vector<EngineSample> samples = ReadSamples();
  return samples;
}

const EngineSample& SampleByName(std::string_view name) {
  const auto& samples = EngineSamples();
  const auto found = std::find_if(samples.begin(), samples.end(),
                                  [&](const EngineSample& sample) { return sample.name == name; });
  KVR_CHECK(found != samples.end());
  return *found;
}

}  // namespace kvr::test
