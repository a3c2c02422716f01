// How a RankStream takes all that a rank holds at once. See the class comment for the rules.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ingest/message.h"
#include "ingest/rank_stream.h"
#include "wire/router_event.h"

namespace kvr::ingest {
namespace {

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool RankStream::Recover(Nanos now) {
  if (!plane_ || snapshot_failed_ || now < snapshot_from_) return false;
  if (!HasReplay() || link_ != Link::kUp) return false;
  instead_of_ = purpose_ == Purpose::kRefill ? Purpose::kNone : purpose_;
  Begin(Purpose::kSnapshot, now);
  return true;
}

bool RankStream::IsKnownPublisher(std::span<const std::byte> payload) const {
  const auto ids = wire::ReadEnvelopeIds(payload);
  return ids && ids->publisher_id == known_publisher_;
}

void RankStream::HandleSnapshot(const net::Frames& frames, Nanos now) {
  // ["", kind, number, body]
  std::uint64_t number = 0;
  if (frames.size() != 4 || !frames[0].empty() || !ReadSequence(frames[2], number)) {
    return AttemptFailed("an answer is no part of it", now);
  }
  const std::string_view kind = Text(frames[1]);
  const std::span<const std::byte> body = frames[3];
  replay_deadline_ = now + options_.replay_silence;
  if (kind == wire::kSnapshotWait) return;
  if (kind == wire::kSnapshotRefused) {
    return AttemptFailed(fmt::format("it is refused: {}", Text(body)), now);
  }
  if (number != answers_) return AttemptFailed("a part of it is missing", now);
  ++answers_;
  if (kind == wire::kSnapshotEvents && begun_) return HandlePiece(body, now);
  const auto seal = wire::DecodeSnapshotSeal(body);
  if (!seal) return AttemptFailed("an answer is no part of it", now);
  if (const std::string_view fault = CheckSeal(*seal); !fault.empty()) {
    return AttemptFailed(fault, now);
  }
  if (purpose_ == Purpose::kState) {
    if (kind == wire::kStateSeal) return HandleState(*seal, now);
  } else if (kind == wire::kSnapshotBegin && number == 0) {
    return HandleBegin(*seal, now);
  } else if (kind == wire::kSnapshotEnd && begun_) {
    return HandleEnd(*seal, now);
  }
  AttemptFailed("an answer is no part of it", now);
}

std::string_view RankStream::CheckSeal(const wire::SnapshotSeal& seal) const {
  if (live_publisher_ && *live_publisher_ != seal.publisher_id) {
    return kOtherPublisher;
  }
  if (purpose_ == Purpose::kSnapshot && known_publisher_ == seal.publisher_id && next_ &&
      seal.next_sequence < *next_) {
    return "it is older than what is known";
  }
  if (first_live_ && newest_ && seal.next_sequence > *newest_ &&
      seal.next_sequence - *newest_ > options_.ahead_max) {
    return "it is numbered far beyond the live messages";
  }
  return {};
}

void RankStream::HandleBegin(const wire::SnapshotSeal& seal, Nanos now) {
  begun_ = seal;
  if (sink_.BeginSnapshot(seal.blocks)) return;
  ++stats_.snapshots_refused;
  too_many_ = seal.blocks;
  GiveUpSnapshot(fmt::format("it has {} blocks, more than there is room for", seal.blocks), now);
}

void RankStream::HandlePiece(std::span<const std::byte> events, Nanos now) {
  stats_.snapshot_bytes += events.size();
  switch (sink_.AddPiece(events)) {
    case StreamSink::Piece::kTaken:
      return;
    case StreamSink::Piece::kUndecodable:
      return AttemptFailed("events of it cannot be decoded", now);
    case StreamSink::Piece::kForeign:
      return AttemptFailed("events of it are of another worker or rank", now);
    case StreamSink::Piece::kNoRoom:
      ++stats_.snapshots_refused;
      too_many_ = begun_->blocks;
      return GiveUpSnapshot("it has more blocks than it said, and there is no room for them", now);
  }
}

void RankStream::HandleEnd(const wire::SnapshotSeal& seal, Nanos now) {
  if (seal != *begun_) return AttemptFailed("its end is another one's", now);
  if (sink_.gathered() != seal.blocks) {
    return AttemptFailed(fmt::format("it has {} blocks and says {}", sink_.gathered(), seal.blocks),
                         now);
  }
  sink_.Swap(seal.last_event_id);
  ++stats_.snapshots_taken;
  dirty_ = true;
  replayed_ = true;
  adopted_ = false;
  adopted_whole_ = false;
  history_from_start_ = true;
  // Another's numbers begin anew.
  if (known_publisher_ != seal.publisher_id || seal.next_sequence < next_) GoBackTo(std::nullopt);
  PassTo(seal.next_sequence, fleet::MessageFate::kSnapshot);
  known_publisher_ = seal.publisher_id;
  last_digest_.reset();
  unread_ = false;
  undecodable_confirmed_ = false;
  missing_.reset();
  known_from_ = 0;
  replay_broken_ = false;
  too_many_.reset();
  ForgetLoss();
  const std::size_t strange = std::erase_if(parked_, [&](const auto& message) {
    const auto ids = wire::ReadEnvelopeIds(message.second);
    const bool stays = ids && ids->publisher_id == seal.publisher_id;
    if (!stays) parked_bytes_ -= message.second.size();
    return !stays;
  });
  if (strange > 0) {
    // The live numbers seen so far are another's.
    recent_.clear();
    first_live_.reset();
    stray_.reset();
    newest_ = parked_.empty() ? std::nullopt : std::optional(parked_.rbegin()->first);
  }
  NoteUpstream(seal, now);
  Resume(now);
}

void RankStream::HandleState(const wire::SnapshotSeal& seal, Nanos now) {
  StopReplay();
  if (IsOthers(seal.publisher_id)) return ChangePublisher(true, now);
  if (known_publisher_ && seal.next_sequence < asked_) return ChangePublisher(true, now);
  NoteUpstream(seal, now);
  snapshot_failed_ = false;
  if (next_ && seal.next_sequence > *next_ && !confirm_at_) {
    confirm_at_ = now + options_.confirm_after;  // under way, or lost
  }
  if (loss_ == StateReason::kNone || (too_many_ && seal.blocks >= *too_many_)) return;
  Recover(now);
}

void RankStream::NoteUpstream(const wire::SnapshotSeal& seal, Nanos now) {
  upstream_state_ = seal.state;
  upstream_reason_ = seal.reason;
  if (seal.state == RankState::kExact && !seal.complete) {
    upstream_state_ = RankState::kDegraded;
    upstream_reason_ = StateReason::kIndexFull;
  }
  state_pause_ =
      upstream_state_ == RankState::kExact
          ? options_.state_interval
          : std::clamp(state_pause_ * 2, options_.confirm_after, options_.state_interval);
  state_at_ = now + state_pause_;
}

void RankStream::SnapshotFailed(std::string_view why, Nanos now) {
  ++stats_.snapshots_failed;
  if (attempt_ >= options_.replay_attempts) return GiveUpSnapshot(why, now);
  sink_.StopReplay();
  PauseAttempt(now);
}

void RankStream::SnapshotOverdue(Nanos now) {
  if (purpose_ == Purpose::kState) return StopReplay();  // the next look will come
  ++stats_.snapshots_failed;
  snapshot_from_ = now + options_.snapshot_max;
  GiveUpSnapshot(
      fmt::format("it has not come within {} s",
                  std::chrono::floor<std::chrono::seconds>(options_.snapshot_max).count()),
      now);
}

void RankStream::GiveUpSnapshot(std::string_view why, Nanos now) {
  snapshot_failed_ = true;
  snapshot_fault_ = why;
  StopReplay();
  state_at_ = now + options_.heal_interval;
  if (instead_of_ == Purpose::kNone) return DrainParked(now);
  Begin(instead_of_, now);
}

void RankStream::ChangePublisher(bool keep_parked, Nanos now) {
  if (++changes_ >= options_.replay_attempts && HasReplay()) {
    return Disown(std::string(kOtherPublisher), now);
  }
  ++stats_.restarts;
  StartOver(keep_parked, now);
}

void RankStream::Overtake(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now) {
  ++stats_.overtaken;
  if (!Blocking()) ++stats_.gaps;
  for (auto at = parked_.begin(); at != parked_.end() && at->first <= sequence;) {
    parked_bytes_ -= at->second.size();
    at = parked_.erase(at);
  }
  Clear();
  PassTo(sequence, fleet::MessageFate::kOvertaken);
  ApplyNext(sequence, payload, false);
  history_from_start_ = true;
  known_publisher_ = live_publisher_;
  if (live_publisher_ && HasReplay() && !state_at_) state_at_ = now + options_.confirm_after;
  Resume(now);
}

}  // namespace kvr::ingest
