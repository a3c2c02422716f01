// What engines announce and clients ask, for benchmarks: made up, the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "index/prefix_index.h"

namespace kvr::index {

struct WorkloadOptions {
  std::uint32_t ranks = 128;
  std::uint32_t capacity_blocks = 4'096;  // of one engine, at least 300: the longest conversation
  std::uint32_t requests = 20'000;
  std::uint32_t sessions = 2'000;  // conversations; each goes to the rank of its number
  std::uint32_t prompts = 16;      // system prompts that sessions share
  std::uint64_t seed = 1;
};

// Requests of growing conversations against engines that keep the blocks of the last requests and
// drop the least recently used, tails first.
class Workload {
 public:
  struct Update {
    std::uint32_t rank = 0;
    bool removed = false;
    bool from_root = false;
    EngineHash parent{};
    std::size_t begin = 0;  // in `blocks`
    std::size_t end = 0;
  };

  explicit Workload(const WorkloadOptions& options);

  [[nodiscard]] std::span<const Update> updates() const { return updates_; }
  [[nodiscard]] std::size_t updated_blocks() const { return blocks_.size(); }
  [[nodiscard]] std::size_t queries() const { return query_ends_.size(); }
  [[nodiscard]] std::span<const BlockHash> Query(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : query_ends_[i - 1];
    return std::span(query_blocks_).subspan(begin, query_ends_[i] - begin);
  }

  // Ranks are 0 to WorkloadOptions::ranks - 1; `slots` are theirs.
  void Apply(const Update& update, std::span<const RankSlot> slots, PrefixIndex& index) const;

 private:
  std::vector<Update> updates_;
  std::vector<PlacedBlock> blocks_;
  std::vector<EngineHash> names_;  // of blocks_
  std::vector<BlockHash> query_blocks_;
  std::vector<std::size_t> query_ends_;
};

}  // namespace kvr::index
