#include <algorithm>
#include <bit>

#include "index/block_tree.h"

namespace kvr::index {
namespace {

constexpr std::uint64_t SlotBit(std::size_t slot) {
  return std::uint64_t{1} << (slot % HolderSet::kWordBits);
}

// The slot of the lowest bit in word `w` of a bitmap.
constexpr std::size_t FirstSlot(std::size_t w, std::uint64_t bits) {
  return w * HolderSet::kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
}

}  // namespace

// One pass down the path. A rank walks in one tier at a time: a bitmap a tier says who walks there,
// and is intersected with the holders of each block. Only a rank that drops out is looked at alone:
// it goes on in the nearest farther tier that holds the block, or ends.
class BlockTree::Walk {
 public:
  // Walks and fills `scores`.
  Walk(const BlockTree& tree, std::span<const BlockHash> blocks, const MatchOptions& options,
       OverlapScores& scores) KVR_REQUIRES_SHARED(tree.mutex_)
      : tree_(tree),
        options_(options),
        scores_(scores),
        tiers_(options.device_only ? 1 : kTierCount),
        words_((tree.slots_.size() + HolderSet::kWordBits - 1) / HolderSet::kWordBits) {
    scores_.Reset(tree.slots_.size());
    scores_.scratch().assign(tiers_ * words_, 0);
    Run(blocks);
  }

 private:
  void Run(std::span<const BlockHash> blocks) KVR_REQUIRES_SHARED(tree_.mutex_) {
    for (const BlockHash block : blocks) {
      const NodeId next = tree_.nodes_.Find(node_, block);
      if (next == kRoot) break;
      const Node& node = tree_.nodes_[next];
      if (depth_ == 0) {
        Start(node);
      } else {
        for (std::size_t tier = 0; tier < tiers_; ++tier)
          Narrow(tier, &node);
      }
      if (std::none_of(busy_.begin(), busy_.end(), [](bool busy) { return busy; })) return;
      if (options_.device_holders) CountDeviceHolders();
      node_ = next;
      ++depth_;
    }
    for (std::size_t tier = 0; tier < tiers_; ++tier)
      Narrow(tier, nullptr);
  }

  std::uint64_t& Walking(std::size_t tier, std::size_t w) {
    return scores_.scratch()[tier * words_ + w];
  }

  // Each rank starts in the nearest tier that holds the first block.
  void Start(const Node& node) KVR_REQUIRES_SHARED(tree_.mutex_) {
    for (std::size_t w = 0; w < words_; ++w) {
      std::uint64_t started = 0;
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        const std::uint64_t here = node.holders[tier].Word(w) & ~started;
        started |= here;
        Walking(tier, w) = here;
        if (here != 0) busy_[tier] = true;
      }
      for (; started != 0; started &= started - 1) {
        const std::size_t slot = FirstSlot(w, started);
        scores_.Score(static_cast<RankSlot>(slot)).rank = tree_.slots_[slot]->rank;
      }
    }
  }

  // Takes out of `tier` who does not hold `node` there; everybody when there is no node.
  void Narrow(std::size_t tier, const Node* node) KVR_REQUIRES_SHARED(tree_.mutex_) {
    if (!busy_[tier]) return;
    std::uint64_t left = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      const std::uint64_t walking = Walking(tier, w);
      const std::uint64_t stay = node ? walking & node->holders[tier].Word(w) : 0;
      Walking(tier, w) = stay;
      left |= stay;
      if (walking != stay) Leave(w, walking & ~stay, tier, node);
    }
    busy_[tier] = left != 0;
  }

  // The slots `gone` of word `w` end in `tier`. Whom a farther tier holds `node` for goes on there.
  void Leave(std::size_t w, std::uint64_t gone, std::size_t tier, const Node* node)
      KVR_REQUIRES_SHARED(tree_.mutex_) {
    std::uint64_t ending = gone;
    for (std::size_t next = tier + 1; node && next < tiers_; ++next) {
      const std::uint64_t moving = ending & node->holders[next].Word(w);
      if (moving == 0) continue;
      Walking(next, w) |= moving;
      busy_[next] = true;
      ending &= ~moving;
    }
    const Node& last = tree_.nodes_[node_];
    for (; gone != 0; gone &= gone - 1) {
      const std::size_t slot = FirstSlot(w, gone);
      RankOverlap& overlap = scores_.Entry(static_cast<RankSlot>(slot));
      overlap.blocks[tier] = depth_ - overlap.depth();
      if ((ending & SlotBit(slot)) == 0) continue;
      overlap.last =
          last.renamed == 0 ? last.engine : tree_.NameOf(static_cast<std::uint32_t>(slot), node_);
    }
  }

  void CountDeviceHolders() {
    std::uint32_t holders = 0;
    for (std::size_t w = 0; w < words_; ++w)
      holders += static_cast<std::uint32_t>(std::popcount(Walking(0, w)));
    if (holders > 0) scores_.mutable_device_holders().push_back(holders);
  }

  const BlockTree& tree_;
  const MatchOptions& options_;
  OverlapScores& scores_;
  const std::size_t tiers_;
  const std::size_t words_;
  NodeId node_ = kRoot;  // the last block that somebody holds
  std::uint32_t depth_ = 0;
  std::array<bool, kTierCount> busy_{};  // whether anybody walks in the tier
};

void BlockTree::Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                      OverlapScores& scores) const {
  ReadLock lock(mutex_);
  Walk(*this, blocks, options, scores);
}

}  // namespace kvr::index
