// What became of each message and event of a rank's stream, so that what one process sent can be
// compared with what the next one made of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvr::fleet {

// Of a message number that the stream is past. The names are label-safe and stable.
enum class MessageFate : std::uint8_t {
  kApplied,      // as it came
  kReplayed,     // applied when it was asked for
  kSnapshot,     // covered by a snapshot
  kOvertaken,    // made needless by a clear that came before it did
  kUndecodable,  // passed unread
  kMissed,       // could not be had
  kEarlier,      // from before the stream was followed
};
inline constexpr std::array<std::string_view, 7> kMessageFateNames = {
    "applied", "replayed", "snapshot", "overtaken", "undecodable", "missed", "earlier"};

// Of a message that arrived and moved nothing.
enum class Arrival : std::uint8_t {
  kRepeated,  // of a number that the stream is past, or a stray
  kLate,      // ... that was given up
  kFrames,    // its frames are wrong
};
inline constexpr std::array<std::string_view, 3> kArrivalNames = {"repeated", "late", "frames"};

// Of an event. Those that a translator drops are counted by its reason instead.
enum class EventFate : std::uint8_t {
  kApplied,      // changed the index, or would have
  kHeld,         // known and right, but nothing for the index: another copy is left, for example
  kForeignRank,  // of a rank that is not registered
  kSnapshot,     // covered by a snapshot
  kSkipped,      // told by messages that were not applied
};
inline constexpr std::array<std::string_view, 5> kEventFateNames = {
    "applied", "held", "foreign_rank", "snapshot", "skipped"};

// Of what was handed to the index.
enum class Placement : std::uint8_t {
  kEvent,
  kSnapshot,
  kClear,  // the follower's own, after a restart or a loss
};
inline constexpr std::array<std::string_view, 3> kPlacementNames = {"event", "snapshot", "clear"};

// All messages less those taken back are the number of the next message. Events of RouterEvents
// less those taken back are the number of the last event; of other streams they are those of the
// messages applied and replayed, as often as these were.
//
// One writer, read by any thread; relaxed, so that a reader may see moments that differ.
class RankLedger {
 public:
  static constexpr std::size_t kReasonsMax = 32;

  void Count(MessageFate fate, std::uint64_t by = 1) { Add(messages_, fate, by); }
  void Count(Arrival arrival, std::uint64_t by = 1) { Add(arrivals_, arrival, by); }
  void Count(EventFate fate, std::uint64_t by = 1) { Add(events_, fate, by); }
  void Count(Placement placement, std::uint64_t by = 1) { Add(placements_, placement, by); }
  // `reason` is the translator's number of it, below kReasonsMax.
  void CountFiltered(std::size_t reason) { Add(filtered_, reason, 1); }
  // The stream goes back by so many: history is told again, or that of a new life begins.
  void TakeBackMessages(std::uint64_t by) { Add(taken_back_, 0, by); }
  void TakeBackEvents(std::uint64_t by) { Add(taken_back_, 1, by); }

  [[nodiscard]] std::uint64_t count(MessageFate fate) const { return Get(messages_, fate); }
  [[nodiscard]] std::uint64_t count(Arrival arrival) const { return Get(arrivals_, arrival); }
  [[nodiscard]] std::uint64_t count(EventFate fate) const { return Get(events_, fate); }
  [[nodiscard]] std::uint64_t count(Placement placement) const {
    return Get(placements_, placement);
  }
  [[nodiscard]] std::uint64_t filtered(std::size_t reason) const { return Get(filtered_, reason); }
  [[nodiscard]] std::uint64_t messages_taken_back() const { return Get(taken_back_, 0); }
  [[nodiscard]] std::uint64_t events_taken_back() const { return Get(taken_back_, 1); }

  // All of a kind.
  [[nodiscard]] std::uint64_t messages() const { return Sum(messages_); }
  [[nodiscard]] std::uint64_t events() const { return Sum(events_) + Sum(filtered_); }

 private:
  template <std::size_t N>
  using Cells = std::array<std::atomic<std::uint64_t>, N>;

  template <std::size_t N, typename Which>
  static void Add(Cells<N>& cells, Which which, std::uint64_t by) {
    if (by != 0) cells[static_cast<std::size_t>(which)].fetch_add(by, std::memory_order_relaxed);
  }
  template <std::size_t N, typename Which>
  static std::uint64_t Get(const Cells<N>& cells, Which which) {
    return cells[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
  }
  template <std::size_t N>
  static std::uint64_t Sum(const Cells<N>& cells) {
    std::uint64_t sum = 0;
    for (const auto& cell : cells)
      sum += cell.load(std::memory_order_relaxed);
    return sum;
  }

  Cells<kMessageFateNames.size()> messages_{};
  Cells<kArrivalNames.size()> arrivals_{};
  Cells<kEventFateNames.size()> events_{};
  Cells<kPlacementNames.size()> placements_{};
  Cells<kReasonsMax> filtered_{};
  Cells<2> taken_back_{};
};

}  // namespace kvr::fleet
