// A router with a catalog and indexes of its own, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "fleet/catalog.h"
#include "hashing/block_hash.h"
#include "index/index_set.h"
#include "metrics/registry.h"
#include "model/ids.h"
#include "model/rank_state.h"
#include "routing/router.h"

namespace kvr::routing {

class RouterFixture {
 public:
  static constexpr std::uint32_t kBlockSize = 16;

  explicit RouterFixture(const RouterOptions& options = {})
      : router(catalog, indexes, clock, registry, options) {}

  static Partition ThePartition() { return {"m", "default"}; }

  // Ranks 0 .. ranks-1, all in `state`.
  void AddWorker(std::uint64_t id, std::uint32_t ranks = 1, RankState state = RankState::kExact,
                 std::string url = "http://engine",
                 std::optional<std::uint64_t> kv_blocks = std::nullopt) {
    fleet::WorkerSpec spec;
    spec.id = WorkerId{id};
    spec.partition = ThePartition();
    spec.url = url.empty() ? url : url + std::to_string(id);
    spec.block_size = kBlockSize;
    spec.total_kv_blocks = kv_blocks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      spec.dp_ranks.push_back(rank);
    KVR_CHECK(catalog.Add(std::move(spec)));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      SetState({WorkerId{id}, rank}, state);
      KVR_CHECK(Index().AddRank({WorkerId{id}, rank}));
    }
  }
  void RemoveWorker(std::uint64_t id) {
    for (const fleet::RankEntry& entry : catalog.snapshot()->Find(WorkerId{id})->ranks)
      Index().RemoveRank(entry.rank);
    KVR_CHECK(catalog.Remove(WorkerId{id}));
  }
  void SetState(Rank rank, RankState state, StateReason reason = StateReason::kNone) {
    catalog.snapshot()->Find(rank)->health->SetStatus({state, reason}, "", clock.Now());
  }

  // `rank` announces the blocks [first, last) of `tokens`, whose blocks before `first` it holds.
  void Store(Rank rank, const std::vector<TokenId>& tokens, std::size_t first, std::size_t last,
             Tier tier = Tier::kDevice) {
    std::vector<BlockHash> hashes;
    hashing::HashBlocks(tokens, {.block_size = kBlockSize}, hashes);
    std::vector<SequenceHash> names;
    hashing::ChainHashes(hashes, names);
    std::vector<PlacedBlock> blocks;
    for (std::size_t i = first; i < last; ++i)
      blocks.push_back({EngineHash{Raw(names[i])}, hashes[i]});
    PlacementEvent event;
    event.tier = tier;
    event.rank = rank;
    event.blocks = blocks;
    if (first > 0) event.parent = EngineHash{Raw(names[first - 1])};
    KVR_CHECK(Index().Apply(*Index().AddRank(rank), event).status == index::ApplyStatus::kOk);
  }
  void Store(Rank rank, const std::vector<TokenId>& tokens) {
    Store(rank, tokens, 0, tokens.size() / kBlockSize);
  }

  index::PrefixIndex& Index() { return *(*indexes.GetOrCreate(ThePartition(), kBlockSize))->index; }

  ManualClock clock;
  fleet::Catalog catalog;
  index::IndexSet indexes{index::IndexOptions{}};
  metrics::Registry registry;
  Router router;
};

// `blocks` blocks and `tail` tokens; prompts of different seeds share no block.
inline std::vector<TokenId> MakePrompt(std::uint32_t seed, std::size_t blocks,
                                       std::size_t tail = 1) {
  std::vector<TokenId> tokens(blocks * RouterFixture::kBlockSize + tail);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = seed * 1'000'003u + static_cast<TokenId>(i);
  return tokens;
}

inline RouteRequest RequestFor(const std::vector<TokenId>& tokens) {
  RouteRequest request;
  request.model_name = "m";
  request.tokens = tokens;
  return request;
}

}  // namespace kvr::routing
