// What a router that missed events is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/rank_state.h"
#include "publish/rank_publisher.h"
#include "wire/router_event.h"

namespace kvr::service {

// Text that is written a piece at a time. Not thread-safe.
class PieceWriter {
 public:
  virtual ~PieceWriter() = default;
  // Replaces `piece` by the next part of the text, of at least `bytes` unless the text ends before,
  // and at most an event more. False when there was nothing left.
  virtual bool Next(std::size_t bytes, std::string& piece) = 0;
};

// {"Events":{"publisher_id":5,"events":[RouterEvent...],"last_event_id":10}},
// {"TooNew":{"publisher_id":5,"requested_start":11,"requested_end":null,"newest_available":10}},
// {"InvalidRange":{"publisher_id":5,"start_id":8,"end_id":3}}, or
// {"Snapshot":{"publisher_id":5,"last_event_id":10}}: the events are not there any more, take a
// snapshot.
//
// `publisher_id` is of the life of the publisher whose events are numbered so.
class EventsJsonWriter final : public PieceWriter {
 public:
  EventsJsonWriter(publish::RankPublisher::EventsAnswer answer, std::uint64_t publisher_id,
                   std::optional<std::uint64_t> start, std::optional<std::uint64_t> end)
      : answer_(std::move(answer)), publisher_id_(publisher_id), start_(start), end_(end) {}

  bool Next(std::size_t bytes, std::string& piece) override;

 private:
  // Up to the list of events, if there is one; else all but the ends of the maps.
  void WriteHead(std::string& out) const;

  const publish::RankPublisher::EventsAnswer answer_;
  const std::uint64_t publisher_id_;
  const std::optional<std::uint64_t> start_;
  const std::optional<std::uint64_t> end_;
  wire::RouterBatch batch_;
  bool begun_ = false;
  bool ended_ = false;
  std::size_t at_ = 0;  // byte of the events
};

// How many bytes the first of the events has, which were encoded here.
std::size_t EncodedSize(std::string_view events);

// Whose snapshot it is, and how well what it says is known.
struct SnapshotHead {
  std::uint64_t publisher_id = 0;
  RankState state = RankState::kExact;  // of the source that is known least
  StateReason reason = StateReason::kNone;
};

// Writes a snapshot and its tail, a piece at a time:
// {"TreeDump":{"publisher_id":5,"reset_scope":"all","last_event_id":10,"complete":true,
//              "state":"exact","reason":"none","events":[...]}}
//
// It is complete when its state is exact and nothing was left out of the snapshot.
// Events of the snapshot have the numbers 0, 1, 2, ..., those of the tail their own; all of them
// replace what was known, and the stream goes on behind last_event_id.
class SnapshotJsonWriter final : public PieceWriter {
 public:
  SnapshotJsonWriter(publish::RankPublisher::SnapshotAnswer answer, const SnapshotHead& head);

  bool Next(std::size_t bytes, std::string& piece) override;

 private:
  void WriteHead(std::string& out) const;
  void WriteRun(std::string& out);
  void WriteTail(std::string& out);

  const publish::RankPublisher::SnapshotAnswer answer_;
  const SnapshotHead head_;
  wire::RouterBatch batch_;
  bool begun_ = false;
  bool ended_ = false;
  std::size_t next_run_ = 0;
  std::size_t tail_at_ = 0;  // byte
};

}  // namespace kvr::service
