// The last events of one rank, encoded, for whoever missed some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvr::publish {

// How a question for events is answered.
enum class RangeAnswer : std::uint8_t {
  kEvents,        // the events from the start through the newest
  kSnapshot,      // they do not reach back so far, or no start was given: take a snapshot
  kTooNew,        // the start lies behind the newest event
  kInvalidRange,  // the end lies before the start
};

// What an event takes with it of what came before it.
enum class Clears : std::uint8_t {
  kNothing,  // a store or a removal
  kDomain,   // one domain's blocks
  kAll,      // all: nothing that came before it matters
};

// A ring by count and by bytes. An event is kept with the bytes it was published in, so with every
// flag it had. Not thread-safe. Allocates nothing once warm: the bytes are one buffer, which grows
// by doubling up to its limit.
class EventRing {
 public:
  struct Options {
    std::size_t events_max = 1'024;
    // An event of more is not kept, nor is anything before it: the ring then begins behind it.
    std::size_t bytes_max = 16u << 20;

    [[nodiscard]] Result<void> Validate() const;
  };

  struct Range {
    RangeAnswer answer = RangeAnswer::kSnapshot;
    std::uint64_t first = 0;  // kEvents: the id of the first event; see Query
    std::size_t count = 0;    // kEvents
    std::uint64_t last = 0;   // the newest id, 0 before the first event
  };

  explicit EventRing(const Options& options);

  // Keeps the event; the oldest give way. `id` is above all before.
  void Append(std::uint64_t id, std::string_view bytes, Clears clears);

  // Events from `start` on; none asks for a snapshot. `end` says how far the asker knows of and
  // bounds nothing. The events begin with the last one that clears all, if there is one from
  // `start` on.
  [[nodiscard]] Range Query(std::optional<std::uint64_t> start,
                            std::optional<std::uint64_t> end) const;

  // Appends the bytes of the `range.count` events from `range.first` on, as Query said.
  void Copy(const Range& range, std::string& out) const;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t first() const;                  // the oldest kept id; 0 when empty
  [[nodiscard]] std::uint64_t last() const { return last_; }  // the newest id ever, 0 when none
  // Times an id was not the one after the last. Kept events may then have holes.
  [[nodiscard]] std::uint64_t holes() const { return holes_; }
  // Whether every event behind `cursor` is kept and only stores or removes.
  [[nodiscard]] bool IsPlainTail(std::uint64_t cursor) const;

 private:
  struct Record {
    std::uint64_t id = 0;
    std::size_t offset = 0;
    std::size_t size = 0;
    Clears clears = Clears::kNothing;
  };

  [[nodiscard]] const Record& At(std::size_t i) const;  // the i-th oldest
  [[nodiscard]] std::size_t PlaceOf(std::uint64_t id) const;
  // Where `size` bytes fit behind the newest record; none when older ones are in the way.
  [[nodiscard]] std::optional<std::size_t> Room(std::size_t size) const;
  // Doubles the buffer, as far as it may. False when it may not.
  bool Grow(std::size_t size);
  void DropOldest();

  const Options options_;
  std::vector<Record> records_;
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  std::string buffer_;  // records lie in it in order, wrapping round whole
  std::uint64_t last_ = 0;
  std::uint64_t holes_ = 0;
};

}  // namespace kvr::publish
