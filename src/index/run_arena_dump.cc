#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "index/run_arena.h"
#include "index/shared_names.h"

namespace kvr::index {
namespace {

// Whether the slot has the block at `depth` in this plane, and how far that is so, at most to
// `end`.
std::uint32_t SameUntil(const PlaneView& view, std::uint32_t slot, std::uint32_t depth,
                        Stretch blocks, std::uint32_t end, bool& has) {
  const Stretch held = view.Around(slot, depth, blocks);
  has = held.size() > 0;
  if (has) return std::min(end, held.end);
  for (const Partial& part : view.PartsOf(slot)) {
    if (part.held.begin > depth) end = std::min(end, part.held.begin);
  }
  return end;
}

}  // namespace

// The blocks of one rank, cut into pieces that are alike. A block comes after its
// parent. Blocks behind one that the rank does not hold are left out.
class RunArena::RankDump {
 public:
  RankDump(const RunArena& arena, const RankBlocks& rank) KVR_REQUIRES(arena.mutex_)
      : arena_(arena), slot_(rank.slot) {
    std::vector<RunId> chain;
    if (rank.sweeping) return;
    ways_.reserve(rank.runs.size());
    for (const RunId run : rank.runs.cells()) {
      if (run == kRootRun || !InAnyTier(run)) continue;
      for (RunId at = run; at != kRootRun && !ways_.contains(at); at = arena.runs_.ParentOf(at))
        chain.push_back(at);
      for (; !chain.empty(); chain.pop_back())
        AddRun(chain.back());
    }
    if (rank.names.any_shared()) FindShared(rank.names);
    ways_ = {};
  }

  RankCopy Take() && {
    if (shared_.empty()) return std::move(copy_);
    for (RankCopy::Run& run : copy_.runs)
      run.device_way = false;  // their order counts
    return TellSharedNames(copy_, parents_, shared_);
  }

 private:
  // How far into a run the rank holds every block from the root on: in any tier, in the device
  // tier.
  struct Way {
    std::uint32_t end = 0;
    std::uint32_t device_end = 0;
    std::size_t first = 0;  // the run's first block, in the copy
  };

  bool InAnyTier(RunId run) const KVR_REQUIRES(arena_.mutex_) {
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      if (arena_.runs_.View(run, tier).HasAny(slot_)) return true;
    }
    return false;
  }

  // The parent was added before.
  void AddRun(RunId run) KVR_REQUIRES(arena_.mutex_) {
    const Stretch blocks = arena_.runs_.BlocksOf(run);
    const RunId parent = arena_.runs_.ParentOf(run);
    Way& way = ways_[run];
    way = {blocks.begin, blocks.begin, copy_.blocks.size()};
    if (parent != kRootRun && ways_[parent].end < blocks.begin) return;
    bool device = parent == kRootRun || ways_[parent].device_end >= blocks.begin;
    std::size_t before = kNoBlock;
    if (parent != kRootRun) {
      const std::uint32_t parent_begin = arena_.runs_.BlocksOf(parent).begin;
      before = ways_[parent].first + (blocks.begin - 1 - parent_begin);
    }
    while (way.end < blocks.end) {
      RankCopy::Run piece;
      const std::uint32_t end = SameUntil(run, way.end, piece);
      if (piece.tiers == 0) return;
      device = device && (piece.tiers & TierBit(Tier::kDevice)) != 0;
      if (before != kNoBlock) piece.parent = copy_.blocks[before].engine;
      piece.begin = copy_.blocks.size();
      for (; way.end < end; ++way.end) {
        const BlockPlace place{run, way.end};
        copy_.blocks.push_back({arena_.NameOf(slot_, place), arena_.runs_.LocalAt(place)});
      }
      piece.end = copy_.blocks.size();
      piece.device_way = device;
      copy_.runs.push_back(piece);
      parents_.push_back(before);
      before = piece.end - 1;
      if (device) way.device_end = way.end;
    }
  }

  // What the rank has of the block at `depth`, and how far the same is true.
  std::uint32_t SameUntil(RunId run, std::uint32_t depth, RankCopy::Run& piece) const
      KVR_REQUIRES(arena_.mutex_) {
    const Stretch blocks = arena_.runs_.BlocksOf(run);
    std::uint32_t end = blocks.end;
    for (std::size_t plane = 0; plane <= kEligiblePlane; ++plane) {
      bool has = false;
      end = index::SameUntil(arena_.runs_.View(run, plane), slot_, depth, blocks, end, has);
      if (!has) continue;
      if (plane == kEligiblePlane) {
        piece.eligible = true;
      } else {
        piece.tiers |= 1u << plane;
      }
    }
    return end;
  }

  // The names that several blocks of the copy have.
  void FindShared(const PrivateNames& names) KVR_REQUIRES(arena_.mutex_) {
    std::unordered_set<std::uint64_t, SeededHash> seen(0, SeededHash{arena_.options_.hash_seed});
    for (const PlacedBlock& block : copy_.blocks) {
      const PrivateNameId newest = names.First(block.engine);
      if (newest == 0 || names.Next(newest) == 0 || !seen.insert(Raw(block.engine)).second)
        continue;
      SharedName shared;
      for (PrivateNameId id = newest; id != 0; id = names.Next(id)) {
        const auto way = ways_.find(names[id].run);
        if (way == ways_.end() || names[id].depth >= way->second.end) continue;
        const std::uint32_t begin = arena_.runs_.BlocksOf(names[id].run).begin;
        shared.push_back(way->second.first + (names[id].depth - begin));
      }
      std::reverse(shared.begin(), shared.end());
      if (shared.size() > 1) shared_.push_back(std::move(shared));
    }
  }

  const RunArena& arena_;  // until constructed
  const std::uint32_t slot_;
  std::unordered_map<RunId, Way> ways_;  // until constructed
  RankCopy copy_;
  std::vector<std::size_t> parents_;  // of the copy's runs, see TellSharedNames
  std::vector<SharedName> shared_;
};

std::vector<Rank> RunArena::Ranks() const {
  FairLock lock(mutex_);
  std::vector<Rank> ranks;
  for (const auto& slot : slots_) {
    if (slot && !leaving_.contains(slot->rank)) ranks.push_back(slot->rank);
  }
  return ranks;
}

void RunArena::CopyRank(Rank rank, RankCopy& copy) const {
  std::optional<RankDump> dump;
  {
    FairLock lock(mutex_);
    const auto known = ranks_.find(rank);
    if (known != ranks_.end()) dump.emplace(*this, *slots_[Raw(known->second)]);
  }
  copy = dump ? std::move(*dump).Take() : RankCopy{};
}

void RunArena::CopyKnown(Rank rank, RankCopy& copy) const {
  copy = {};
  FairLock lock(mutex_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  const RankBlocks& blocks = *slots_[Raw(found->second)];
  if (blocks.sweeping) return;
  for (const RunId run : blocks.runs.cells()) {
    if (run != kRootRun) AppendKnown(blocks.slot, run, copy);
  }
  blocks.pending.ForEach([&](const PendingBlock& waiting) {
    if (!waiting.local) return;
    const std::size_t at = copy.blocks.size();
    copy.blocks.push_back({waiting.name, *waiting.local});
    copy.runs.push_back({waiting.parent, at, at + 1, waiting.tiers, waiting.eligible});
  });
}

void RunArena::AppendKnown(std::uint32_t slot, RunId run, RankCopy& copy) const {
  const Stretch blocks = runs_.BlocksOf(run);
  std::optional<EngineHash> before;
  bool placed = blocks.begin == 0;
  if (!placed) {
    const BlockPlace parent{runs_.ParentOf(run), blocks.begin - 1};
    placed = Knows(slot, parent);
    if (placed) before = NameOf(slot, parent);
  }
  for (std::uint32_t depth = blocks.begin; depth < blocks.end;) {
    RankCopy::Run piece;
    bool known = false;
    std::uint32_t end = blocks.end;
    for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
      bool has = false;
      end = SameUntil(runs_.View(run, plane), slot, depth, blocks, end, has);
      if (!has) continue;
      known = known || plane != kEligiblePlane;
      if (plane == kEligiblePlane) piece.eligible = true;
      if (plane < kTierCount) piece.tiers |= 1u << plane;
    }
    piece.parent = before;
    piece.begin = copy.blocks.size();
    for (; known && depth < end; ++depth) {
      const BlockPlace place{run, depth};
      before = NameOf(slot, place);
      if (placed) {
        copy.blocks.push_back({*before, runs_.LocalAt(place)});
      } else {
        piece.parent = before;
      }
      placed = true;
    }
    piece.end = copy.blocks.size();
    if (piece.end > piece.begin) copy.runs.push_back(piece);
    if (!known) {
      depth = end;
      placed = false;
    }
  }
}

}  // namespace kvr::index
