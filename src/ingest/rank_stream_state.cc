// What a RankStream says of itself. See the class comment for the states.
#include <string>

#include <fmt/format.h>

#include "ingest/rank_stream.h"

namespace kvr::ingest {
namespace {

// A ring may lag behind once.
constexpr std::uint32_t kUnknownMax = 2;
// A subscription may be late once, and the last messages before a pause may be lost.
constexpr std::uint32_t kFindsMax = 3;

}  // namespace

bool RankStream::DoubtsEndpoint() const {
  return contradictions_ > 0 || (unknown_ >= kUnknownMax && replayed_);
}

std::optional<StreamPosition> RankStream::position() const {
  const auto applied = watermark();
  bool sound = false;  // no block is known that is gone
  switch (loss_) {
    case StateReason::kNone:
      sound = history_from_start_;
      break;
    case StateReason::kRecovered:
      sound = adopted_whole_;
      break;
    case StateReason::kHistoryGone:
      sound = true;  // cleared then; all that came since was applied
      break;
    default:
      break;
  }
  if (!applied || !sound || DoubtsEndpoint()) return std::nullopt;
  // Publishers that follow each other may come as far, and the digest alone tells them apart.
  if (plane_ && !last_digest_) return std::nullopt;
  return StreamPosition{*applied, last_digest_};
}

void RankStream::PublishState() {
  if (link_ != Link::kUp && refused_) {
    sink_.SetState(dirty_ ? RankState::kWarming : RankState::kBlind, StateReason::kRefused,
                   "what answers at the event endpoint hangs up or is no publisher; is it the port "
                   "of the engine's kv-events-config?");
  } else if (link_ == Link::kNever && dirty_) {
    sink_.SetState(RankState::kDegraded, StateReason::kRecovered,
                   loss_detail_ + "; no connection to the event endpoint yet");
  } else if (link_ == Link::kNever) {
    sink_.SetState(RankState::kBlind, StateReason::kConnecting,
                   "no connection to the event endpoint yet: the engine is not up, its host name "
                   "is not known here, or it publishes elsewhere");
  } else if (link_ == Link::kDown) {
    sink_.SetState(dirty_ ? RankState::kWarming : RankState::kBlind, StateReason::kDisconnected,
                   dirty_ ? "the event stream is lost; what was known before still counts"
                          : "the event stream is lost and nothing is known any more");
  } else if (Blocking() && unfilled_) {
    sink_.SetState(RankState::kDegraded, StateReason::kGapUnrepaired,
                   "the replay ends before the missing messages; they are asked for again");
  } else if (Blocking()) {
    sink_.SetState(RankState::kWarming, StateReason::kReplaying,
                   purpose_ == Purpose::kSnapshot ? std::string("a snapshot is being taken")
                   : attempt_fault_.empty()
                       ? std::string()
                       : fmt::format("attempt {} of {}; the last failed because {}", attempt_,
                                     options_.replay_attempts, attempt_fault_));
  } else if (loss_ != StateReason::kNone) {
    sink_.SetState(RankState::kDegraded, loss_, loss_detail_);
  } else if (DoubtsEndpoint()) {
    sink_.SetState(RankState::kDegraded, StateReason::kReplayMismatch,
                   "the replay endpoint does not know what the engine published lately; does it "
                   "belong to this engine?");
  } else if (unread_) {
    sink_.SetState(RankState::kDegraded, StateReason::kUndecodable,
                   "the last message is no batch; it is asked for again when the next one comes");
  } else if (finds_ >= kFindsMax) {
    sink_.SetState(
        RankState::kDegraded, StateReason::kNotLive,
        refused_live_ > 0
            ? fmt::format(
                  "{} live messages were refused for their frames; what is known comes from "
                  "the replay endpoint, late",
                  refused_live_)
            : std::string("what the engine publishes does not come live, only from the replay "
                          "endpoint, late; is the `topic` the engine's?"));
  } else if (plane_ && upstream_state_ != RankState::kExact && next_) {
    sink_.SetState(upstream_state_, upstream_reason_,
                   "so its agent says of itself; what it has told is all known here");
  } else if (next_ && (*next_ == 0 || history_from_start_)) {
    sink_.SetState(RankState::kExact, StateReason::kNone, {});
  } else {
    sink_.SetState(RankState::kWarming, StateReason::kNoReplayEndpoint,
                   "no message yet, and nobody to ask for earlier ones");
  }
}

}  // namespace kvr::ingest
