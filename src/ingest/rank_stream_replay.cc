// How a RankStream fetches history. See the class comment for the rules.
#include <algorithm>

#include <fmt/format.h>

#include "ingest/message.h"
#include "ingest/rank_stream.h"
#include "wire/router_event.h"

namespace kvr::ingest {

void RankStream::Begin(Purpose purpose, Nanos now) {
  purpose_ = purpose;
  attempt_ = 0;
  filled_ = false;
  attempt_fault_.clear();
  hole_ = false;
  unfilled_ = false;
  rewound_from_.reset();
  snapshot_until_ = now + options_.snapshot_max;
  if (purpose != Purpose::kState) {
    confirm_at_.reset();
    heal_at_.reset();
  }
  Ask(now);
}

void RankStream::Ask(Nanos now) {
  switch (purpose_) {
    case Purpose::kVerify:
      asked_ = *next_ - 1;
      if (!witnesses_.empty()) asked_ = std::min(asked_, witnesses_.begin()->first);
      break;
    case Purpose::kConfirm:
      asked_ = next_.value_or(0);
      if (last_known_) asked_ = std::min(asked_, last_known_->first);
      if (!witnesses_.empty()) asked_ = std::min(asked_, witnesses_.begin()->first);
      if (!witnesses_.empty() && told_) asked_ = std::min(asked_, told_->first);
      break;
    case Purpose::kRebuild:
    case Purpose::kReach:
      asked_ = 0;
      break;
    case Purpose::kRefill:
      asked_ = missing_->asked();
      break;
    case Purpose::kRelease:
      asked_ = *newest_;
      break;
    default:
      asked_ = next_.value_or(0);
  }
  asked_at_ = next_.value_or(0);
  sought_ = !witnesses_.empty() && asked_ <= witnesses_.begin()->first;
  ++attempt_;
  answers_ = 0;
  look_found_ = false;
  answered_to_.reset();
  waiting_retry_ = false;
  replay_until_ = now + options_.replay_max;
  replay_deadline_ = now + std::min(options_.replay_silence, options_.replay_max);
  begun_.reset();
  if (purpose_ == Purpose::kSnapshot) {
    ++stats_.snapshots_asked;
    return sink_.StartSnapshot();
  }
  if (purpose_ == Purpose::kState) return sink_.AskState();
  if (Blocking()) ++stats_.replays_started;
  sink_.StartReplay(asked_);
}

void RankStream::NoteLastKnown() {
  const bool has = last_digest_ && !plane_ && next_.value_or(0) > 0;
  if (has && !last_known_) last_known_.emplace(*next_ - 1, *last_digest_);
}

void RankStream::OnReplay(const net::Frames& frames, Nanos now) {
  if (purpose_ == Purpose::kNone || waiting_retry_) return;
  // ["", seq, payload] or ["", topic, seq, payload].
  const std::size_t parts = frames.size();
  std::uint64_t sequence = 0;
  if (purpose_ == Purpose::kSnapshot || purpose_ == Purpose::kState) {
    HandleSnapshot(frames, now);
  } else if (purpose_ == Purpose::kRelease) {
    if (parts < 3 || !frames[0].empty() || !ReadSequence(frames[parts - 2], sequence)) {
      StopReplay();
    } else {
      HandleRelease(sequence, frames[parts - 1], now);
    }
  } else if (parts < 3 || !frames[0].empty()) {
    AttemptFailed("an answer has no delimiter or too few frames", now);
  } else if (purpose_ == Purpose::kConfirm && loss_ == StateReason::kReplayFailed) {
    // It answers again, whatever it says: what was lost may still be in its ring.
    replay_broken_ = false;
    Begin(Purpose::kReach, now);
  } else if (frames[parts - 1].empty()) {
    NoteEndOf(frames);
    HandleReplayEnd(now);
  } else if (!ReadSequence(frames[parts - 2], sequence) || sequence == kEndSequence) {
    AttemptFailed("an answer has no sequence number", now);
  } else if (answers_ >= options_.replay_messages_max) {
    AttemptFailed("it does not end", now);
  } else if (first_live_ && newest_ && sequence > *newest_ &&
             sequence - *newest_ > options_.ahead_max) {
    AttemptFailed("an answer is numbered far beyond the live messages", now);
  } else {
    // One that only repeats itself is as good as silent.
    if (!answered_to_ || sequence > *answered_to_) {
      answered_to_ = sequence;
      replay_deadline_ = std::min<Nanos>(now + options_.replay_silence, replay_until_);
    }
    HandleReplayed(sequence, frames[parts - 1], now);
  }
  PublishState();
}

void RankStream::NoteEndOf(const net::Frames& frames) {
  // ["", topic, publisher, end, ""] of an event plane, which so says whose it is when it has no
  // message to say so.
  std::uint64_t publisher = 0;
  if (plane_ || answers_ > 0 || frames.size() != 5 || !ReadSequence(frames[2], publisher)) return;
  plane_ = true;
  upstream_state_ = RankState::kWarming;  // nothing is known before it tells
  upstream_reason_ = StateReason::kConnecting;
}

void RankStream::HandleReplayed(std::uint64_t sequence, std::span<const std::byte> payload,
                                Nanos now) {
  if (!Testify(sequence, payload, now)) return;
  const bool first = answers_ == 0 || purpose_ == Purpose::kVerify;
  std::optional<wire::EnvelopeIds> ids;
  if (first) {
    ids = wire::ReadEnvelopeIds(payload);
    plane_ = ids.has_value();
    if (ids && live_publisher_ && ids->publisher_id != *live_publisher_) {
      if (Blocking() && attempt_ >= options_.replay_attempts) {
        return Disown(std::string(kOtherPublisher), now);
      }
      return AttemptFailed(kOtherPublisher, now);
    }
  }
  if (purpose_ == Purpose::kConfirm && last_known_ && sequence >= last_known_->first) {
    const bool other =
        sequence == last_known_->first && MessageDigest(payload) != last_known_->second;
    last_known_.reset();
    if (other) {
      // Another engine has come as far, and nothing else showed it.
      ++stats_.restarts;
      return StartOver(true, now);
    }
  }
  ++answers_;
  if (first && !HandleFirstReplayed(sequence, payload, now)) return;
  if (sequence < *next_) {
    // A look begins with the witnesses, which were applied long ago.
    if (purpose_ != Purpose::kConfirm) ++stats_.repeated;
    return;
  }
  if (sequence > *next_) {
    if (purpose_ == Purpose::kConfirm) {
      if (first && passed_next_ != next_) {
        // The ring has moved past what was read so far. What is between may still wait among the
        // live messages: whether it comes tells the next look.
        passed_next_ = next_;
        StopReplay();
        confirm_at_ = now + ConfirmPause();
        return;
      }
      ++stats_.gaps;
      Begin(Purpose::kFill, now);
      return;
    }
    const bool asked_again = hole_ && asked_ + 1 == *next_;
    if (last_digest_ && !asked_again) {
      // The endpoint's queue was full, or its ring moved on meanwhile: what is missing is asked for
      // once more, together with the message before it.
      if (!witnesses_.empty() && witnesses_.begin()->first + 1 < *next_) PassWitnesses();
      purpose_ = Purpose::kVerify;
      attempt_ = 0;
      hole_ = true;
      return Ask(now);
    }
    if (Recover(now)) return;
    GiveUp(StateReason::kGapUnrepaired, *next_, sequence - 1);
  }
  if (ids) known_publisher_ = ids->publisher_id;
  if (asked_ + 1 == sequence) hole_ = false;  // it was asked for again, and is there
  if (purpose_ == Purpose::kConfirm && !look_found_) {
    look_found_ = true;
    ++finds_;
    quiet_pause_ = options_.quiet_after;
  }
  filled_ = true;
  ApplyNext(sequence, payload, true);
  FinishWhenJoined(now);
}

bool RankStream::HandleFirstReplayed(std::uint64_t sequence, std::span<const std::byte> payload,
                                     Nanos now) {
  replay_broken_ = false;
  switch (purpose_) {
    case Purpose::kVerify:
      // Nothing is missing, and the publisher says itself that it is the same.
      if (sequence == *next_ && IsKnownPublisher(payload)) {
        purpose_ = Purpose::kFill;
        return true;
      }
      if (sequence >= *next_) {
        // The ring has moved past the message that could prove anything. The answer starts at the
        // oldest the engine has, of whichever engine it is.
        if (Recover(now)) return false;
        GiveUp(StateReason::kHistoryGone, *next_, sequence - 1);
        purpose_ = Purpose::kFill;
        return true;
      }
      if (sequence + 1 < *next_) return false;
      if (!last_digest_ && (adopted_ || IsKnownPublisher(payload))) {
        last_digest_ = MessageDigest(payload);  // that the engine has it must do
      }
      if (MessageDigest(payload) != last_digest_) {
        ++stats_.restarts;
        StartOver(true, now);
        return false;
      }
      purpose_ = Purpose::kFill;
      return false;
    case Purpose::kRebuild: {
      if (sequence > 0 && Recover(now)) return false;
      const std::uint64_t known = next_.value_or(0);
      Clear();
      GoBackTo(0);
      if (sequence > 0) {
        const std::uint64_t lost_before = stats_.missed;
        GiveUp(StateReason::kHistoryGone, 0, sequence - 1);
        // What was applied before the rebuild is forgotten, but was not missed.
        stats_.missed = lost_before;
        if (sequence > known) CountMissed(sequence - known);
      }
      return true;
    }
    case Purpose::kFill:
      if (sequence <= *next_) return true;
      if (Recover(now)) return false;
      // The ring has moved on, or the engine used up a number without sending anything: then the
      // ring still has the message before it.
      Begin(last_digest_ ? Purpose::kVerify : Purpose::kRebuild, now);
      hole_ = true;
      return false;
    case Purpose::kRefill:
      if (sequence == asked_) {
        const auto before = missing_->before;
        if (before && MessageDigest(payload) != *before) {
          ++stats_.restarts;
          StartOver(true, now);
          return false;
        }
        Rewind();
        return !before;
      }
      // The ring no longer reaches back so far, or does not keep to what it is asked.
      if (loss_ == StateReason::kReplayFailed) {
        HandleOutrun(sequence, now);
        return false;
      }
      missing_.reset();
      if (!Recover(now)) StopReplay();
      return false;
    case Purpose::kReach:
      return HandleReach(sequence, payload, now);
    default:
      return true;
  }
}

bool RankStream::HandleReach(std::uint64_t sequence, std::span<const std::byte> payload,
                             Nanos now) {
  if (sequence == 0) {
    ++stats_.replays_started;
    purpose_ = Purpose::kRebuild;
    return HandleFirstReplayed(sequence, payload, now);
  }
  if (loss_ == StateReason::kHistoryGone) {
    StopReplay();
    return false;
  }
  if (missing_ && sequence <= missing_->asked()) {
    Begin(Purpose::kRefill, now);
  } else if (!missing_ && next_ && last_digest_) {
    Begin(Purpose::kVerify, now);
  } else {
    HandleOutrun(sequence, now);
  }
  return false;
}

void RankStream::HandleOutrun(std::uint64_t sequence, Nanos now) {
  const bool sound =
      !failure_ ||
      (!failure_->gap && !(missing_ && missing_->before) &&
       (failure_->loss == StateReason::kNone || failure_->loss == StateReason::kHistoryGone));
  if (!sound || !known_from_ || sequence <= *known_from_) return Begin(Purpose::kRebuild, now);
  if (Recover(now)) return;
  // What is known is a part of what the engine holds, and more than its ring would tell.
  StopReplay();
  failure_.reset();
  missing_.reset();
  SetLoss(StateReason::kHistoryGone,
          fmt::format("messages before {} were not to be had when the replay endpoint failed",
                      *known_from_));
}

void RankStream::HandleReplayEnd(Nanos now) {
  if (sought_ && !Blocking()) {
    PassWitnesses();
    ++unknown_;
  }
  if (purpose_ == Purpose::kConfirm) {
    ++stats_.confirmed;
    replay_broken_ = false;
    return HealLater(now);
  }
  if (purpose_ == Purpose::kRefill) return HealLater(now);
  if (purpose_ == Purpose::kReach && loss_ == StateReason::kHistoryGone) return StopReplay();
  if (purpose_ == Purpose::kReach) {
    ++stats_.replays_started;
    purpose_ = Purpose::kRebuild;  // which came to nothing
  }
  const bool unknown = purpose_ == Purpose::kVerify ||  // the last applied message did not come
                       (purpose_ == Purpose::kRebuild && answers_ == 0);
  if (unknown && (adopted_ || next_.value_or(0) > 0)) {
    // The engine has published less than we applied: it is another one.
    ++stats_.restarts;
    StartOver(true, now);
    return;
  }
  if (!next_) next_ = 0;  // nothing was published so far
  replay_broken_ = false;
  if (join_at_end_) {
    // What is parked may be the old engine's. If it is not, the ring has it, and is asked soon.
    ClearParked();
    recent_.erase(recent_.lower_bound(*next_), recent_.end());
    first_live_.reset();
    newest_.reset();
    stray_.reset();
    confirm_wanted_ = true;
    return FinishReplay(now);
  }
  if (rewound_from_ && *rewound_from_ > *next_) return HandleUnfilled(*rewound_from_, now);
  if (!parked_.empty() && parked_.begin()->first > *next_) {
    return HandleUnfilled(parked_.begin()->first, now);
  }
  if (sought_) PassWitnesses();
  FinishReplay(now);
}

void RankStream::HandleUnfilled(std::uint64_t target, Nanos now) {
  const bool progress = *next_ > asked_at_ && answers_ > 0;
  purpose_ = Purpose::kFill;
  if (progress) {
    // What is missing may have been published while the engine answered.
    attempt_ = 0;
    unfilled_ = false;
    return Ask(now);
  }
  // A ring that had its time to fill gets none for further gaps.
  if (!missing_ && attempt_ < options_.replay_attempts) {
    unfilled_ = true;
    sink_.StopReplay();
    return PauseAttempt(now);
  }
  if (Recover(now)) return;
  const Missing missing = missing_.value_or(Missing{*next_, {}});
  GiveUp(StateReason::kGapUnrepaired, *next_, target - 1);
  missing_ = missing;  // also where the loss cleared the blocks
  FinishReplay(now);
}

void RankStream::Rewind() {
  ++stats_.replays_started;
  purpose_ = Purpose::kFill;
  if (next_ > missing_->from) rewound_from_ = next_;
  asked_at_ = missing_->from;
  GoBackTo(missing_->from);
  last_digest_ = missing_->before;
  missing_.reset();
  sink_.NoteLoss();  // copies that come a second time must not count twice
  if (loss_ == StateReason::kReplayFailed && failure_ && !failure_->gap) return EndFailure();
  failure_.reset();
  SetLoss(
      StateReason::kGapUnrepaired,
      fmt::format("messages from {} on came after newer ones; copies are counted anew", *next_));
}

void RankStream::NoteFailure() {
  if (options_.clear_on_loss) {
    Clear();
    missing_ = Missing{};
  } else if (!failure_) {
    const bool anew = purpose_ == Purpose::kRebuild || !next_;
    failure_ = {loss_, loss_detail_, anew && dirty_};
    if (!missing_ && anew) missing_ = Missing{};
    if (!missing_ && purpose_ == Purpose::kVerify) missing_ = Missing{*next_, last_digest_};
  }
  SetLoss(StateReason::kReplayFailed, "what was published may not all be known");
}

void RankStream::EndFailure() {
  loss_ = failure_->loss;
  loss_detail_ = std::move(failure_->loss_detail);
  failure_.reset();
}

void RankStream::FinishWhenJoined(Nanos now) {
  const bool answered =
      purpose_ == Purpose::kFill || (purpose_ == Purpose::kRebuild && answers_ > 0);
  if (answered && !join_at_end_ && next_ && !parked_.empty() && parked_.begin()->first <= *next_) {
    FinishReplay(now);
  }
}

void RankStream::FinishReplay(Nanos now) {
  ++(hole_ ? stats_.replays_incomplete : stats_.replays_completed);
  const bool whole = !hole_ && !missing_ && failure_ && !failure_->gap;
  if (whole && loss_ == StateReason::kReplayFailed) EndFailure();
  if (plane_) {
    state_pause_ = options_.confirm_after;
    state_at_ = now;
  }
  Resume(now);
}

void RankStream::Resume(Nanos now) {
  StopReplay();
  if (!filled_) last_known_.reset();
  if (join_at_end_) witnesses_.clear();  // they may be of the old engine
  if (confirm_wanted_ || !witnesses_.empty() || last_known_) confirm_at_ = now + ConfirmPause();
  confirm_wanted_ = false;
  join_at_end_ = false;
  // The endpoint works, so what it failed to give earlier is worth asking for again.
  if (loss_ == StateReason::kReplayFailed) heal_at_ = now + options_.heal_interval;
  if (missing_) heal_at_ = now + options_.retry_max;
  if (MayLookBack()) heal_at_ = now + options_.heal_interval;
  DrainParked(now);
}

void RankStream::AttemptFailed(std::string_view why, Nanos now) {
  if (purpose_ == Purpose::kState || purpose_ == Purpose::kRelease) {
    return StopReplay();  // the next look will come
  }
  if (purpose_ == Purpose::kSnapshot) return SnapshotFailed(why, now);
  if (!Blocking()) {
    ++looks_;
    return HealLater(now);
  }
  ++stats_.replays_failed;
  sink_.StopReplay();
  if (attempt_ < options_.replay_attempts) {
    // What came is kept and the rest asked for.
    if (purpose_ == Purpose::kRebuild && answers_ > 0) purpose_ = Purpose::kFill;
    attempt_fault_ = why;
    return PauseAttempt(now);
  }
  // The stream goes on without it. What is known stays: nothing says that it is wrong.
  replay_fault_ =
      fmt::format("the replay endpoint failed {} times, the last time because {}", attempt_, why);
  NoteFailure();
  if (!filled_) last_known_.reset();
  purpose_ = Purpose::kNone;
  waiting_retry_ = false;
  replay_broken_ = true;
  heal_at_ = now + options_.heal_interval;
  DrainParked(now);
}

void RankStream::PauseAttempt(Nanos now) {
  waiting_retry_ = true;
  const auto doubled = options_.retry_first * (std::int64_t{1} << std::min(attempt_ - 1, 20u));
  replay_deadline_ = now + std::min<Millis>(doubled, options_.retry_max);
}

void RankStream::HealLater(Nanos now) {
  StopReplay();
  if (replay_broken_ || missing_ || MayLookBack()) heal_at_ = now + options_.heal_interval;
}

void RankStream::StopReplay() {
  if (purpose_ == Purpose::kNone) return;
  purpose_ = Purpose::kNone;
  waiting_retry_ = false;
  sink_.StopReplay();
}

}  // namespace kvr::ingest
