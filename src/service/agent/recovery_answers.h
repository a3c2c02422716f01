// What a router that missed events is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "publish/rank_publisher.h"
#include "wire/router_event.h"

namespace kvr::service {

// {"Events":{"events":[RouterEvent...],"last_event_id":10}},
// {"TooNew":{"requested_start":11,"requested_end":null,"newest_available":10}},
// {"InvalidRange":{"start_id":8,"end_id":3}}, or
// {"Snapshot":{"last_event_id":10}}: the events are not there any more, take a snapshot.
std::string EventsBody(const publish::RankPublisher::EventsAnswer& answer,
                       std::optional<std::uint64_t> start, std::optional<std::uint64_t> end);

// Writes a snapshot and its tail, a piece at a time:
// {"TreeDump":{"reset_scope":"all","last_event_id":10,"complete":true,"events":[...]}}
//
// Events of the snapshot have the numbers 0, 1, 2, ..., those of the tail their own; all of them
// replace what was known, and the stream goes on behind last_event_id. Not thread-safe.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(publish::RankPublisher::SnapshotAnswer answer);

  // Replaces `piece` by the next part of the text, of at least `bytes` unless the text ends before,
  // and at most an event more. False when there was nothing left.
  bool Next(std::size_t bytes, std::string& piece);

 private:
  void WriteHead(std::string& out) const;
  void WriteRun(std::string& out);
  void WriteTail(std::string& out);

  const publish::RankPublisher::SnapshotAnswer answer_;
  wire::RouterBatch batch_;
  bool begun_ = false;
  bool ended_ = false;
  std::size_t next_run_ = 0;
  std::size_t tail_at_ = 0;  // byte
};

}  // namespace kvr::service
