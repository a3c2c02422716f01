// The operations of a file as an index takes them, prepared outside of what is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/op_file.h"
#include "index/prefix_index.h"
#include "model/ids.h"
#include "model/overlap.h"
#include "model/placement_event.h"

namespace kvr::bench {

// An update that owns its blocks, as a queue between threads carries it. Its event borrows from it,
// also after it was moved.
struct OwnedUpdate {
  PlacementEvent event;
  std::vector<PlacedBlock> blocks;
  std::vector<EngineHash> removed;
};

class IndexFeed {
 public:
  // `eligible`: of every store, see PlacementEvent.
  explicit IndexFeed(const OpTrace& trace, bool eligible = false);

  [[nodiscard]] std::span<const PlacementEvent> updates() const { return updates_; }
  // Updates [begin, end).
  [[nodiscard]] std::vector<OwnedUpdate> OwnedUpdates(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::size_t queries() const { return query_ends_.size(); }
  [[nodiscard]] std::span<const BlockHash> Query(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : query_ends_[i - 1];
    return std::span(query_blocks_).subspan(begin, query_ends_[i] - begin);
  }
  [[nodiscard]] const OpCounts& counts() const { return counts_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] std::span<const std::uint64_t> update_times_ns() const { return update_times_; }
  [[nodiscard]] std::span<const std::uint64_t> query_times_ns() const { return query_times_; }

 private:
  std::uint32_t ranks_;
  OpCounts counts_;
  std::vector<PlacementEvent> updates_;
  std::vector<PlacedBlock> stored_;
  std::vector<EngineHash> removed_;
  std::vector<BlockHash> query_blocks_;
  std::vector<std::size_t> query_ends_;
  std::vector<std::uint64_t> update_times_;
  std::vector<std::uint64_t> query_times_;
};

// An index with the ranks of a feed.
class FedIndex {
 public:
  // `feed` must outlive it. A production index with default bounds, or as many ranks as needed.
  explicit FedIndex(const IndexFeed& feed);
  ~FedIndex();

  // One thread at a time.
  void Apply(const PlacementEvent& event);
  void Apply(std::size_t begin, std::size_t end);  // these updates
  void ApplyAll() { Apply(0, feed_.updates().size()); }
  void Match(std::size_t query, OverlapScores& scores) const {
    index_->Match(feed_.Query(query), {}, scores);
  }

  [[nodiscard]] std::uint64_t failed() const { return failed_; }  // updates not answered with "ok"
  [[nodiscard]] const index::PrefixIndex& index() const { return *index_; }

 private:
  const IndexFeed& feed_;
  std::unique_ptr<index::PrefixIndex> index_;
  std::vector<RankSlot> slots_;
  std::uint64_t failed_ = 0;
};

// Reads what an answer is for, rank and depth of all that hold something, and returns a sum of it.
std::uint64_t ReadAnswer(const OverlapScores& scores);

// What two correct indexes must agree on once all updates are applied.
struct Checksum {
  std::uint64_t depths = 0;  // over all queries and scored ranks
  std::uint64_t scored = 0;  // ranks with a depth of at least 1, over all queries
  std::uint64_t read = 0;    // ReadAnswer over all queries

  friend bool operator==(const Checksum&, const Checksum&) = default;
};
Checksum ChecksumOf(const IndexFeed& feed, const FedIndex& index);

}  // namespace kvr::bench
