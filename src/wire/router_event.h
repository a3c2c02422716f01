// RouterEvents: cache events that a worker's own publisher has normalised already, with block
// hashes made of tokens, as an event plane between workers and routers carries them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/reused_lists.h"
#include "model/ids.h"
#include "model/tier.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"
#include "wire/event_decoder.h"

namespace kvr::wire {

// Whose the cache is that an event speaks of. What is no known text stays undecided until somebody
// asks: the rest of the event is good.
enum class ResidencyDomain : std::uint8_t {
  kMissing,     // the field is not there: an old writer
  kWorker,      // the worker's own
  kCacheOwner,  // a cache that outlives the engine's process
  kUnknown,     // another text, kept in domain_name
  kInvalid,     // no text at all
};

struct RouterBlock {
  EngineHash engine{};
  BlockHash local{};
  Slice mm_objects;  // into RouterBatch::mm_objects
  bool has_mm = false;

  friend bool operator==(const RouterBlock& a, const RouterBlock& b) {
    return a.engine == b.engine && a.local == b.local && a.has_mm == b.has_mm &&
           a.mm_objects.count == b.mm_objects.count;
  }
};

struct RouterMmObject {
  std::uint64_t hash = 0;
  Slice offsets;  // into RouterBatch::mm_offsets
};

struct RouterEvent {
  EventType type = EventType::kCleared;
  std::uint32_t index = 0;  // place in the message, undecodable siblings counted
  std::uint64_t worker_id = 0;
  std::uint32_t dp_rank = 0;
  std::uint64_t event_id = 0;
  Tier tier = Tier::kDevice;
  ResidencyDomain domain = ResidencyDomain::kMissing;
  std::string_view domain_name;   // kUnknown
  std::string_view state_source;  // as it was encoded; empty: none
  std::string_view session_id;
  bool eligible = false;  // "sce": the block hashes cover all that the engine hashed

  std::optional<EngineHash> parent;             // stored
  std::optional<std::uint32_t> start_position;  // stored: index of the first block, when known
  Slice blocks;                                 // stored
  Slice removed;                                // removed
};

// Fields that were passed over for a value of a wrong type, as if they were absent: they say
// neither which blocks an event is about nor where they are. Blocks with such an mm_extra_info
// still count as blocks with objects, because their hashes may cover some.
struct RouterSkipped {
  std::uint32_t session_id = 0;
  std::uint32_t start_position = 0;
  std::uint32_t mm_extra_info = 0;
  std::uint32_t sce = 0;
};

// Reused from message to message: once warm, decoding into it allocates nothing, but for
// extraordinary batches (ReusedLists). Not thread-safe.
struct RouterBatch {
  std::optional<std::uint64_t> publisher_id;  // of the envelope
  std::optional<std::uint64_t> sequence;      // of the envelope
  std::vector<RouterEvent> events;
  std::vector<BadEvent> bad;
  RouterSkipped skipped;  // of the events that were decoded

  std::vector<RouterBlock> blocks;
  std::vector<EngineHash> removed;
  std::vector<RouterMmObject> mm_objects;
  std::vector<std::array<std::uint32_t, 2>> mm_offsets;  // [start, end)
  ReusedLists reused;

  void Clear();
};

// Whether a payload is RouterEvents in MessagePack: an envelope, a list of events, or one event.
// No engine's batch looks like one.
bool LooksLikeRouterEvents(std::span<const std::byte> payload);
// Decodes an envelope, a list of events or one event, maps or arrays in field order, into `batch`.
// Unknown keys are skipped; known ones of a wrong type cost the event, but for those that
// batch.skipped counts. An event that cannot be decoded costs itself. An error is returned when
// what is around the events is wrong; `batch` is then empty. Views borrow from the payload.
//
// Pure; no payload makes it throw or read out of bounds.
Result<void, DecodeError> DecodeRouterEvents(std::span<const std::byte> payload,
                                             const DecodeLimits& limits, RouterBatch& batch);

// What is behind the frame of the event plane: one byte version, which is 1, four bytes big-endian
// length, the envelope. kTruncated: shorter than that says; kOutOfRange: another version.
Result<std::span<const std::byte>, DecodeError> UnframeRouterEvents(
    std::span<const std::byte> frame);

// Which message of which publisher an envelope says it is; none when it is no envelope.
struct EnvelopeIds {
  std::uint64_t publisher_id = 0;
  std::uint64_t sequence = 0;
  std::optional<std::string_view> topic;  // borrowed from the envelope
};
std::optional<EnvelopeIds> ReadEnvelopeIds(std::span<const std::byte> envelope);

// --- for producers ------------------------------------------------------------------------------

// Appends one event as a named map, with every field that is not at its default.
void EncodeRouterEvent(const RouterBatch& batch, const RouterEvent& event, std::string& out);
// Appends all events as a list.
void EncodeRouterEvents(const RouterBatch& batch, std::string& out);

struct RouterEnvelope {
  std::uint64_t publisher_id = 0;
  std::uint64_t sequence = 0;
  std::uint64_t published_at = 0;  // milliseconds since the Unix epoch
  std::string_view topic;
  std::string_view payload;
};
void EncodeRouterEnvelope(const RouterEnvelope& envelope, std::string& out);
// Appends the envelope with its frame.
void FrameRouterEvents(std::string_view envelope, std::string& out);

}  // namespace kvr::wire
