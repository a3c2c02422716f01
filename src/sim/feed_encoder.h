// The words in which one engine release tells of its cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_publisher.h"
#include "sim/kv_event.h"
#include "wire/event_batch.h"
#include "wire/event_encoder.h"

namespace kvr::sim {

// Encoding, media, and what the release leaves unsaid.
struct FeedDialect {
  const wire::Dialect* encoding = nullptr;
  std::string_view device_medium;  // empty: the dialect has no media
  std::string_view host_medium;    // empty: it cannot speak of a host tier
  bool one_block_events = false;   // one Stored for each block, not for each run
  bool host_placeholders = false;  // host copies are announced by hash alone
  bool group = false;              // events name cache group 0 and its kind
  net::ReplayLayout layout = net::ReplayLayout::kSeqPayload;

  // Readers ask for the events over HTTP; there is no socket.
  [[nodiscard]] bool pulled() const { return encoding->form == wire::Dialect::Form::kJson; }
};

// Any of wire::Dialects(). kInvalidArgument lists them.
Result<FeedDialect> FeedDialectByName(std::string_view name);
// Their names, for people.
std::string FeedDialectNames();

// Makes payloads of one rank's events. Used by one thread.
class FeedEncoder {
 public:
  FeedEncoder(const FeedDialect& dialect, std::uint32_t dp_rank, std::uint32_t block_size)
      : dialect_(dialect), dp_rank_(dp_rank), block_size_(block_size) {}

  // The payload of one message; valid until the next call. `wall` is the time stamp in it.
  std::string_view Encode(std::span<const KvEvent> events, Nanos wall);

  // Of the last payload, in which one event may be several.
  [[nodiscard]] std::size_t events() const { return batch_.events.size(); }

  // Of a pulled dialect: its first payload, of a pool of so many blocks. What was told is
  // forgotten.
  std::string_view Begin(std::uint32_t blocks);

 private:
  void Fill(std::span<const KvEvent> events);
  void AddStored(const KvEvent& event);
  void FollowNames(const KvEvent& event);
  void AddRemovals();

  FeedDialect dialect_;
  std::uint32_t dp_rank_;
  std::uint32_t block_size_;
  wire::EventBatch batch_;
  std::string payload_;
  // Of a pulled dialect.
  std::uint64_t event_id_ = 0;
  std::set<EngineHash> held_names_;
};

}  // namespace kvr::sim
