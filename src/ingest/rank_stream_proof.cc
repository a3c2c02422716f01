// Whether the replay endpoint is the engine's own. See the class comment for the rules.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "ingest/message.h"
#include "ingest/rank_stream.h"
#include "wire/router_event.h"

namespace kvr::ingest {
namespace {

constexpr Millis kReleasePauseMax{600'000};

}  // namespace

bool RankStream::DoubtsReplay(std::uint64_t sequence, Digest digest, Nanos now) {
  if (!HasReplay()) return false;
  const bool below = next_ && sequence < *next_;
  const auto replayed = below ? recent_.find(sequence) : recent_.end();
  if (proven_ && replayed != recent_.end() && replayed->second != digest) ForgetProof();
  if (proven_) return false;
  if (ahead_ && sequence >= ahead_->first) {
    const bool same = *ahead_ == std::pair(sequence, digest);
    ahead_.reset();
    if (same) {
      Prove();
      return false;
    }
  }
  if (now >= witness_from_) {
    witnesses_[sequence] = digest;
    if (witnesses_.size() > kRecentMax) witnesses_.erase(std::next(witnesses_.begin()));
  }
  if (Blocking() || replay_broken_) return false;
  if (below) {
    // Below what was replayed: a copy that was under way meanwhile, the first of a new engine
    // behind something that kept the link up, or the replay is of another engine.
    if (replayed != recent_.end() && replayed->second == digest) {
      Prove();
      return false;
    }
    if (last_digest_ && looks_ == 0) return true;
  }
  if (purpose_ == Purpose::kNone && !confirm_at_ && !witnesses_.empty()) {
    confirm_at_ = now + ConfirmPause();
  }
  return false;
}

bool RankStream::Testify(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now) {
  const bool looks = purpose_ == Purpose::kConfirm || purpose_ == Purpose::kVerify;
  if (looks && !proven_ && told_ && sequence == told_->first &&
      told_->second != MessageDigest(payload)) {
    told_.reset();
    if (purpose_ == Purpose::kVerify) {
      ++stats_.restarts;
      StartOver(true, now);
    } else {
      Begin(Purpose::kRebuild, now);
    }
    return false;
  }
  if (witnesses_.empty() || join_at_end_) return true;
  if (answers_ == 0 && live_publisher_) {
    // An envelope says itself whose it is, however far its ring is ahead of what was read.
    const auto ids = wire::ReadEnvelopeIds(payload);
    if (ids && ids->publisher_id == *live_publisher_) {
      Prove();
      return true;
    }
  }
  const std::uint64_t newest = witnesses_.rbegin()->first;
  if (answers_ == 0 && asked_ <= newest && newest < sequence) {
    PassWitnesses();
    if (!ahead_) ahead_.emplace(sequence, MessageDigest(payload));
    // The live messages up to there may still wait to be read, so that one moment counts once.
    if (now < pass_counts_at_) return true;
    pass_counts_at_ = now + ConfirmPause();
    if (++passed_ < options_.replay_attempts) return true;
    Disown(fmt::format("it begins with message {}, where the engine is not yet", sequence), now);
    return false;
  }
  const auto witness = witnesses_.find(sequence);
  if (witness == witnesses_.end()) return true;
  if (witness->second == MessageDigest(payload)) {
    Prove();
    return true;
  }
  PassWitnesses();
  witness_from_ = now + options_.confirm_after;
  if (++contradictions_ == 1 && linked_before_) {
    // The live one may be a leftover of the connection before, and with it others that were applied
    // behind the history of this one. Whatever they did is taken back.
    join_at_end_ = true;
    Begin(Purpose::kRebuild, now);
    return false;
  }
  Disown(fmt::format("its message {} has other bytes than the engine's", sequence), now);
  return false;
}

void RankStream::PassWitnesses() {
  witnesses_.clear();
  sought_ = false;
  ++looks_;
}

Millis RankStream::ConfirmPause() const {
  return std::min(options_.confirm_after * (std::int64_t{1} << std::min(looks_, 10u)),
                  options_.heal_interval);
}

void RankStream::Prove() {
  ForgetProof();
  proven_ = true;
  told_.reset();
}

void RankStream::ForgetProof() {
  witnesses_.clear();
  sought_ = false;
  proven_ = false;
  looks_ = 0;
  unknown_ = 0;
  passed_ = 0;
  pass_counts_at_ = Nanos{0};
  ahead_.reset();
  contradictions_ = 0;
  witness_from_ = Nanos{0};
}

void RankStream::Disown(std::string why, Nanos now) {
  ++stats_.replays_foreign;
  StopReplay();
  Clear();
  ForgetProof();
  foreign_ = true;
  replay_broken_ = false;
  missing_.reset();
  confirm_at_.reset();
  heal_at_.reset();
  state_at_.reset();
  GoBackTo(std::nullopt);
  known_publisher_.reset();
  SetLoss(StateReason::kReplayMismatch,
          "the replay endpoint belongs to another engine: " + std::move(why));
  release_pause_ = options_.heal_interval;
  heal_at_ = now + release_pause_;
  DrainParked(now);
}

void RankStream::LookForRelease(Nanos now) {
  if (newest_ && recent_.contains(*newest_)) Begin(Purpose::kRelease, now);
  release_pause_ = std::min(2 * release_pause_, kReleasePauseMax);
  heal_at_ = now + release_pause_;
}

void RankStream::HandleRelease(std::uint64_t sequence, std::span<const std::byte> payload,
                               Nanos now) {
  const auto live = recent_.find(asked_);
  const bool known =
      sequence == asked_ && live != recent_.end() && live->second == MessageDigest(payload);
  StopReplay();
  if (known) StartOver(true, now);
}

}  // namespace kvr::ingest
