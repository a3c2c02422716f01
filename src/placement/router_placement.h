// RouterEvents → placement events: filtering, for the blocks are hashed and counted already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "placement/hash_set.h"
#include "placement/placement_batch.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"
#include "wire/event_decoder.h"
#include "wire/json_to_msgpack.h"
#include "wire/router_event.h"

namespace kvr::placement {

// Of one stream. Keeps no state between messages but capacity. Not thread-safe.
class RouterPlacement {
 public:
  // Whether `payload`, which is JSON or MessagePack, is RouterEvents. The next Place is then of it.
  bool Takes(std::span<const std::byte> payload, bool json, const wire::DecodeLimits& limits);

  // Replaces `out` by what the payload of the last Takes means for the worker of `rank`, and
  // `shown` by the events as an engine would have sent them, without tokens. Events of other
  // workers and of caches that are no worker's own are dropped. `out.dp_rank` is the rank of the
  // first event; each event names its own.
  Result<void, wire::DecodeError> Place(const wire::DecodeLimits& limits, Rank rank,
                                        bool any_worker, PlacementBatch& out,
                                        wire::EventBatch& shown);

  // Of the events that the last Place decoded.
  [[nodiscard]] const wire::RouterSkipped& skipped() const { return batch_.skipped; }

 private:
  bool RepeatsBlock(const wire::RouterEvent& event);
  bool Convert(std::span<const std::byte> text, const wire::DecodeLimits& limits);
  void FindInText();
  void Add(const wire::RouterEvent& event, Rank rank, PlacementBatch& out);
  void Show(const wire::RouterEvent& event, wire::EventBatch& shown);

  wire::JsonToMsgpack json_;
  std::string converted_;
  std::span<const std::byte> payload_;     // MessagePack, of the last Takes
  std::span<const std::byte> text_;        // what it was converted from, if it was
  std::vector<std::uint32_t> unreadable_;  // the items of that text that are no JSON, in order
  wire::RouterBatch batch_;
  HashSet seen_;  // scratch, kept for its capacity
  std::vector<std::size_t> ends_;
  std::vector<EngineHash> hashes_;
};

}  // namespace kvr::placement
