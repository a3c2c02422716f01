// The lists that TensorRT-LLM hands out, a line each, made into a numbered stream: numbers go up
// until the engine counts anew, and a decoder takes every message.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ingest/trtllm_numbers.h"
#include "wire/event_batch.h"
#include "wire/trtllm_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::ingest::TrtllmNumbers;

class Stream {
 public:
  void Take(std::string_view list) {
    // In two pieces, as it may come in.
    const std::size_t cut = list.size() / 2;
    std::vector<TrtllmNumbers::Message> messages;
    const bool whole = numbers_.Take(list.substr(0, cut), messages) &&
                       numbers_.Take(list.substr(cut), messages) && numbers_.End(messages);
    if (!whole) numbers_.Lose(messages);
    for (const TrtllmNumbers::Message& message : messages)
      Follow(message);
  }

 private:
  void Follow(const TrtllmNumbers::Message& message) {
    // 0, or 1 when the first events of the new count are missing.
    KVR_CHECK(!message.restart || message.sequence <= 1);
    KVR_CHECK(message.restart || !last_ || message.sequence > *last_);
    KVR_CHECK(message.restart || !last_ || message.sequence - *last_ <= 2);
    last_ = message.sequence;
    kvr::wire::TrtllmJsonDecoder decoder;
    kvr::wire::EventBatch batch;
    KVR_CHECK(decoder.Decode(std::as_bytes(std::span(message.payload)), {}, 4, batch).has_value());
    for (const kvr::wire::BadEvent& bad : batch.bad)
      KVR_CHECK(bad.error.code != kvr::wire::DecodeErrc::kSecondRank);
  }

  TrtllmNumbers numbers_;
  std::optional<std::uint64_t> last_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view lists(reinterpret_cast<const char*>(data), size);
  Stream stream;
  while (!lists.empty()) {
    const std::size_t end = lists.find('\n');
    stream.Take(lists.substr(0, end));
    lists = end == std::string_view::npos ? std::string_view() : lists.substr(end + 1);
  }
  return 0;
}
