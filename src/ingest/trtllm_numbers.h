// Makes a numbered stream of the event lists that TensorRT-LLM hands out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/decode_error.h"
#include "wire/event_decoder.h"

namespace kvr::ingest {

// GET /kv_cache_events drains the engine's buffer: a list that is lost on the way is lost for good,
// and so are events that found the buffer full. What is left to see it by is `event_id`, which
// counts per attention rank from 0. Each message here is a part of a list that is of one rank and
// without a hole, under a number of its own; where events are missing a number is left out, so that
// whoever follows the numbers sees a gap. A long list becomes several messages, each within the
// limits of a decoder unless one event alone is beyond them.
class TrtllmNumbers {
 public:
  struct Message {
    std::uint64_t sequence = 0;
    std::string payload;   // a JSON list of events of one rank
    bool restart = false;  // the engine counts anew: it is another process
  };

  // The messages of one list, in order; one event alone is a list too. Events that are no objects,
  // or no JSON, stay with those before them, and may have the ids that are missing there. Of the
  // limits that of the bytes counts. kBadJson and kOverLimit: the list is lost, see NoteLoss.
  Result<std::vector<Message>, wire::DecodeError> Take(std::span<const std::byte> list,
                                                       const wire::DecodeLimits& limits);
  // A list is lost: the next message comes after a gap.
  void NoteLoss() { lost_ = true; }

 private:
  // Notes that the events from `first` to `last` of a rank come next.
  void Follow(std::uint64_t rank, std::uint64_t first, std::uint64_t last, Message& message);

  std::uint64_t next_ = 0;
  bool lost_ = false;
  std::map<std::uint64_t, std::uint64_t> last_ids_;  // by rank; at most kRanksMax
};

}  // namespace kvr::ingest
