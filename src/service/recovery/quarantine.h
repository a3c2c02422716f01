// Blocks of peers and snapshots, until the stream of their rank begins here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "model/ids.h"
#include "service/recovery/recovered_rank.h"

namespace kvr::service {

// What is kept here is in no index and in no answer, because no event stream keeps it true: it
// waits until its rank is registered, and goes after a grace period. Not thread-safe.
class Quarantine {
 public:
  struct Options {
    Millis grace{300'000};               // how long a rank's blocks wait for its registration
    std::size_t blocks_max = 64u << 20;  // of all ranks; beyond: kTooLarge, nothing is added
    std::size_t ranks_max = 256u << 10;  // likewise
  };

  explicit Quarantine(const Options& options) : options_(options) {}

  // Adds the ranks of a partition. Of two pictures of one rank the fresher stays: the one with the
  // higher watermark; one without a watermark gives way to any that comes later. What the stream
  // makes of a picture of an engine that is gone: RankStream::Adopt.
  Result<void> Add(RecoveredPartition partition, Nanos now);

  // Hands over the blocks of a rank that was registered at `registered`; nothing when there are
  // none, when they had waited for the grace period by then, or when they are of another partition
  // or block size, which makes them useless.
  std::optional<RecoveredRank> Take(Rank rank, const Partition& partition, std::uint32_t block_size,
                                    Nanos registered);

  // Drops what has waited for the grace period. How many ranks went.
  std::size_t DropExpired(Nanos now);

  [[nodiscard]] std::size_t ranks() const { return waiting_.size(); }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }

 private:
  struct Waiting {
    Partition partition;
    std::uint32_t block_size = 0;
    Nanos since{0};
    RecoveredRank rank;
  };

  // Whether a picture of the rank that comes now is used.
  [[nodiscard]] bool IsFresher(Rank rank, const RecoveredRank& recovered) const;

  const Options options_;
  std::map<Rank, Waiting> waiting_;
  std::size_t blocks_ = 0;
};

}  // namespace kvr::service
