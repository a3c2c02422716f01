#include <algorithm>
#include <unordered_map>
#include <utility>

#include "index/run_arena.h"

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

// The blocks of one rank, cut into pieces that one event each can carry. A block comes after its
// parent. Blocks behind one that the rank does not hold are left out.
class RunArena::RankDump {
 public:
  RankDump(const RunArena& arena, const RankBlocks& rank) KVR_REQUIRES(arena.mutex_)
      : arena_(arena), slot_(rank.slot), rank_id_(rank.rank) {
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
    ways_ = {};
  }

  // Events of chains that the device tier holds from the root on.
  void EmitDevice(const std::function<void(const PlacementEvent&)>& emit) const {
    for (std::size_t i = 0; i < copy_.runs.size(); ++i) {
      if (device_way_[i]) Emit(copy_.runs[i], Tier::kDevice, emit);
    }
  }

  // All others.
  void EmitRest(const std::function<void(const PlacementEvent&)>& emit) const {
    for (std::size_t i = 0; i < copy_.runs.size(); ++i) {
      for (std::size_t tier = device_way_[i] ? 1 : 0; tier < kTierCount; ++tier) {
        if ((copy_.runs[i].tiers >> tier) & 1u) Emit(copy_.runs[i], static_cast<Tier>(tier), emit);
      }
    }
  }

  RankCopy Take() && { return std::move(copy_); }

 private:
  // How far into a run the rank holds every block from the root on: in any tier, in the device
  // tier.
  struct Way {
    std::uint32_t end = 0;
    std::uint32_t device_end = 0;
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
    way = {blocks.begin, blocks.begin};
    if (parent != kRootRun && ways_[parent].end < blocks.begin) return;
    bool device = parent == kRootRun || ways_[parent].device_end >= blocks.begin;
    EngineHash before{};
    if (parent != kRootRun) before = arena_.NameOf(slot_, {parent, blocks.begin - 1});
    while (way.end < blocks.end) {
      RankCopy::Run piece;
      const std::uint32_t end = SameUntil(run, way.end, piece);
      if (piece.tiers == 0) return;
      device = device && (piece.tiers & TierBit(Tier::kDevice)) != 0;
      if (way.end > 0) piece.parent = before;
      piece.begin = copy_.blocks.size();
      for (; way.end < end; ++way.end) {
        const BlockPlace place{run, way.end};
        before = arena_.NameOf(slot_, place);
        copy_.blocks.push_back({before, arena_.runs_.LocalAt(place)});
      }
      piece.end = copy_.blocks.size();
      copy_.runs.push_back(piece);
      device_way_.push_back(device);
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

  void Emit(const RankCopy::Run& piece, Tier tier,
            const std::function<void(const PlacementEvent&)>& emit) const {
    PlacementEvent event;
    event.tier = tier;
    event.rank = rank_id_;
    event.parent = piece.parent;
    event.blocks = std::span(copy_.blocks).subspan(piece.begin, piece.end - piece.begin);
    event.eligible = piece.eligible;
    emit(event);
  }

  const RunArena& arena_;  // until constructed
  const std::uint32_t slot_;
  const Rank rank_id_;
  std::unordered_map<RunId, Way> ways_;  // until constructed
  RankCopy copy_;
  std::vector<bool> device_way_;  // a run and all its ancestors are held in the device tier
};

void RunArena::Dump(const std::function<void(const PlacementEvent&)>& emit) const {
  std::vector<RankDump> all;
  for (std::size_t slot = 0;; ++slot) {
    {
      FairLock lock(mutex_);
      if (slot >= slots_.size()) break;
      if (!slots_[slot]) continue;
      all.emplace_back(*this, *slots_[slot]);
    }
    all.back().EmitDevice(emit);
  }
  for (const RankDump& rank : all)
    rank.EmitRest(emit);
}

void RunArena::CopyRank(Rank rank, RankCopy& copy) const {
  FairLock lock(mutex_);
  const auto known = ranks_.find(rank);
  copy = known == ranks_.end() ? RankCopy{} : RankDump(*this, *slots_[Raw(known->second)]).Take();
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
