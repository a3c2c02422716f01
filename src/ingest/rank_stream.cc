#include "ingest/rank_stream.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ingest/live_frames.h"
#include "ingest/message.h"
#include "wire/router_event.h"

namespace kvr::ingest {

using fleet::MessageFate;

Result<void> RankStream::Options::Validate() const {
  if (parked_messages_max == 0 || parked_bytes_max == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the parking place must have room for a message");
  }
  if (replay_attempts == 0 || replay_silence <= Millis{0} || replay_max <= Millis{0} ||
      retry_first <= Millis{0} || retry_max < retry_first || snapshot_max <= Millis{0}) {
    return Fail(ErrorCode::kInvalidArgument,
                "a replay needs at least one attempt and positive times, retry_max the longest");
  }
  return {};
}

RankStream::RankStream(const Options& options, Backlog backlog, StreamSink& sink)
    : options_(options), backlog_(backlog), sink_(sink) {
  PublishState();
}

void RankStream::Adopt(const std::optional<StreamPosition>& applied, Nanos now) {
  adopted_ = true;
  adopted_whole_ = applied.has_value();
  dirty_ = true;
  known_from_ = 0;
  down_since_ = now;
  if (applied) {
    PassTo(applied->message + 1, MessageFate::kEarlier);
    last_digest_ = applied->digest;
  }
  SetLoss(StateReason::kRecovered,
          applied ? fmt::format("blocks up to message {} were known before this process followed "
                                "the engine",
                                applied->message)
                  : std::string("the first blocks were known before this process followed the "
                                "engine"));
  sink_.NoteLoss();
  PublishState();
}

void RankStream::OnLink(net::LinkEvent event, Nanos now) {
  refused_ = event == net::LinkEvent::kRefused;
  if (event == net::LinkEvent::kConnected) {
    OnLinkUp(now);
  } else {
    OnLinkDown(now);
  }
  PublishState();
}

void RankStream::OnLinkUp(Nanos now) {
  if (link_ == Link::kUp) return;
  const bool again = link_ == Link::kDown;
  link_ = Link::kUp;
  // Only numbers of one connection compare: behind a new one there may be a new engine. `newest_`
  // stays, so that a lower number shows a restart at once.
  recent_.clear();
  first_live_.reset();
  linked_before_ = again;
  undrained_ = again && backlog_ != Backlog::kBuffered;
  live_publisher_.reset();
  snapshot_failed_ = false;
  snapshot_from_ = Nanos{0};
  finds_ = 0;
  refused_live_ = 0;
  looked_back_ = false;
  ForgetProof();
  if (!HasReplay()) {
    if (again && next_ && backlog_ != Backlog::kBuffered) {
      const bool unheard = adopted_ && options_.clear_on_loss;
      Lose(foreign_ ? StateReason::kReplayMismatch : StateReason::kNoReplayEndpoint,
           fmt::format("the link was lost before message {}; nobody can tell what was published "
                       "meanwhile, or by which engine",
                       *next_));
      // No live message has shown what numbers the engine is at.
      if (unheard) GoBackTo(std::nullopt);
    }
    return;
  }
  confirm_wanted_ = true;
  LookWhenQuiet(now);
  const bool verifiable =
      adopted_ ? next_.has_value()
               : again && (last_digest_ || (known_publisher_ && next_.value_or(0) > 0));
  Begin(verifiable ? Purpose::kVerify : Purpose::kRebuild, now);
}

void RankStream::OnLinkDown(Nanos now) {
  if (link_ != Link::kUp) return;
  link_ = Link::kDown;
  leftovers_ = first_live_.has_value();
  down_since_ = now;
  ++stats_.disconnects;
  StopReplay();
  confirm_at_.reset();
  state_at_.reset();
  quiet_at_.reset();
  // Verified later from the last applied message on, which fetches these again.
  ClearParked();
}

void RankStream::OnLive(const net::Frames& frames, Nanos now) {
  std::optional<std::uint64_t> sequence;
  std::optional<std::uint64_t> publisher;
  std::span<const std::byte> payload;
  switch (ReadLive(frames, sequence, payload, &publisher)) {
    case FrameFault::kNone:
      HandleLive(*sequence, payload, publisher, now);
      return PublishState();
    case FrameFault::kCount:
      ++stats_.bad_frame_count;
      break;
    case FrameFault::kSequence:
      ++stats_.bad_sequence;
      break;
    case FrameFault::kPlaneFrame:
      ++stats_.bad_plane_frame;
      break;
    case FrameFault::kIdentity:
      ++stats_.bad_identity;
      break;
  }
  ++refused_live_;
}

void RankStream::HandleLive(std::uint64_t sequence, std::span<const std::byte> payload,
                            std::optional<std::uint64_t> publisher, Nanos now) {
  if (link_ == Link::kNever) OnLinkUp(now);  // a message proves the link
  if (link_ == Link::kDown && HasReplay()) {
    // A leftover of the lost connection, if that brought something before it was lost: else it may
    // be of one before, and of an engine before. Whatever does not simply go on is fetched after
    // the next one.
    leftovers_ = leftovers_ && next_ && sequence <= *next_;
    if (leftovers_ && sequence == *next_) ApplyNext(sequence, payload, false);
    return;
  }
  if (undrained_ && !publisher && !HasReplay() && options_.clear_on_loss) {
    // Nothing could take back what an engine left that is gone, if the numbers of the next one go
    // on from there. A publisher has a name.
    ++stats_.late;
    return;
  }
  const Digest digest = MessageDigest(payload);
  if (adopted_ && (next_ ? sequence < *next_ : sequence == 0)) {
    // Whoever knew the blocks had applied that number before this stream was subscribed to.
    ++stats_.restarts;
    StartOver(false, now);
  }
  if (adopted_ && next_ == sequence && backlog_ == Backlog::kNone && options_.clear_on_loss) {
    // That it goes on proves nothing: a new engine may have come just as far.
    Lose(StateReason::kNoReplayEndpoint,
         fmt::format("joined at message {}; earlier ones are unknown", sequence));
  }
  if (publisher) {
    plane_ = true;
    if (live_publisher_ && *live_publisher_ != *publisher) {
      ++stats_.restarts;
      StartOver(false, now);
    }
    if (!Blocking() && IsOthers(publisher)) ChangePublisher(false, now);
    live_publisher_ = publisher;
    // It had nothing to tell when it was asked for its messages.
    if (HasReplay() && !state_at_) state_at_ = now + options_.confirm_after;
  }
  if (newest_ && sequence <= *newest_ && HandleOld(sequence, digest, payload, now)) return;
  if (DoubtsReplay(sequence, digest, now)) Begin(Purpose::kVerify, now);
  finds_ = 0;
  refused_live_ = 0;
  if (publisher) {
    quiet_at_.reset();  // it is asked for its state instead
  } else {
    LookWhenQuiet(now);
  }
  if (!first_live_) first_live_ = sequence;
  newest_ = sequence;
  stray_.reset();
  Remember(sequence, digest);
  const bool ahead = next_ ? sequence > *next_ || (Blocking() && sequence == *next_) : Blocking();
  if (ahead && MayMend(false) && sink_.Empties(payload)) return Overtake(sequence, payload, now);
  if (Blocking()) {
    Park(sequence, payload);
    FinishWhenJoined(now);
  } else if (!Advance(sequence, payload, now)) {
    Park(sequence, payload);
  }
}

bool RankStream::HandleOld(std::uint64_t sequence, Digest digest,
                           std::span<const std::byte> payload, Nanos now) {
  const auto known = recent_.find(sequence);
  if (known != recent_.end() && known->second == digest) {
    ++stats_.repeated;
    return true;
  }
  // One that this connection skipped a moment ago, between two that it brought.
  const bool late = known == recent_.end() && first_live_ && sequence > *first_live_ &&
                    *newest_ - sequence <= options_.reorder_max;
  if (late) {
    Remember(sequence, digest);
    if (Blocking() && next_ && sequence >= *next_) {
      Park(sequence, payload);
      FinishWhenJoined(now);
    } else {
      ++stats_.late;
    }
    return true;
  }
  if (MayBeStray(sequence)) {
    ++stats_.repeated;
    stray_ = sequence;
    if (HasReplay() && !replay_broken_ && !Blocking() && last_digest_) {
      Begin(Purpose::kVerify, now);
    }
    return true;
  }
  ++stats_.restarts;
  StartOver(false, now);
  return false;
}

bool RankStream::MayBeStray(std::uint64_t sequence) const {
  const bool same_connection = first_live_.has_value();
  const bool follows_another = stray_ && sequence == *stray_ + 1;
  return same_connection && sequence > 0 && *newest_ - sequence <= options_.stray_max &&
         !follows_another;
}

void RankStream::Remember(std::uint64_t sequence, Digest digest) {
  recent_[sequence] = digest;
  if (recent_.size() > kRecentMax) recent_.erase(recent_.begin());
}

bool RankStream::Advance(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now) {
  if (!next_) {
    // What was missed since somebody else knew the blocks, nobody can tell.
    if (adopted_ && options_.clear_on_loss) Clear();
    PassTo(sequence, MessageFate::kEarlier);
    if (sequence == 0 && !foreign_) {
      ForgetLoss();  // nothing came before, so nothing was lost
    } else if (loss_ == StateReason::kNone) {
      SetLoss(StateReason::kNoReplayEndpoint,
              fmt::format("joined at message {}; earlier ones are unknown", sequence));
    }
  }
  if (sequence < *next_) {
    ++stats_.repeated;
    return true;
  }
  if (sequence > *next_) {
    ++stats_.gaps;
    if (HasReplay() && !replay_broken_) {
      NoteLastKnown();
      Begin(Purpose::kFill, now);
      return false;
    }
    StateReason reason = HasReplay() ? StateReason::kReplayFailed : StateReason::kGapUnrepaired;
    if (foreign_) reason = StateReason::kReplayMismatch;
    GiveUp(reason, *next_, sequence - 1);
  }
  ApplyNext(sequence, payload, false);
  return true;
}

void RankStream::ApplyNext(std::uint64_t sequence, std::span<const std::byte> payload,
                           bool replayed) {
  const bool mends = loss_ != StateReason::kNone && MayMend(replayed) && sink_.Empties(payload);
  if (mends) Clear();
  if (mends || sequence == 0) history_from_start_ = true;
  dirty_ = true;
  adopted_ = false;
  if (!known_from_) known_from_ = sequence;
  unread_ = false;
  MessageFate fate = replayed ? MessageFate::kReplayed : MessageFate::kApplied;
  if (sink_.Apply(sequence, payload) == StreamSink::Outcome::kUndecodable) {
    ++stats_.undecodable;
    // Not passed yet: the next message shows a gap, and the replayed copy decides.
    unread_ = !replayed && HasReplay() && !undecodable_confirmed_;
    if (unread_) {
      witnesses_.erase(sequence);  // a better copy is no contradiction
      return;
    }
    const std::string_view why = sink_.undecodable();
    Lose(StateReason::kUndecodable,
         fmt::format("message {} is no batch{}{}", sequence, why.empty() ? "" : ": ", why));
    undecodable_confirmed_ = true;
    fate = MessageFate::kUndecodable;
  } else {
    ++stats_.applied;
    if (replayed) ++stats_.replayed;
    replayed_ |= replayed;
  }
  PassTo(sequence + 1, fate);
  if (!replayed) {
    known_publisher_ = live_publisher_;
    changes_ = 0;
  }
  last_digest_ = MessageDigest(payload);
  if (!replayed) return;
  Remember(sequence, *last_digest_);
  if (!proven_) told_.emplace(sequence, *last_digest_);
}

void RankStream::LookWhenQuiet(Nanos now) {
  if (!HasReplay() || options_.quiet_after <= Millis{0}) return;
  quiet_pause_ = options_.quiet_after;
  quiet_at_ = now + quiet_pause_;
}

bool RankStream::MayMend(bool replayed) const {
  return !foreign_ && (replayed || live_publisher_ || !undrained_);
}

void RankStream::Park(std::uint64_t sequence, std::span<const std::byte> payload) {
  if (parked_.size() >= options_.parked_messages_max ||
      parked_bytes_ + payload.size() > options_.parked_bytes_max) {
    ++stats_.park_overflow;
    park_overflowed_ = true;
    return;
  }
  const auto [at, added] = parked_.try_emplace(sequence, payload.begin(), payload.end());
  if (added) parked_bytes_ += at->second.size();
}

void RankStream::ClearParked() {
  parked_.clear();
  parked_bytes_ = 0;
  park_overflowed_ = false;
}

void RankStream::DrainParked(Nanos now) {
  while (!Blocking() && !parked_.empty()) {
    const auto first = parked_.begin();
    if (plane_ && !foreign_) {
      const auto ids = wire::ReadEnvelopeIds(first->second);
      if (ids && IsOthers(ids->publisher_id)) return ChangePublisher(true, now);
    }
    if (!Advance(first->first, first->second, now)) return;
    parked_bytes_ -= first->second.size();
    parked_.erase(first);
  }
  if (Blocking() || !park_overflowed_) return;
  park_overflowed_ = false;
  if (HasReplay() && !replay_broken_ && next_) Begin(Purpose::kFill, now);
}

void RankStream::StartOver(bool keep_parked, Nanos now) {
  StopReplay();
  Clear();
  GoBackTo(std::nullopt);
  foreign_ = false;
  live_publisher_.reset();
  known_publisher_.reset();
  snapshot_failed_ = false;
  snapshot_from_ = Nanos{0};
  ForgetProof();
  newest_.reset();
  stray_.reset();
  if (!keep_parked) {
    ClearParked();
    first_live_.reset();
    recent_.clear();
  } else if (!parked_.empty()) {
    newest_ = parked_.rbegin()->first;
  }
  join_at_end_ = keep_parked || (linked_before_ && !plane_);
  if (HasReplay() && link_ == Link::kUp) Begin(Purpose::kRebuild, now);
}

void RankStream::Clear() {
  if (dirty_) {
    ++stats_.clears;
    sink_.Clear();
  }
  dirty_ = false;
  replayed_ = false;
  told_.reset();
  adopted_ = false;
  adopted_whole_ = false;
  history_from_start_ = false;
  last_digest_.reset();
  ForgetLoss();
  unread_ = false;
  undecodable_confirmed_ = false;
  last_known_.reset();
  missing_.reset();
  known_from_.reset();
}

void RankStream::GiveUp(StateReason reason, std::uint64_t first, std::uint64_t last) {
  CountMissed(last + 1 - first);
  hole_ = true;
  const Missing missing =
      options_.clear_on_loss ? Missing{} : missing_.value_or(Missing{first, {}});
  // None is missing where the ring begins right at the next one: but the one before, which would
  // tell that the engine is still the same, is gone.
  Lose(reason, last + 1 == first
                   ? fmt::format("the ring begins at message {}; what was known before may be "
                                 "another engine's",
                                 first)
                   : fmt::format("{} messages from {} on are lost", last + 1 - first, first));
  if (reason == StateReason::kReplayFailed) {
    missing_ = missing;
    if (failure_) failure_->gap = true;
  }
  PassTo(last + 1, MessageFate::kMissed);
  last_digest_.reset();
  unread_ = false;
}

void RankStream::PassTo(std::uint64_t next, MessageFate fate) {
  stats_.passed[static_cast<std::size_t>(fate)] += next - next_.value_or(0);
  next_ = next;
}

void RankStream::GoBackTo(std::optional<std::uint64_t> next) {
  stats_.taken_back += next_.value_or(0) - next.value_or(0);
  next_ = next;
}

void RankStream::Lose(StateReason reason, std::string detail) {
  if (reason == StateReason::kHistoryGone || options_.clear_on_loss) {
    Clear();
  } else {
    sink_.NoteLoss();
  }
  SetLoss(reason, std::move(detail));
}

void RankStream::CountMissed(std::uint64_t messages) {
  stats_.missed += std::min(messages, kMissedMax);
}

void RankStream::ForgetLoss() {
  failure_.reset();
  loss_ = StateReason::kNone;
  loss_detail_.clear();
}

void RankStream::SetLoss(StateReason reason, std::string detail) {
  loss_ = reason;
  loss_detail_ = std::move(detail);
  if (reason == StateReason::kReplayFailed) loss_detail_ += "; " + replay_fault_;
  if (snapshot_failed_ && reason != StateReason::kReplayMismatch)
    loss_detail_ += fmt::format("; no snapshot could be taken: {}", snapshot_fault_);
}

std::optional<std::uint64_t> RankStream::watermark() const {
  if (!next_ || *next_ == 0) return std::nullopt;
  return *next_ - 1;
}

std::optional<Nanos> RankStream::deadline() const {
  std::optional<Nanos> first;
  const auto consider = [&first](std::optional<Nanos> at) {
    if (at && (!first || *at < *first)) first = at;
  };
  if (purpose_ != Purpose::kNone) {
    consider(replay_deadline_);
    if (AsksPublisher()) consider(snapshot_until_);
  } else if (link_ == Link::kUp) {
    consider(confirm_at_);
    consider(heal_at_);
    consider(state_at_);
    consider(quiet_at_);
  }
  if (link_ != Link::kUp && dirty_ && options_.drop_after_disconnect > Millis{0}) {
    consider(down_since_ + options_.drop_after_disconnect);
  }
  return first;
}

void RankStream::OnTick(Nanos now) {
  if (AsksPublisher() && now >= snapshot_until_) {
    SnapshotOverdue(now);
  } else if (purpose_ != Purpose::kNone) {
    if (now < replay_deadline_) return;
    if (waiting_retry_) {
      Ask(now);
    } else {
      AttemptFailed(now < replay_until_ ? "it is silent" : "it comes in too slowly", now);
    }
  } else if (link_ == Link::kUp) {
    if (heal_at_ && now >= *heal_at_) {
      if (foreign_) {
        LookForRelease(now);
      } else if (loss_ == StateReason::kHistoryGone) {
        looked_back_ = true;
        Begin(Purpose::kReach, now);
      } else {
        Begin(missing_ && !replay_broken_ ? Purpose::kRefill : Purpose::kConfirm, now);
      }
    } else if (confirm_at_ && now >= *confirm_at_) {
      confirm_at_.reset();
      // Beyond the live messages although nothing is under way any more: is that number known?
      const bool ahead = !proven_ && first_live_ && newest_ && next_ && *newest_ + 1 < *next_;
      if (next_) Begin(ahead && last_digest_ ? Purpose::kVerify : Purpose::kConfirm, now);
    } else if (state_at_ && now >= *state_at_) {
      state_at_ = now + options_.state_interval;
      Begin(Purpose::kState, now);
    } else if (quiet_at_ && now >= *quiet_at_) {
      quiet_pause_ = std::min(2 * quiet_pause_, options_.heal_interval);
      quiet_at_ = now + quiet_pause_;
      if (plane_) quiet_at_.reset();
      if (HasReplay() && !replay_broken_ && next_) {
        NoteLastKnown();
        Begin(Purpose::kConfirm, now);
      }
    }
  } else if (link_ != Link::kUp && dirty_ && options_.drop_after_disconnect > Millis{0} &&
             now - down_since_ >= options_.drop_after_disconnect) {
    StartOver(false, now);
  }
  PublishState();
}

}  // namespace kvr::ingest
