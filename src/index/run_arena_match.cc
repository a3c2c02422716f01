#include <algorithm>
#include <bit>
#include <utility>

#include "index/run_arena.h"

namespace kvr::index {
namespace {

// How many blocks the query and the run share from the run's first on.
std::size_t CommonLength(const RunState& run, std::span<const BlockHash> blocks) {
  const std::uint64_t* const a = run.fields.locals;
  const BlockHash* const b = blocks.data();
  const std::size_t most = std::min<std::size_t>(run.fields.blocks.size(), blocks.size());
  const auto differ = [a, b](std::size_t i) { return a[i] ^ Raw(b[i]); };
  std::size_t i = 0;
  while (i + 8 <= most && (differ(i) | differ(i + 1) | differ(i + 2) | differ(i + 3) |
                           differ(i + 4) | differ(i + 5) | differ(i + 6) | differ(i + 7)) == 0)
    i += 8;
  while (i < most && differ(i) == 0)
    ++i;
  return i;
}

}  // namespace

// One pass down the path, run after run. A rank walks in one tier at a time: a bitmap a tier says
// who walks there, and is intersected with those that hold the run whole. Only a rank that does not
// is looked at alone: it may hold enough of the run, go on in a farther tier, or end.
class RunArena::Walk {
 public:
  // Walks and fills `scores`. No state may be freed meanwhile.
  Walk(const RunArena& arena, std::span<const BlockHash> blocks, const MatchOptions& options,
       OverlapScores& scores)
      : arena_(arena),
        scores_(scores),
        tiers_(options.device_only ? 1 : kTierCount),
        // Pairs with AddRank. Ranks that come later are not looked at.
        slots_(arena.slots_end_.load(std::memory_order_acquire)),
        words_((slots_ + PlaneView::kWordBits - 1) / PlaneView::kWordBits) {
    scores_.Reset(slots_);
    scores_.scratch().assign((tiers_ + 1) * words_, 0);
    Run(blocks);
    if (options.device_holders) CountDeviceHolders();
  }

 private:
  void Run(std::span<const BlockHash> blocks) {
    RunId id = kRootRun;
    std::uint32_t generation = 0;
    while (depth_ < blocks.size()) {
      const RunState* const next =
          arena_.directory_.FindChild(id, generation, depth_, blocks[depth_], id);
      if (next == nullptr) break;
      const auto common = static_cast<std::uint32_t>(CommonLength(*next, blocks.subspan(depth_)));
      if (run_ == nullptr) Start(*next);
      Narrow(*next, {depth_, depth_ + common});
      depth_ += common;
      generation = next->fields.generation;
      run_ = next;
    }
    if (run_ != nullptr) Finish();
  }

  std::uint64_t& Walking(std::size_t tier, std::size_t w) {
    return scores_.scratch()[tier * words_ + w];
  }

  // Each rank starts in the nearest tier that holds the first block.
  void Start(const RunState& run) {
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const PlaneView view = run.View(tier);
      for (std::size_t w = 0; w < std::min(words_, view.whole.size()); ++w)
        Walking(tier, w) = view.whole[w];
      for (const Partial& part : view.parts) {
        if (part.held.begin == run.fields.blocks.begin && part.slot < slots_)
          Walking(tier, part.slot / PlaneView::kWordBits) |= BitOf(part.slot);
      }
    }
    for (std::size_t w = 0; w < words_; ++w) {
      const std::size_t left = slots_ - w * PlaneView::kWordBits;
      std::uint64_t may_start = left >= PlaneView::kWordBits ? ~std::uint64_t{0} : BitOf(left) - 1;
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        const std::uint64_t here = Walking(tier, w) &= may_start;
        may_start &= ~here;
        ForEachSlot(w, here, [this](std::uint32_t slot) {
          const RankCell& cell = arena_.rank_cells_[slot];
          scores_.Score(RankSlot{slot}, {WorkerId{cell.worker.load(std::memory_order_relaxed)},
                                         cell.dp_rank.load(std::memory_order_relaxed)});
        });
      }
    }
  }

  // Takes out who does not hold all of `asked`, the first blocks of `run`, and lets them end.
  void Narrow(const RunState& run, Stretch asked) {
    bool holders_found = false;
    // Farther tiers first, so that who moves there is not looked at again.
    for (std::size_t tier = tiers_; tier-- > 0;) {
      const PlaneView view = run.View(tier);
      for (std::size_t w = 0; w < words_; ++w) {
        const std::uint64_t walking = Walking(tier, w);
        if (walking == 0) continue;
        const std::uint64_t stay = walking & view.Word(w);
        Walking(tier, w) = stay;
        const std::uint64_t leave = walking & ~stay;
        if (leave == 0) continue;
        if (!std::exchange(holders_found, true)) FindHolders(run);
        // Most hold nothing of the run, and end where it begins.
        EndAll(w, leave & ~Holders(w), tier, asked.begin);
        ForEachSlot(w, leave & Holders(w),
                    [&](std::uint32_t slot) { Follow(slot, tier, run, asked); });
      }
    }
  }

  // Who holds any of the run in any tier.
  std::uint64_t& Holders(std::size_t w) { return scores_.scratch()[tiers_ * words_ + w]; }
  void FindHolders(const RunState& run) {
    for (std::size_t w = 0; w < words_; ++w)
      Holders(w) = 0;
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const PlaneView view = run.View(tier);
      for (std::size_t w = 0; w < std::min(words_, view.whole.size()); ++w)
        Holders(w) |= view.whole[w];
      for (const Partial& part : view.parts) {
        if (part.slot < slots_) Holders(part.slot / PlaneView::kWordBits) |= BitOf(part.slot);
      }
    }
  }

  // The way of one rank through `asked`, from `tier` on.
  void Follow(std::uint32_t slot, std::size_t tier, const RunState& run, Stretch asked) {
    RankOverlap& overlap = scores_.Entry(RankSlot{slot});
    std::uint32_t depth = asked.begin;
    for (; tier < tiers_; ++tier) {
      const Stretch held = run.View(tier).Around(slot, depth, run.fields.blocks);
      if (held.end >= asked.end) {
        Walking(tier, slot / PlaneView::kWordBits) |= BitOf(slot);
        return;
      }
      depth = held.end;
      overlap.blocks[tier] = depth - overlap.depth();
    }
    overlap.last = (depth > asked.begin ? run : *run_).NameOf(slot, depth - 1);
  }

  // Nobody holds more than this.
  void Finish() {
    // The runs before it are not noted: they are the way to it and stay as long as it does.
    run_->SetUsedAt(arena_.clock_.load(std::memory_order_relaxed));
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      for (std::size_t w = 0; w < words_; ++w)
        EndAll(w, Walking(tier, w), tier, depth_);
    }
  }

  // These slots of word `w`, walking in `tier`, end at `depth` in the run walked last.
  void EndAll(std::size_t w, std::uint64_t slots, std::size_t tier, std::uint32_t depth) {
    if (slots == 0) return;
    const RunState::Fields& fields = run_->fields;
    const auto common = EngineHash{fields.engines[depth - 1 - fields.blocks.begin]};
    ForEachSlot(w, slots, [&](std::uint32_t slot) {
      RankOverlap& overlap = scores_.Entry(RankSlot{slot});
      overlap.blocks[tier] = depth - overlap.depth();
      overlap.last = fields.aliases ? run_->NameOf(slot, depth - 1) : common;
    });
  }

  void CountDeviceHolders() {
    std::vector<std::uint32_t>& holders = scores_.mutable_device_holders();
    for (const RankSlot slot : scores_.scored()) {
      const std::uint32_t depth = scores_.at(slot).device();
      if (depth > holders.size()) holders.resize(depth);
      if (depth > 0) ++holders[depth - 1];
    }
    for (std::size_t depth = holders.size(); depth-- > 1;)
      holders[depth - 1] += holders[depth];
  }

  static std::uint64_t BitOf(std::size_t slot) {
    return std::uint64_t{1} << (slot % PlaneView::kWordBits);
  }
  template <typename F>
  static void ForEachSlot(std::size_t w, std::uint64_t bits, F&& f) {
    for (; bits != 0; bits &= bits - 1) {
      f(static_cast<std::uint32_t>(w * PlaneView::kWordBits) +
        static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }

  const RunArena& arena_;
  OverlapScores& scores_;
  const std::size_t tiers_;
  const std::size_t slots_;
  const std::size_t words_;
  const RunState* run_ = nullptr;  // the last one walked; the blocks before depth_ end in it
  std::uint32_t depth_ = 0;
};

void RunArena::Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                     OverlapScores& scores) const {
  const Epoch::Reader reader(epoch_);
  Walk(*this, blocks, options, scores);
}

}  // namespace kvr::index
