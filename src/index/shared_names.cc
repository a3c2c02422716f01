#include "index/shared_names.h"

#include <algorithm>
#include <cstdint>

namespace kvr::index {
namespace {

constexpr std::size_t kAgainMin = 4'096;  // blocks that may be told again, however few there are
constexpr std::size_t kTurnsMax = 8;
constexpr std::size_t kAncestorsMax = 64;  // looked at for the order of names
constexpr std::size_t kNoName = kNoBlock;  // of a block whose name is its own

class Teller {
 public:
  Teller(const RankCopy& plain, std::span<const std::size_t> parents,
         std::span<const SharedName> shared)
      : plain_(plain),
        shared_(shared),
        blocks_(plain.blocks.size()),
        left_out_(plain.blocks.size(), false) {
    for (std::size_t i = 0; i < plain.runs.size(); ++i) {
      const RankCopy::Run& run = plain.runs[i];
      for (std::size_t at = run.begin; at < run.end; ++at) {
        blocks_[at].run = i;
        blocks_[at].parent = at == run.begin ? parents[i] : at - 1;
      }
    }
    for (std::size_t name = 0; name < shared.size(); ++name) {
      for (const std::size_t at : shared[name])
        blocks_[at].name = name;
    }
  }

  RankCopy Tell() {
    for (std::size_t turn = 1;; ++turn) {
      Begin();
      for (std::size_t at = 0; at < blocks_.size(); ++at)
        TellFirst(at);
      TellNewest();
      if (!LeaveOutMisplaced(turn == kTurnsMax)) return std::move(told_);
    }
  }

 private:
  struct Block {
    std::size_t run = 0;  // in the plain copy
    std::size_t parent = kNoBlock;
    std::size_t name = kNoName;    // in `shared_`
    std::size_t newer = kNoBlock;  // the next of that name that was told
    std::uint64_t told_at = 0;     // last; 0: never
    std::uint32_t waits_for = 0;   // others, in TellNewest
    bool ordered = false;          // by TellNewest
  };

  void Begin() {
    told_ = {};
    last_ = kNoBlock;
    time_ = 0;
    again_left_ = blocks_.size() + kAgainMin;
    newest_.assign(shared_.size(), kNoBlock);
    in_run_.assign(shared_.size(), 0);
    ordered_until_.assign(shared_.size(), 0);
    for (Block& block : blocks_) {
      block.newer = kNoBlock;
      block.told_at = 0;
      block.waits_for = 0;
      block.ordered = false;
    }
  }

  // Of two blocks that were told in the wrong order, the deeper; or `all` that share a name. False
  // when there are none.
  bool LeaveOutMisplaced(bool all) {
    bool any = false;
    EachShared([&](std::size_t at) {
      const std::size_t newer = blocks_[at].newer;
      if (newer == kNoBlock || blocks_[at].told_at < blocks_[newer].told_at) return;
      left_out_[std::max(at, newer)] = true;
      any = true;
    });
    if (any && all) EachShared([&](std::size_t at) { left_out_[at] = true; });
    return any;
  }

  // Whether the block's name leads to it.
  [[nodiscard]] bool IsFound(std::size_t at) const {
    const Block& block = blocks_[at];
    return block.name == kNoName ? block.told_at > 0 : newest_[block.name] == at;
  }

  void TellFirst(std::size_t at) {
    if (left_out_[at]) return;
    const Block& block = blocks_[at];
    if (block.parent != kNoBlock) {
      const Block& parent = blocks_[block.parent];
      const bool same_name = block.name != kNoName && block.name == parent.name;
      if (parent.told_at == 0 || same_name || !Find(block.parent)) return;
    }
    Store(at, plain_.runs[block.run].tiers);
  }

  // Tells the block again, and of those before it what is needed, unless its name leads to it.
  bool Find(std::size_t at) {
    way_.clear();
    for (; at != kNoBlock && !IsFound(at); at = blocks_[at].parent)
      way_.push_back(at);
    if (way_.size() > again_left_) return false;
    again_left_ -= way_.size();
    for (; !way_.empty(); way_.pop_back()) {
      const unsigned tiers = plain_.runs[blocks_[way_.back()].run].tiers;
      Store(way_.back(), tiers & (~tiers + 1));  // one will do
    }
    return true;
  }

  // Behind a parent that is found.
  void Store(std::size_t at, unsigned tiers) {
    Block& block = blocks_[at];
    const RankCopy::Run& from = plain_.runs[block.run];
    const bool joins = !told_.runs.empty() && last_ == block.parent && last_ != kNoBlock &&
                       told_.runs.back().tiers == tiers &&
                       told_.runs.back().eligible == from.eligible && !IsInRun(block);
    if (!joins) {
      RankCopy::Run run;
      run.begin = told_.blocks.size();
      run.tiers = tiers;
      run.eligible = from.eligible;
      if (block.parent != kNoBlock) run.parent = plain_.blocks[block.parent].engine;
      told_.runs.push_back(run);
      if (block.parent != kNoBlock) NoteInRun(blocks_[block.parent]);
    }
    NoteInRun(block);
    told_.blocks.push_back(plain_.blocks[at]);
    told_.runs.back().end = told_.blocks.size();
    last_ = at;
    block.told_at = ++time_;
    if (block.name == kNoName) return;
    newest_[block.name] = at;
    if (block.ordered) ordered_until_[block.name] = time_;
  }
  [[nodiscard]] bool IsInRun(const Block& block) const {
    return block.name != kNoName && in_run_[block.name] == told_.runs.size();
  }
  void NoteInRun(const Block& block) {
    if (block.name != kNoName) in_run_[block.name] = told_.runs.size();
  }

  template <typename F>
  void EachShared(F&& f) {
    for (const SharedName& name : shared_) {
      for (const std::size_t at : name) {
        if (blocks_[at].told_at > 0) f(at);
      }
    }
  }
  // `f(other)` for blocks that have to be told for the last time after this one: the next of its
  // name, and those which would hide the way to it.
  template <typename F>
  void EachLater(std::size_t at, F&& f) {
    const auto newer_than = [&](std::size_t other) {
      const std::size_t newer = blocks_[other].newer;
      if (newer != kNoBlock && newer != at) f(newer);
    };
    newer_than(at);
    std::size_t before = blocks_[at].parent;
    for (std::size_t i = 0; i < kAncestorsMax && before != kNoBlock; ++i) {
      if (blocks_[before].name == kNoName) return;
      newer_than(before);
      before = blocks_[before].parent;
    }
  }

  void TellNewest() {
    std::size_t older = kNoBlock;
    EachShared([&](std::size_t at) {
      if (older != kNoBlock && blocks_[older].name == blocks_[at].name) blocks_[older].newer = at;
      older = at;
    });
    EachShared([&](std::size_t at) {
      EachLater(at, [&](std::size_t later) { ++blocks_[later].waits_for; });
    });
    std::vector<std::size_t> ready;
    EachShared([&](std::size_t at) {
      if (blocks_[at].waits_for == 0) ready.push_back(at);
    });
    const auto order = [&] {
      while (!ready.empty()) {
        const std::size_t at = ready.back();
        ready.pop_back();
        if (blocks_[at].ordered) continue;
        Order(at);
        EachLater(at, [&](std::size_t later) {
          if (blocks_[later].waits_for > 0 && --blocks_[later].waits_for == 0)
            ready.push_back(later);
        });
      }
    };
    order();
    // Those that wait for each other.
    EachShared([&](std::size_t at) {
      ready.push_back(at);
      order();
    });
  }

  // The last of the blocks told so far that are to be older than others of their name.
  void Order(std::size_t at) {
    Block& block = blocks_[at];
    block.ordered = true;
    if (block.told_at < ordered_until_[block.name]) {
      const bool found = block.parent == kNoBlock || Find(block.parent);
      if (!found || again_left_ == 0) return;
      --again_left_;
      const unsigned tiers = plain_.runs[block.run].tiers;
      Store(at, tiers & (~tiers + 1));
    }
    ordered_until_[block.name] = std::max(ordered_until_[block.name], block.told_at);
  }

  const RankCopy& plain_;
  const std::span<const SharedName> shared_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> newest_;           // by name
  std::vector<std::size_t> in_run_;           // by name: the run, counted from 1, that had it last
  std::vector<std::uint64_t> ordered_until_;  // by name
  std::vector<bool> left_out_;                // with what is behind it
  std::size_t again_left_ = 0;                // blocks that may be told again
  std::vector<std::size_t> way_;
  std::size_t last_ = kNoBlock;
  std::uint64_t time_ = 0;
  RankCopy told_;
};

}  // namespace

RankCopy TellSharedNames(const RankCopy& plain, std::span<const std::size_t> parents,
                         std::span<const SharedName> shared) {
  return Teller(plain, parents, shared).Tell();
}

}  // namespace kvr::index
