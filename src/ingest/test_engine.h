// An engine as its events show it, for tests: a pool of blocks that announces what it does, and
// keeps the truth to compare an index with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "index/prefix_index.h"
#include "model/ids.h"
#include "model/tier.h"
#include "wire/event_batch.h"
#include "wire/event_encoder.h"

namespace kvr::ingest {

inline constexpr std::uint32_t kTestBlockSize = 4;

using HeldBlock = std::tuple<Rank, Tier, std::uint64_t>;  // the last is the engine hash

// What an index says a set of ranks holds, blocks waiting for their parent left out.
inline std::set<HeldBlock> HeldIn(const index::PrefixIndex& index) {
  std::set<HeldBlock> held;
  index.Dump([&held](const PlacementEvent& event) {
    for (const PlacedBlock& block : event.blocks)
      held.emplace(event.rank, event.tier, Raw(block.engine));
  });
  return held;
}

class TestEngine {
 public:
  // `incarnation` makes the content and the bytes of two lives of one engine differ.
  explicit TestEngine(Rank rank, std::uint64_t incarnation = 0)
      : rank_(rank), base_(incarnation << 40) {}

  // Appends a new block to the chain that ends in `parent` (0: a new chain) and returns its hash.
  std::uint64_t Store(std::uint64_t parent, Tier tier = Tier::kDevice) {
    const std::uint64_t hash = base_ + next_hash_++;
    parents_[hash] = parent;
    StoreAgain(hash, tier);
    return hash;
  }
  // Announces a known block in a tier.
  void StoreAgain(std::uint64_t hash, Tier tier) {
    const EngineHash names[] = {EngineHash{hash}};
    const std::uint64_t above = parents_.at(hash);
    std::vector<TokenId> tokens;
    for (std::uint32_t i = 0; i < kTestBlockSize; ++i)
      tokens.push_back(static_cast<TokenId>((hash * kTestBlockSize + i) & 0x7FFFFFFF));
    auto& event =
        batch_.AddStored(names, above == 0 ? std::nullopt : std::optional(EngineHash{above}),
                         tokens, kTestBlockSize);
    event.medium = Medium(tier);
    held_.emplace(rank_, tier, hash);
  }
  void Remove(std::uint64_t hash, Tier tier = Tier::kDevice) {
    const EngineHash names[] = {EngineHash{hash}};
    batch_.AddRemoved(names).medium = Medium(tier);
    held_.erase({rank_, tier, hash});
  }
  void ClearAll() {
    batch_.AddCleared();
    held_.clear();
  }

  // The payload of all events since the last call.
  std::span<const std::byte> Flush(std::optional<std::uint32_t> dp_rank = std::nullopt,
                                   std::string_view dialect = "vllm-0.24") {
    // As the engine's clock: no two batches are equal.
    batch_.ts = static_cast<double>(base_) + static_cast<double>(++flushes_);
    batch_.dp_rank = dp_rank;
    payload_.clear();
    wire::EncodeEventBatch(batch_, *wire::DialectByName(dialect), payload_);
    batch_.Clear();
    return std::as_bytes(std::span(payload_));
  }

  [[nodiscard]] const std::set<HeldBlock>& held() const { return held_; }
  [[nodiscard]] std::uint64_t parent(std::uint64_t hash) const { return parents_.at(hash); }

 private:
  static std::string_view Medium(Tier tier) { return tier == Tier::kDevice ? "GPU" : "CPU"; }

  Rank rank_;
  std::uint64_t base_;
  std::uint64_t next_hash_ = 1;
  std::uint64_t flushes_ = 0;
  std::map<std::uint64_t, std::uint64_t> parents_;
  std::set<HeldBlock> held_;
  wire::EventBatch batch_;
  std::string payload_;
};

}  // namespace kvr::ingest
