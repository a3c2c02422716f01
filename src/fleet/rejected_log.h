// What a rank's engine sent and no index took: the last of it, and how often for each reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace kvr::fleet {

// One event, or one whole message, that was rejected. Holds no tokens and no cache salts, unless
// they are among `bytes`, which is empty unless an operator asked for bytes.
struct RejectedEvent {
  static constexpr std::size_t kDetailBytesMax = 128;
  static constexpr std::size_t kBytesMax = 256;

  std::string_view reason;                // a stable name in static storage
  std::string detail;                     // the values behind the reason; cut to kDetailBytesMax
  std::optional<std::uint64_t> sequence;  // of the message; none when it had no number
  std::optional<std::uint32_t> index;     // place in the batch; none: the whole message
  std::optional<std::size_t> offset;      // byte of the payload at which decoding stopped
  std::size_t payload_bytes = 0;          // of the whole message
  Nanos received{};                       // since the Unix epoch
  std::string bytes;                      // the first ones, as sent; cut to kBytesMax
};

// Thread-safe. Bounded: kEventsMax events of bounded size, and a count for each reason.
//
// Holds the newest events, but of reasons that compete for room the most frequent one gives way, so
// that a flood of one kind does not hide the one event that matters.
class RejectedLog {
 public:
  static constexpr std::size_t kEventsMax = 32;
  static constexpr std::size_t kReasonsMax = 64;  // beyond: kept, but not counted by reason

  void Keep(RejectedEvent event) KVR_EXCLUDES(mutex_);
  // Apart from Keep, because of a large batch only the last events are worth keeping.
  void Count(std::string_view reason, std::uint64_t by = 1) KVR_EXCLUDES(mutex_);

  struct Contents {
    std::uint64_t total = 0;
    std::vector<std::pair<std::string_view, std::uint64_t>> by_reason;  // in order of appearance
    std::vector<RejectedEvent> last;                                    // oldest first
  };
  [[nodiscard]] Contents contents() const KVR_EXCLUDES(mutex_);

 private:
  void MakeRoom() KVR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  Contents contents_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::fleet
