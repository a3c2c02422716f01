#include "publish/rank_publisher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "publish/fill_event.h"
#include "wire/msgpack_writer.h"

namespace kvr::publish {
namespace {

Clears ClearsOf(const Mutation& mutation) {
  if (mutation.event.kind != PlacementKind::kCleared) return Clears::kNothing;
  return mutation.domain == wire::ResidencyDomain::kMissing ? Clears::kAll : Clears::kDomain;
}

}  // namespace

Result<void> RankPublisher::Options::Validate() const {
  if (message_events_max == 0 || message_blocks_max == 0) {
    return Fail(ErrorCode::kInvalidArgument, "a message needs room for at least one event");
  }
  if (message_bytes_max < kMessageBytesMin) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a message needs room for at least {} bytes, not {}", kMessageBytesMin,
                            message_bytes_max));
  }
  if (sources == 0 || sources > BlockBook::kSourcesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a rank has 1 to {} sources, not {}", BlockBook::kSourcesMax, sources));
  }
  if (snapshots_max == 0) {
    return Fail(ErrorCode::kInvalidArgument, "a rank needs room for at least one snapshot");
  }
  KVR_TRY_VOID(coalescer.Validate());
  KVR_TRY_VOID(book.Validate());
  return ring.Validate();
}

RankPublisher::RankPublisher(const Options& options, const Clock& clock, Outlet& outlet)
    : options_(options),
      clock_(clock),
      outlet_(outlet),
      renamed_(*this),
      merged_(*this),
      book_(options_.book),
      coalescer_(options_.coalescer, *this),
      ring_(options_.ring) {
  if (options_.sources == 1) return;
  for (std::size_t i = 0; i < options_.sources; ++i)
    names_.emplace_back(options_.book.blocks_max, options_.book.remembered_max);
}

void RankPublisher::Apply(std::size_t source, const Mutation& mutation) {
  now_ = clock_.Now();
  if (list_of_ && *list_of_ != source) EndList(*list_of_);
  list_of_ = source;
  ++stats_.received_events;
  renamed_.source = source;
  Mutation ours = mutation;
  ours.event.rank = options_.rank;  // what differs in it would not be merged
  if (names_.empty()) return renamed_.Take(ours);
  names_[source].Pass(ours, renamed_);
}

void RankPublisher::Renamed::Take(const Mutation& mutation) {
  owner.book_.Apply(source, mutation, owner.merged_);
}

void RankPublisher::Merged::Take(const Mutation& mutation) {
  owner.coalescer_.Push(mutation, owner.now_);
}

void RankPublisher::EndList(std::size_t source) {
  if (list_of_ != source) return;
  list_of_.reset();
  now_ = clock_.Now();
  coalescer_.EndList(now_);
  SendMessage();
}

void RankPublisher::OnTick() {
  if (list_of_) return;
  now_ = clock_.Now();
  coalescer_.OnTick(now_);
  SendMessage();
}

void RankPublisher::Flush() {
  now_ = clock_.Now();
  coalescer_.Flush(now_);
  SendMessage();
}

void RankPublisher::Take(const Mutation& mutation) {
  const std::uint64_t id = stats_.published_events + 1;
  const std::size_t blocks = mutation.event.blocks.size() + mutation.event.removed.size();
  FillEvent(mutation, options_.rank, id, scratch_);
  wire::RouterEvent& event = scratch_.events.front();
  if (event.session_id.size() > kSessionBytesMax) event.session_id = {};
  event_.clear();
  wire::EncodeRouterEvent(scratch_, event, event_);
  if (event_.size() > options_.message_bytes_max && blocks > 1) return TakeHalves(mutation);
  stats_.published_events = id;
  stats_.published_blocks += blocks;
  ring_.Append(id, event_, ClearsOf(mutation));
  const bool full = message_events_ == options_.message_events_max ||
                    message_blocks_ + blocks > options_.message_blocks_max ||
                    events_.size() + event_.size() > options_.message_bytes_max;
  if (full) SendMessage();
  events_ += event_;
  ++message_events_;
  message_blocks_ += blocks;
  if (mutation.event.kind == PlacementKind::kCleared) SendMessage();
}

void RankPublisher::TakeHalves(const Mutation& mutation) {
  Mutation first = mutation;
  Mutation second = mutation;
  const auto& placed = mutation.event;
  if (placed.kind == PlacementKind::kRemoved) {
    const std::size_t half = placed.removed.size() / 2;
    first.event.removed = placed.removed.first(half);
    second.event.removed = placed.removed.subspan(half);
  } else {
    const std::size_t half = placed.blocks.size() / 2;
    first.event.blocks = placed.blocks.first(half);
    second.event.blocks = placed.blocks.subspan(half);
    second.event.parent = first.event.blocks.back().engine;
    if (second.start_position) *second.start_position += static_cast<std::uint32_t>(half);
  }
  Take(first);
  Take(second);
}

void RankPublisher::SendMessage() {
  if (message_events_ == 0) return;
  payload_.clear();
  wire::MsgpackWriter(payload_).Array(message_events_);
  payload_ += events_;
  envelope_.clear();
  const std::uint64_t sequence = next_sequence_++;
  const auto published_at =
      std::chrono::duration_cast<std::chrono::milliseconds>(clock_.WallTime()).count();
  wire::EncodeRouterEnvelope({options_.publisher_id, sequence,
                              static_cast<std::uint64_t>(published_at), options_.topic, payload_},
                             envelope_);
  ++stats_.messages;
  if (!outlet_.Send(sequence, std::as_bytes(std::span(envelope_)))) {
    ++stats_.dropped_messages;
    stats_.dropped_events += message_events_;
  }
  events_.clear();
  message_events_ = 0;
  message_blocks_ = 0;
}

RankPublisher::EventsAnswer RankPublisher::Query(std::optional<std::uint64_t> start,
                                                 std::optional<std::uint64_t> end) {
  Flush();
  EventsAnswer answer;
  answer.range = ring_.Query(start, end);
  if (answer.range.answer == RangeAnswer::kEvents) ring_.Copy(answer.range, answer.events);
  return answer;
}

bool RankPublisher::Complete() const {
  return book_.complete() &&
         std::ranges::all_of(names_, [](const SourceNames& names) { return names.missing() == 0; });
}

RankPublisher::Position RankPublisher::Locate() const {
  return {next_sequence_, ring_.last(), book_.blocks(), Complete()};
}

bool RankPublisher::CanReuse(std::uint64_t tail_max) const {
  return snapshot_ && ring_.last() - snapshot_->cursor <= tail_max &&
         ring_.IsPlainTail(snapshot_->cursor);
}

Result<void> RankPublisher::BuildSnapshot() {
  std::erase_if(older_, [](const auto& one) { return one.expired(); });
  // The last one makes room for the new one unless somebody reads it.
  const std::size_t kept = older_.size() + (snapshot_.use_count() > 1 ? 1 : 0);
  if (kept >= options_.snapshots_max) {
    return Fail(
        ErrorCode::kOverloaded,
        fmt::format("{} snapshots are being read; ask again when one of them is read", kept));
  }
  Snapshot built = book_.Build();
  built.rank = options_.rank;
  built.cursor = ring_.last();
  built.complete = Complete();
  if (snapshot_) older_.push_back(snapshot_);
  snapshot_ = std::make_shared<const Snapshot>(std::move(built));
  ++stats_.snapshots_built;
  return {};
}

Result<RankPublisher::SnapshotAnswer> RankPublisher::TakeSnapshot() {
  Flush();
  const Position position = Locate();
  const std::uint64_t last = position.last_event_id;
  if (CanReuse(options_.snapshot_tail_max)) {
    ++stats_.snapshots_reused;
  } else if (const auto built = BuildSnapshot(); !built) {
    if (!CanReuse(last)) return tl::unexpected(built.error());
    ++stats_.snapshots_reused;
  }
  SnapshotAnswer answer;
  answer.base = snapshot_;
  answer.last = last;
  answer.position = position;
  if (last == snapshot_->cursor) return answer;
  const EventRing::Range tail = ring_.Query(snapshot_->cursor + 1, std::nullopt);
  ring_.Copy(tail, answer.tail);
  answer.tail_events = tail.count;
  return answer;
}

RankPublisher::Stats RankPublisher::stats() const {
  Stats stats = stats_;
  stats.blocks = book_.blocks();
  stats.blocks_in = book_.blocks_in();
  stats.ring_events = ring_.size();
  stats.ring_bytes = ring_.bytes();
  stats.last_event_id = ring_.last();
  for (const SourceNames& names : names_) {
    stats.unplaced_blocks += names.unplaced();
    stats.refused_blocks += names.refused();
    stats.unknown_names += names.unknown();
  }
  return stats;
}

}  // namespace kvr::publish
