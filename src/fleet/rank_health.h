// How well the picture of one rank's cache can be trusted, and what happened to its event stream.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "fleet/rank_ledger.h"
#include "fleet/rejected_log.h"
#include "model/digest.h"
#include "model/rank_state.h"
#include "model/stream_position.h"

namespace kvr::fleet {

// What is counted per rank. The names are label-safe and stable.
enum class RankCount : std::uint8_t {
  kMessages,          // messages applied, live and replayed
  kEvents,            // events applied
  kGaps,              // jumps of the sequence
  kMissedMessages,    // messages that stayed lost after every attempt to fetch them
  kRepeated,          // messages dropped because they were applied before
  kRestarts,          // engine restarts detected
  kReplays,           // replays started
  kReplaysCompleted,  // ... that reached their end without a hole
  kReplaysFailed,     // ... that broke off, were silent, left a hole, or were another engine's
  kDecodeFailures,    // payloads that are no batch
  kFramesRejected,    // messages with wrong framing
  kClears,            // times all blocks of the rank were dropped
  kDisconnects,       // times the link was lost
};
inline constexpr std::array<std::string_view, 13> kRankCountNames = {"messages",
                                                                     "events",
                                                                     "gaps",
                                                                     "missed_messages",
                                                                     "repeated",
                                                                     "restarts",
                                                                     "replays",
                                                                     "replays_completed",
                                                                     "replays_failed",
                                                                     "decode_failures",
                                                                     "frames_rejected",
                                                                     "clears",
                                                                     "disconnects"};

// Written by the one thread that ingests the rank's events, read by any thread. The state and its
// reason change together; counts and times are relaxed and may be of slightly different moments.
class RankHealth {
 public:
  static constexpr std::size_t kDetailBytesMax = 256;

  struct Status {
    RankState state = RankState::kBlind;
    StateReason reason = StateReason::kNoEventSource;
  };

  // The pair, as one atomic read: for the routing path.
  [[nodiscard]] Status status() const {
    const std::uint16_t packed = status_.load(std::memory_order_relaxed);
    return {static_cast<RankState>(packed >> 8), static_cast<StateReason>(packed & 0xFF)};
  }
  // For people: what is behind the reason, and what the transport says of it. Takes a lock.
  [[nodiscard]] std::string detail() const KVR_EXCLUDES(mutex_);
  // What the transport says: why nothing comes, or what was lost; often nothing. Takes a lock.
  [[nodiscard]] std::string feed_note() const KVR_EXCLUDES(mutex_);

  // The last sequence number applied, none before the first.
  [[nodiscard]] std::optional<std::uint64_t> watermark() const {
    if (!has_watermark_.load(std::memory_order_relaxed)) return std::nullopt;
    return watermark_.load(std::memory_order_relaxed);
  }
  // Where one who takes the rank's blocks over goes on; never ahead of them. None: something before
  // is missing. Takes a lock.
  [[nodiscard]] std::optional<StreamPosition> position() const KVR_EXCLUDES(mutex_);
  [[nodiscard]] bool connected() const { return connected_.load(std::memory_order_relaxed); }
  // Clock::Now() of the last change of the state, and of the last message applied; zero before the
  // first.
  [[nodiscard]] Nanos changed_at() const {
    return Nanos{changed_at_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] Nanos last_message_at() const {
    return Nanos{last_message_at_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] std::uint64_t count(RankCount what) const {
    return counts_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);
  }

  // How digests of the rank's stream are read.
  [[nodiscard]] DigestReading digests() const {
    const std::uint16_t packed = digests_.load(std::memory_order_relaxed);
    return {static_cast<DigestEnd>(packed >> 8), static_cast<DigestEvidence>(packed & 0xFF)};
  }

  // What became of each message and event.
  [[nodiscard]] RankLedger& ledger() { return ledger_; }
  [[nodiscard]] const RankLedger& ledger() const { return ledger_; }

  // Heap of the tables that count the copies of the stream's blocks. 0 for ranks that share the
  // stream of another.
  [[nodiscard]] std::uint64_t table_bytes() const {
    return table_bytes_.load(std::memory_order_relaxed);
  }

  // What the rank's engine sent and no index took.
  [[nodiscard]] RejectedLog& rejected() { return rejected_; }
  [[nodiscard]] const RejectedLog& rejected() const { return rejected_; }

  // For the writer. `detail` is cut to kDetailBytesMax. Setting what is already set changes
  // nothing, not even changed_at.
  void SetStatus(Status status, std::string_view detail, Nanos now) KVR_EXCLUDES(mutex_);
  // Cut likewise.
  void SetFeedNote(std::string_view note) KVR_EXCLUDES(mutex_);
  void SetWatermark(std::optional<std::uint64_t> watermark);
  void SetPosition(const std::optional<StreamPosition>& position) KVR_EXCLUDES(mutex_);
  void SetConnected(bool connected) { connected_.store(connected, std::memory_order_relaxed); }
  void SetDigests(DigestReading reading) {
    digests_.store(static_cast<std::uint16_t>((static_cast<unsigned>(reading.end) << 8) |
                                              static_cast<unsigned>(reading.evidence)),
                   std::memory_order_relaxed);
  }
  void SetTableBytes(std::uint64_t bytes) { table_bytes_.store(bytes, std::memory_order_relaxed); }
  void NoteMessage(Nanos now) { last_message_at_.store(now.count(), std::memory_order_relaxed); }
  void Count(RankCount what, std::uint64_t by = 1) {
    counts_[static_cast<std::size_t>(what)].fetch_add(by, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint16_t Pack(Status status) {
    return static_cast<std::uint16_t>((static_cast<unsigned>(status.state) << 8) |
                                      static_cast<unsigned>(status.reason));
  }

  std::atomic<std::uint16_t> status_{Pack(Status{})};
  std::atomic<std::uint16_t> digests_{0};
  std::atomic<bool> has_watermark_{false};
  std::atomic<bool> connected_{false};
  std::atomic<std::uint64_t> watermark_{0};
  std::atomic<std::uint64_t> table_bytes_{0};
  std::atomic<std::int64_t> changed_at_{0};
  std::atomic<std::int64_t> last_message_at_{0};
  std::array<std::atomic<std::uint64_t>, kRankCountNames.size()> counts_{};
  mutable Mutex mutex_;
  std::string detail_ KVR_GUARDED_BY(mutex_) = "no `events` endpoint is given for it";
  std::string feed_note_ KVR_GUARDED_BY(mutex_);
  std::optional<StreamPosition> position_ KVR_GUARDED_BY(mutex_);
  RankLedger ledger_;
  RejectedLog rejected_;
};

}  // namespace kvr::fleet
