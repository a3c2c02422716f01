#include "index/index_workload.h"

#include <list>
#include <unordered_map>

#include "base/rng.h"

namespace kvr::index {
namespace {

constexpr std::uint64_t kBlockFactor = 0xBF58476D1CE4E5B9u;
constexpr std::uint64_t kNameFactor = 0x9E3779B97F4A7C15u;

std::uint64_t Chained(std::uint64_t before, std::uint64_t local) {
  std::uint64_t x = (before + kNameFactor) ^ (local * kBlockFactor);
  x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
  return x ^ (x >> 32);
}

// One engine's cache, least recently used first.
class Cache {
 public:
  // How many leading blocks are there; they become the most recently used, the head last.
  std::size_t Use(std::span<const PlacedBlock> chain) {
    std::size_t hit = 0;
    while (hit < chain.size() && where_.contains(chain[hit].engine))
      ++hit;
    for (std::size_t i = hit; i-- > 0;)
      order_.splice(order_.end(), order_, where_[chain[i].engine]);
    return hit;
  }
  void Add(std::span<const PlacedBlock> chain, std::size_t from) {
    auto at = order_.end();
    for (std::size_t i = from; i < chain.size(); ++i)
      at = where_[chain[i].engine] = order_.insert(at, chain[i]);
    for (std::size_t i = from; i-- > 0;)
      order_.splice(order_.end(), order_, where_[chain[i].engine]);
  }
  [[nodiscard]] std::size_t size() const { return where_.size(); }
  PlacedBlock Evict() {
    const PlacedBlock oldest = order_.front();
    order_.pop_front();
    where_.erase(oldest.engine);
    return oldest;
  }

 private:
  std::list<PlacedBlock> order_;
  std::unordered_map<EngineHash, std::list<PlacedBlock>::iterator> where_;
};

}  // namespace

Workload::Workload(const WorkloadOptions& options) {
  Rng rng(options.seed);
  std::vector<std::vector<PlacedBlock>> chains(options.sessions);
  const auto extend = [](std::vector<PlacedBlock>& chain, std::uint64_t local) {
    const std::uint64_t before = chain.empty() ? 0 : Raw(chain.back().engine);
    chain.push_back({EngineHash{Chained(before, local)}, BlockHash{local * kBlockFactor}});
  };
  std::uint64_t next_local = 1'000'000;
  std::vector<Cache> caches(options.ranks);
  for (std::uint32_t request = 0; request < options.requests; ++request) {
    const std::uint64_t session = rng.Below(options.sessions);
    std::vector<PlacedBlock>& chain = chains[session];
    if (chain.size() > 256) chain.clear();
    if (chain.empty()) {
      const std::uint64_t prompt = session % options.prompts;
      for (std::uint64_t i = 0; i < 16 + 2 * prompt; ++i)
        extend(chain, prompt * 1'000 + i + 1);
    }
    for (std::uint64_t blocks = 4 + rng.Below(28); blocks > 0; --blocks)
      extend(chain, next_local++);
    for (const PlacedBlock& block : chain)
      query_blocks_.push_back(block.local);
    query_ends_.push_back(query_blocks_.size());

    const auto rank = static_cast<std::uint32_t>(session % options.ranks);
    Cache& cache = caches[rank];
    const std::size_t hit = cache.Use(chain);
    Update removal{.rank = rank, .removed = true, .begin = blocks_.size()};
    while (cache.size() + chain.size() - hit > options.capacity_blocks)
      blocks_.push_back(cache.Evict());
    removal.end = blocks_.size();
    if (removal.end > removal.begin) updates_.push_back(removal);
    if (hit == chain.size()) continue;
    cache.Add(chain, hit);
    Update store{.rank = rank, .from_root = hit == 0, .begin = blocks_.size()};
    if (hit > 0) store.parent = chain[hit - 1].engine;
    blocks_.insert(blocks_.end(), chain.begin() + static_cast<std::ptrdiff_t>(hit), chain.end());
    store.end = blocks_.size();
    updates_.push_back(store);
  }
  names_.reserve(blocks_.size());
  for (const PlacedBlock& block : blocks_)
    names_.push_back(block.engine);
}

void Workload::Apply(const Update& update, std::span<const RankSlot> slots,
                     PrefixIndex& index) const {
  PlacementEvent event;
  if (update.removed) {
    event.kind = PlacementKind::kRemoved;
    event.removed = std::span(names_).subspan(update.begin, update.end - update.begin);
  } else {
    if (!update.from_root) event.parent = update.parent;
    event.blocks = std::span(blocks_).subspan(update.begin, update.end - update.begin);
  }
  index.Apply(slots[update.rank], event);
}

}  // namespace kvr::index
