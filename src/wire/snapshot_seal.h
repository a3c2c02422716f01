// What a publisher of RouterEvents says of a rank as a whole, beside its events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/rank_state.h"
#include "wire/decode_error.h"

namespace kvr::wire {

// What a replay socket may be asked beside messages, in a frame behind the number...
inline constexpr std::string_view kAskSnapshot = "snapshot";
inline constexpr std::string_view kAskState = "state";
// ... and what the messages of an answer are, in the place of the topic. Their numbers are 0, 1, 2
// and so on.
inline constexpr std::string_view kSnapshotBegin = "snapshot-begin";    // SnapshotSeal
inline constexpr std::string_view kSnapshotEvents = "snapshot-events";  // a list of RouterEvents
inline constexpr std::string_view kSnapshotEnd = "snapshot-end";        // SnapshotSeal
inline constexpr std::string_view kSnapshotWait = "snapshot-wait";      // nothing yet; not counted
inline constexpr std::string_view kSnapshotRefused = "snapshot-refused";  // why, a text
inline constexpr std::string_view kStateSeal = "state";                   // SnapshotSeal

// Of one moment of the publisher: whose it is, where in the stream, and how well it is known.
struct SnapshotSeal {
  std::uint64_t publisher_id = 0;   // of the life of the publisher that numbers messages so
  std::uint64_t next_sequence = 0;  // the first message behind that moment
  std::uint64_t last_event_id = 0;  // the last event before it
  std::uint64_t blocks = 0;         // held, each counted once whatever tiers hold it
  bool complete = false;            // nothing was left out, and the state is exact
  RankState state = RankState::kDegraded;
  StateReason reason = StateReason::kNone;

  friend bool operator==(const SnapshotSeal&, const SnapshotSeal&) = default;
};

// Appends a MessagePack map, with states by name.
void EncodeSnapshotSeal(const SnapshotSeal& seal, std::string& out);
// Keys in any order, unknown ones skipped; publisher and number must be there. A state that is not
// known here is degraded, such a reason none. Pure.
Result<SnapshotSeal, DecodeError> DecodeSnapshotSeal(std::span<const std::byte> bytes);

}  // namespace kvr::wire
