#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "index/prefetch.h"
#include "index/run_arena.h"
#include "index/run_arena_ask.h"

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

using TierBlocks = std::array<std::uint32_t, kTierCount>;

}  // namespace

// One pass down the path, run after run. A rank walks in one tier at a time: a bitmap a tier says
// who walks there, and is intersected with those that hold the run whole. Only a rank that holds a
// part of it is looked at alone: it may hold enough of the run, go on in a farther tier, or end.
class RunArena::Walk {
 public:
  // No state may be freed before Finish.
  Walk(const RunArena& arena, std::span<const BlockHash> blocks, const MatchOptions& options,
       OverlapScores& scores)
      : arena_(arena),
        blocks_(blocks),
        options_(options),
        scores_(scores),
        tiers_(options.device_only ? 1 : kTierCount),
        // Pairs with AddRank. Ranks that come later are not looked at.
        slots_(arena.slots_end_.load(std::memory_order_acquire)),
        words_((slots_ + PlaneView::kWordBits - 1) / PlaneView::kWordBits) {
    scores_.Reset(slots_);
    scores_.scratch().assign((tiers_ + 2) * words_, 0);
    walking_ = scores_.scratch().data();
    holders_ = walking_ + tiers_ * words_;
    moved_ = holders_ + words_;
  }

  // Walks on: Find says whether a run follows, Take walks it. The others fetch what Find reads.
  void Aim() const {
    if (depth_ < blocks_.size()) arena_.directory_.children.Prefetch(HashOfNext());
  }
  void Peek() const {
    if (depth_ == blocks_.size()) return;
    const RunId id = arena_.directory_.children.Hint(HashOfNext());
    if (id != kRootRun) arena_.directory_.Fetch(id);
  }
  bool Find() {
    if (depth_ == blocks_.size()) return false;
    next_ = arena_.directory_.FindChild(id_, generation_, depth_, blocks_[depth_], id_);
    return next_ != nullptr;
  }
  void Take() {
    const auto common = static_cast<std::uint32_t>(CommonLength(*next_, blocks_.subspan(depth_)));
    if (run_ == nullptr) Start(*next_);
    // Should ranks end here, their name is on its way.
    PrefetchAt(next_->fields.engines, common - 1);
    Narrow(*next_, {depth_, depth_ + common});
    depth_ += common;
    generation_ = next_->fields.generation;
    run_ = next_;
  }

  // Whether all of the query was walked.
  [[nodiscard]] bool whole() const { return depth_ == blocks_.size(); }

  // Who still walks ends where the path does.
  void Finish() {
    wanted_ = true;
    if (run_ != nullptr) {
      // The runs before it are not noted: they are the way to it and stay as long as it does.
      run_->SetUsedAt(arena_.clock_.load(std::memory_order_relaxed));
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        if (!IsWalked(tier)) continue;
        for (std::size_t w = 0; w < words_; ++w)
          EndAll(w, Walking(tier, w), tier, depth_);
      }
    }
    if (options_.device_holders) CountDeviceHolders();
    if (options_.best > 0) scores_.KeepDeepest(options_.best);
    scores_.Seal();
    NameRanks();
  }

 private:
  [[nodiscard]] std::uint64_t HashOfNext() const {
    return arena_.directory_.children.Hash(id_, depth_, blocks_[depth_]);
  }

  // Whether anybody ever walked in the tier.
  [[nodiscard]] bool IsWalked(std::size_t tier) const { return ((walked_ >> tier) & 1u) != 0; }
  std::uint64_t& Walking(std::size_t tier, std::size_t w) { return walking_[tier * words_ + w]; }

  // Each rank starts in the nearest tier that holds the first block.
  void Start(const RunState& run) {
    if (words_ == 0) return;  // the first rank came after its number was read
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const PlaneView view = run.View(tier);
      if (view.whole.empty() && view.parts.empty()) continue;
      walked_ |= 1u << tier;
      std::copy_n(view.whole.data(), std::min(words_, view.whole.size()), &Walking(tier, 0));
      for (const Partial& part : view.parts) {
        if (part.held.begin == run.fields.blocks.begin && part.slot < slots_)
          Walking(tier, WordOf(part.slot)) |= BitOf(part.slot);
      }
    }
    for (std::size_t w = 0; w < words_; ++w) {
      const std::size_t left = slots_ - w * PlaneView::kWordBits;
      std::uint64_t may_start = left >= PlaneView::kWordBits ? ~std::uint64_t{0} : BitOf(left) - 1;
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        if (!IsWalked(tier)) continue;
        Walking(tier, w) &= may_start;
        may_start &= ~Walking(tier, w);
      }
    }
  }

  // Takes out who does not hold all of `asked`, the first blocks of `run`, and lets them end.
  void Narrow(const RunState& run, Stretch asked) {
    // Who leaves here is none of the best if enough go on: nobody looks at them then.
    wanted_ = options_.best == 0 || options_.device_holders || !EnoughStay(run);
    if (!wanted_) scores_.endings().clear();
    bool holders_found = false;
    // Farther tiers first, so that who moves there is not looked at again.
    for (std::size_t tier = tiers_; tier-- > 0;) {
      if (!IsWalked(tier)) continue;
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
        EndAll(w, leave & ~holders_[w], tier, asked.begin);
        ForEachSlot(w, leave & holders_[w],
                    [&](std::uint32_t slot) { Follow(slot, tier, run, asked); });
      }
    }
  }

  // Whether the run's whole holders are as many as are wanted.
  bool EnoughStay(const RunState& run) {
    std::size_t stay = 0;
    for (std::size_t tier = 0; tier < tiers_ && stay < options_.best; ++tier) {
      const PlaneView view = run.View(tier);
      for (std::size_t w = 0; w < std::min(words_, view.whole.size()); ++w)
        stay += static_cast<std::size_t>(std::popcount(Walking(tier, w) & view.whole[w]));
    }
    return stay >= options_.best;
  }

  // Who holds any of the run in any tier.
  void FindHolders(const RunState& run) {
    std::fill_n(holders_, words_, 0);
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const PlaneView view = run.View(tier);
      for (std::size_t w = 0; w < std::min(words_, view.whole.size()); ++w)
        holders_[w] |= view.whole[w];
      for (const Partial& part : view.parts) {
        if (part.slot < slots_) holders_[WordOf(part.slot)] |= BitOf(part.slot);
      }
    }
  }

  // The way of one rank through `asked`, from `tier` on.
  void Follow(std::uint32_t slot, const std::size_t tier, const RunState& run, Stretch asked) {
    TierBlocks blocks = BlocksBefore(slot);
    std::uint32_t before = std::accumulate(blocks.begin(), blocks.end(), 0u);
    std::uint32_t depth = asked.begin;
    for (std::size_t t = tier; t < tiers_; ++t) {
      const Stretch held = run.View(t).Around(slot, depth, run.fields.blocks);
      if (held.end >= asked.end) {
        Walking(t, WordOf(slot)) |= BitOf(slot);
        walked_ |= 1u << t;
        if (t != tier) Move(slot, blocks);
        return;
      }
      depth = held.end;
      blocks[t] = depth - before;
      before = depth;
    }
    EndAlone(slot, blocks, (depth > asked.begin ? run : *run_).NameOf(slot, depth - 1));
  }

  // Of a rank that went on in a farther tier: what it matched in the tiers before.
  [[nodiscard]] TierBlocks BlocksBefore(std::uint32_t slot) const {
    return moved_[WordOf(slot)] & BitOf(slot) ? scores_.scratch_blocks()[slot] : TierBlocks{};
  }
  void Move(std::uint32_t slot, const TierBlocks& blocks) {
    if (scores_.scratch_blocks().size() < slots_) scores_.scratch_blocks().resize(slots_);
    scores_.scratch_blocks()[slot] = blocks;
    moved_[WordOf(slot)] |= BitOf(slot);
  }

  // These slots of word `w`, walking in `tier`, end at `depth` in the run walked last.
  void EndAll(std::size_t w, std::uint64_t slots, std::size_t tier, std::uint32_t depth) {
    if (slots == 0 || !wanted_) return;
    ForEachSlot(w, slots & (moved_[w] | NamedApart(w)), [&](std::uint32_t slot) {
      TierBlocks blocks = BlocksBefore(slot);
      blocks[tier] = depth - std::accumulate(blocks.begin(), blocks.end(), 0u);
      EndAlone(slot, blocks, run_->NameOf(slot, depth - 1));
      slots &= ~BitOf(slot);
    });
    if (slots == 0) return;
    const RunState::Fields& fields = run_->fields;
    OverlapScores::Ending ending{.word = static_cast<std::uint32_t>(w), .slots = slots};
    ending.blocks[tier] = depth;
    ending.last = EngineHash{fields.engines[depth - 1 - fields.blocks.begin]};
    scores_.endings().push_back(ending);
  }
  void EndAlone(std::uint32_t slot, const TierBlocks& blocks, EngineHash last) {
    if (!wanted_) return;
    scores_.endings().push_back(
        {static_cast<std::uint32_t>(WordOf(slot)), BitOf(slot), blocks, last});
  }

  // Slots of word `w` that may have their own names in the run walked last.
  [[nodiscard]] std::uint64_t NamedApart(std::size_t w) const {
    if (run_->fields.aliases == nullptr) return 0;
    std::uint64_t slots = 0;
    for (const AliasColumn* const column : run_->fields.aliases->columns) {
      if (WordOf(column->slot()) == w) slots |= BitOf(column->slot());
    }
    return slots;
  }

  void CountDeviceHolders() {
    std::vector<std::uint32_t>& holders = scores_.mutable_device_holders();
    for (const OverlapScores::Ending& ending : scores_.endings()) {
      const std::uint32_t depth = ending.blocks[0];
      if (depth > holders.size()) holders.resize(depth);
      if (depth > 0) holders[depth - 1] += static_cast<std::uint32_t>(std::popcount(ending.slots));
    }
    for (std::size_t depth = holders.size(); depth-- > 1;)
      holders[depth - 1] += holders[depth];
  }

  // After the last state was read: it cannot name a slot whose rank came after the key.
  void NameRanks() {
    const std::uint64_t key = arena_.ranks_key_.load(std::memory_order_acquire);
    scores_.NameRanks(key, [this](RankSlot slot) {
      const RankCell& cell = arena_.rank_cells_[Raw(slot)];
      return Rank{WorkerId{cell.worker.load(std::memory_order_relaxed)},
                  cell.dp_rank.load(std::memory_order_relaxed)};
    });
  }

  static std::size_t WordOf(std::size_t slot) { return slot / PlaneView::kWordBits; }
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
  const std::span<const BlockHash> blocks_;
  const MatchOptions& options_;
  OverlapScores& scores_;
  const std::size_t tiers_;
  const std::size_t slots_;
  const std::size_t words_;
  // Bitmaps of slots, in scores_.scratch().
  std::uint64_t* walking_ = nullptr;  // one a tier
  std::uint64_t* holders_ = nullptr;
  std::uint64_t* moved_ = nullptr;  // left the tier they started in
  bool wanted_ = true;              // who ends now
  unsigned walked_ = 0;             // tiers, a bit each
  RunId id_ = kRootRun;
  std::uint32_t generation_ = 0;
  const RunState* next_ = nullptr;  // to walk
  const RunState* run_ = nullptr;   // the last one walked; the blocks before depth_ end in it
  std::uint32_t depth_ = 0;
};

void RunArena::Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                     OverlapScores& scores) const {
  Ask([&](const auto& of_one_shape) {
    Walk walk(*this, blocks, options, scores);
    while (walk.Find())
      walk.Take();
    if (!walk.whole() && !of_one_shape()) return false;
    walk.Finish();
    return true;
  });
}

// Walks in step: while one waits for memory, the others' lines are on their way, too.
void RunArena::MatchMany(std::span<const std::span<const BlockHash>> queries,
                         const MatchOptions& options, std::span<OverlapScores> scores) const {
  constexpr std::size_t kAtOnce = 8;
  while (!queries.empty()) {
    const std::size_t count = std::min(queries.size(), kAtOnce);
    std::uint32_t unsure = 0;  // a bit each
    {
      const Epoch::Reader reader(epoch_);
      const std::uint64_t seen = directory_.reshapes.Seen();
      std::array<std::optional<Walk>, kAtOnce> walks;
      std::array<Walk*, kAtOnce> under_way{};
      for (std::size_t i = 0; i < count; ++i)
        under_way[i] = &walks[i].emplace(*this, queries[i], options, scores[i]);
      for (std::size_t left = count; left > 0;) {
        const auto each = std::span(under_way).first(left);
        for (const Walk* const walk : each)
          walk->Aim();
        for (const Walk* const walk : each)
          walk->Peek();
        const auto end =
            std::partition(each.begin(), each.end(), [](Walk* walk) { return walk->Find(); });
        left = static_cast<std::size_t>(end - each.begin());
        for (Walk* const walk : each.first(left))
          walk->Take();
      }
      const bool one_shape = directory_.reshapes.SawOneShape(seen);
      for (std::size_t i = 0; i < count; ++i) {
        if (one_shape || walks[i]->whole()) {
          walks[i]->Finish();
        } else {
          unsure |= 1u << i;
        }
      }
    }
    if (unsure != 0) {
      unsure_.looks.fetch_add(static_cast<std::uint64_t>(std::popcount(unsure)),
                              std::memory_order_relaxed);
    }
    // Not before the reader has left: one that waits must not hold back the updates.
    for (; unsure != 0; unsure &= unsure - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(unsure));
      Match(queries[i], options, scores[i]);
    }
    queries = queries.subspan(count);
    scores = scores.subspan(count);
  }
}

}  // namespace kvr::index
