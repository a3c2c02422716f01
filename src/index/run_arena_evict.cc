#include <algorithm>
#include <utility>

#include "index/run_arena.h"

namespace kvr::index {
namespace {

constexpr std::uint32_t kLeafMax = 256;  // blocks that go at once
constexpr std::size_t kLookMax = 4'096;  // runs of a rank looked at for victims at once
constexpr std::size_t kOneIn = 8;        // of the leaves found, the oldest of which are victims
constexpr std::size_t kRoomMax = 64 * 1'024;     // bytes made free beyond what is needed
constexpr std::size_t kPendingShare = 8;         // of the limit, for waiting blocks
constexpr std::uint64_t kTickUpdates = 16;       // at least, between two ticks of the clock
constexpr std::uint64_t kTicksPerTurnover = 64;  // about: that many, until all runs are new

}  // namespace

std::size_t RunArena::RankBlocks::bytes() const {
  return HeapBytes(sizeof(RankBlocks)) + names.bytes() + remembered.bytes() + pending.bytes() +
         runs.bytes() + HeapBytes(victims.capacity() * sizeof(Victim));
}

void RunArena::CountBytes(RankBlocks& rank) {
  const std::size_t bytes = rank.bytes();
  rank_bytes_ = rank_bytes_ - rank.counted_bytes + bytes;
  rank.counted_bytes = bytes;
}

std::size_t RunArena::Bytes() const {
  return runs_.bytes().total() + rank_cells_.bytes() + rank_bytes_ +
         HeapBytes(slots_.capacity() * sizeof(slots_[0])) + HashTableBytes(ranks_) +
         TreeBytes(free_slots_) + TreeBytes(leaving_) +
         HeapBytes(moved_.capacity() * sizeof(moved_[0]));
}

std::size_t RunArena::LiveBytes() const {
  return Bytes() - runs_.bytes().retired;
}

void RunArena::Tick() {
  if (++ticks_ < std::max<std::uint64_t>(kTickUpdates, runs_.runs() / kTicksPerTurnover)) return;
  ticks_ = 0;
  clock_.store(clock_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Makes room: which rank pays, and with which of its leaves.
class RunArena::Eviction {
 public:
  // Evicts leaves until what is not about to be freed takes no more than `aim`, or none is left.
  Eviction(RunArena& arena, std::size_t aim) KVR_REQUIRES(arena.mutex_) : arena_(arena) {
    for (const auto& slot : arena.slots_) {
      if (slot && slot->runs.size() > 0) payers_.emplace_back(Charge(*slot), slot->slot);
    }
    std::make_heap(payers_.begin(), payers_.end());
    const std::size_t pending_max = arena.options_.memory_limit / kPendingShare;
    while (arena_.LiveBytes() > aim && (arena_.DropPending(pending_max) || Step())) {
    }
  }

 private:
  // Evicts one leaf. False when there is none.
  bool Step() KVR_REQUIRES(arena_.mutex_) {
    while (!payers_.empty()) {
      std::pop_heap(payers_.begin(), payers_.end());
      auto& [charge, slot] = payers_.back();
      RankBlocks& rank = *arena_.slots_[slot];
      // Others gave up blocks that it shared.
      if (const std::uint64_t now = Charge(rank); now < charge) {
        charge = now;
        std::push_heap(payers_.begin(), payers_.end());
        continue;
      }
      if (const auto victim = NextVictim(rank)) {
        arena_.Evict(victim->first, victim->second);
        charge = Charge(rank);
        std::push_heap(payers_.begin(), payers_.end());
        return true;
      }
      payers_.pop_back();
    }
    return false;
  }

  static std::uint64_t Charge(const RankBlocks& rank) {
    return rank.memberships + rank.remembered.size();
  }

  // The blocks of a leaf that the rank has the end of; empty: it has not.
  Stretch LeafOf(const RankBlocks& rank, RunId run) const KVR_REQUIRES(arena_.mutex_) {
    if (!arena_.runs_.InUse(run)) return {};
    const Stretch leaf = arena_.runs_.Leaf(run, kLeafMax);
    if (leaf.size() == 0 || !arena_.Knows(rank.slot, {run, leaf.end - 1})) return {};
    return leaf;
  }

  // What nobody holds any more, and only its names are kept, goes first.
  [[nodiscard]] std::uint64_t UsedAt(RunId run) const KVR_REQUIRES(arena_.mutex_) {
    return arena_.runs_.IsHeld(run) ? arena_.runs_.UsedAt(run) : 0;
  }

  std::optional<std::pair<RunId, Stretch>> NextVictim(RankBlocks& rank)
      KVR_REQUIRES(arena_.mutex_) {
    for (bool looked = false;; looked = true) {
      while (!rank.victims.empty()) {
        const Victim victim = rank.victims.back();
        rank.victims.pop_back();
        const Stretch leaf = LeafOf(rank, victim.run);
        if (leaf.size() > 0 && UsedAt(victim.run) == victim.used_at)
          return std::pair(victim.run, leaf);
      }
      if (looked || !Look(rank)) return std::nullopt;
    }
  }

  // Finds the rank's least recently used leaves. Among equals the deeper goes first: an older part
  // of a conversation serves more of its branches.
  bool Look(RankBlocks& rank) KVR_REQUIRES(arena_.mutex_) {
    struct Found {
      std::uint64_t used_at;
      std::uint32_t end;
      RunId run;
    };
    std::vector<Found> found;
    for (std::size_t left = std::min(rank.runs.size(), kLookMax); left > 0; --left) {
      const RunId run = rank.runs.Next();
      const Stretch leaf = LeafOf(rank, run);
      if (leaf.size() > 0) found.push_back({UsedAt(run), leaf.end, run});
    }
    if (found.empty()) return false;
    const auto newer = [](const Found& a, const Found& b) {
      return a.used_at != b.used_at ? a.used_at > b.used_at : a.end < b.end;
    };
    const auto from =
        found.end() - static_cast<std::ptrdiff_t>((found.size() + kOneIn - 1) / kOneIn);
    std::nth_element(found.begin(), from, found.end(), newer);
    std::sort(from, found.end(), newer);
    for (auto it = from; it != found.end(); ++it)
      rank.victims.push_back({it->run, it->used_at});
    return true;
  }

  RunArena& arena_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> payers_;  // charge, slot: a heap
};

void RunArena::KeepLimit() {
  const std::size_t limit = options_.memory_limit;
  if (Bytes() <= limit) return;
  runs_.FreeRetired();
  if (LiveBytes() <= limit) return;
  const std::size_t aim = limit - std::min(limit / 16, kRoomMax);
  const Eviction eviction(*this, aim);
  while (LiveBytes() > aim && DropPending(0)) {
  }
  runs_.FreeRetired();
}

// Drops the oldest waiting blocks of the rank that has most, while all take more than `bytes`.
bool RunArena::DropPending(std::size_t bytes) {
  constexpr std::size_t kAtOnce = 64;
  std::size_t all = 0;
  RankBlocks* most = nullptr;
  for (const auto& slot : slots_) {
    if (!slot || slot->pending.size() == 0) continue;
    all += slot->pending.bytes();
    if (most == nullptr || slot->pending.size() > most->pending.size()) most = slot.get();
  }
  if (most == nullptr || all <= bytes) return false;
  pending_dropped_ += most->pending.DropOldest(kAtOnce);
  CountBytes(*most);
  return true;
}

void RunArena::Evict(RunId run, Stretch leaf) {
  const std::uint64_t held_before = runs_.held_blocks();
  std::vector<std::uint32_t> slots;
  FindSlots(run, slots);
  for (const std::uint32_t slot : slots) {
    RankBlocks& rank = *slots_[slot];
    if (rank.sweeping) {
      runs_.DropAliases(run, slot);  // it would not look for them in a run that it is no longer in
      continue;
    }
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      const std::uint32_t count = runs_.View(run, tier).Count(slot, leaf);
      rank.held[tier] -= count;
      rank.memberships -= count;
      rank.evicted += count;
      memberships_ -= count;
      evicted_memberships_ += count;
    }
    if (runs_.View(run, kRememberedPlane).Count(slot, leaf) > 0) rank.remembered.Recall(run, leaf);
    Forget(rank, run, leaf);
  }
  runs_.DropLeaf(run, leaf);
  for (const std::uint32_t slot : slots) {
    Leave(*slots_[slot], run);
    CountBytes(*slots_[slot]);
  }
  runs_.Commit();
  evicted_blocks_ += held_before - runs_.held_blocks();
}

}  // namespace kvr::index
