// How far what is known of a rank can be trusted, and why not further.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvr {

// How far the picture of a rank's cache can be trusted. Shown wherever a rank is shown.
enum class RankState : std::uint8_t {
  kBlind,     // no event stream, and nothing is known from an earlier one
  kWarming,   // connected or recovering; what is known is right but not yet complete
  kExact,     // every event since the engine started was applied
  kDegraded,  // serving, but something is missing or wrong; see the reason
};

inline constexpr std::array<std::string_view, 4> kRankStateNames = {"blind", "warming", "exact",
                                                                    "degraded"};
constexpr std::string_view RankStateName(RankState state) {
  return kRankStateNames[static_cast<std::size_t>(state)];
}

// Why a rank is not exact.
enum class StateReason : std::uint8_t {
  kNone,
  kNoEventSource,      // registered without an endpoint
  kConnecting,         // the engine is not up yet
  kReplaying,          // history is being fetched
  kNoReplayEndpoint,   // joined in the middle of the stream and there is nobody to ask
  kHistoryGone,        // the engine's replay ring no longer reaches back to the gap
  kReplayFailed,       // the replay endpoint did not answer, or broke off
  kGapUnrepaired,      // messages were lost and could not be fetched
  kBlockSizeMismatch,  // events carry another block size than registered
  kUndecodable,        // payloads or events that no known dialect explains
  kIndexFull,          // the index refused blocks
  kDisconnected,       // the engine went away
  kForeignRank,        // the stream names only ranks that are not registered
  kRefused,            // something answers at the endpoint that is no engine's event socket
  kUnknownGroupKind,   // a cache group of a kind we do not know: what is of use cannot be told
  kRecovered,          // begun with blocks of a peer or a snapshot, not with the first event
  kReplayMismatch,     // the replay endpoint belongs to another engine than the event stream
  kNotLive,            // messages are to be had from the replay endpoint but do not come live
};

inline constexpr std::array<std::string_view, 18> kStateReasonNames = {"none",
                                                                       "no_event_source",
                                                                       "connecting",
                                                                       "replaying",
                                                                       "no_replay_endpoint",
                                                                       "history_gone",
                                                                       "replay_failed",
                                                                       "gap_unrepaired",
                                                                       "block_size_mismatch",
                                                                       "undecodable",
                                                                       "index_full",
                                                                       "disconnected",
                                                                       "foreign_rank",
                                                                       "refused",
                                                                       "unknown_group_kind",
                                                                       "recovered",
                                                                       "replay_mismatch",
                                                                       "not_live"};
constexpr std::string_view StateReasonName(StateReason reason) {
  return kStateReasonNames[static_cast<std::size_t>(reason)];
}

}  // namespace kvr
