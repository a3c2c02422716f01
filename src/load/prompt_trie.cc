#include "load/prompt_trie.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvr::load {
namespace {

// What a free node keeps of its vectors; more goes back to the allocator.
constexpr std::size_t kKeptRun = 512;
constexpr std::size_t kKeptHolders = 64;

std::size_t CommonPrefix(std::span<const SequenceHash> a, std::span<const SequenceHash> b) {
  const std::size_t most = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

std::uint64_t ChildHash(std::uint32_t parent, SequenceHash first) {
  return Raw(first) ^ (parent * 0xBF58476D1CE4E5B9u);
}

}  // namespace

Weight WeightOf(double fraction) {
  KVR_CHECK(fraction >= 0 && fraction <= 1);
  return static_cast<Weight>(std::llround(fraction * static_cast<double>(kWholeBlock)));
}

PromptTrie::Acquired PromptTrie::Acquire(LoadSlot slot, std::span<const SequenceHash> path) {
  Acquired result{kRoot, 0};
  while (!path.empty()) {
    std::uint32_t child = FindChild(result.leaf, path.front());
    if (child == NumberTable::kNone) {
      child = NewNode(result.leaf, path);
    } else if (const std::size_t common = CommonPrefix(nodes_[child].run, path);
               common < nodes_[child].run.size()) {
      child = SplitAt(child, common);
    }
    result.change += AddUse(nodes_[child], slot);
    result.leaf = child;
    path = path.subspan(nodes_[child].run.size());
  }
  return result;
}

Weight PromptTrie::Release(LoadSlot slot, Leaf leaf) {
  Weight change = 0;
  for (std::uint32_t at = leaf; at != kRoot;) {
    Node& node = nodes_[at];
    const std::uint32_t parent = node.parent;
    Holder& holder = HolderOf(node, slot);
    if (--holder.uses == 0) {
      change -= holder.weight * static_cast<Weight>(node.run.size());
      node.holders.erase(node.holders.begin() + (&holder - node.holders.data()));
      // Who holds a run holds its parent's, so nobody is below either.
      if (node.holders.empty()) FreeNode(at);
    }
    at = parent;
  }
  return change;
}

Weight PromptTrie::SetWeight(LoadSlot slot, Leaf leaf, Weight weight) {
  Weight change = 0;
  for (std::uint32_t at = leaf; at != kRoot; at = nodes_[at].parent) {
    Holder& holder = HolderOf(nodes_[at], slot);
    if (holder.uses > 1) break;
    change += (weight - holder.weight) * static_cast<Weight>(nodes_[at].run.size());
    holder.weight = weight;
  }
  return change;
}

void PromptTrie::SharedBlocks(std::span<const SequenceHash> path,
                              std::span<std::uint32_t> shared) const {
  std::uint32_t at = kRoot;
  std::size_t depth = 0;
  while (depth < path.size()) {
    at = FindChild(at, path[depth]);
    if (at == NumberTable::kNone) return;
    const Node& node = nodes_[at];
    const std::size_t common = CommonPrefix(node.run, path.subspan(depth));
    depth += common;
    for (const Holder& holder : node.holders)
      shared[Raw(holder.slot)] = static_cast<std::uint32_t>(depth);
    if (common < node.run.size()) return;
  }
}

std::uint32_t PromptTrie::FindChild(std::uint32_t parent, SequenceHash first) const {
  return children_.Find(ChildHash(parent, first), [&](std::uint32_t node) {
    return nodes_[node].parent == parent && nodes_[node].run.front() == first;
  });
}

std::uint64_t PromptTrie::HashOf(std::uint32_t node) const {
  return ChildHash(nodes_[node].parent, nodes_[node].run.front());
}

std::uint32_t PromptTrie::NewNode(std::uint32_t parent, std::span<const SequenceHash> run) {
  std::uint32_t node = 0;
  if (free_.empty()) {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
  }
  nodes_[node].parent = parent;
  nodes_[node].run.assign(run.begin(), run.end());
  children_.Insert(HashOf(node), node);
  return node;
}

void PromptTrie::FreeNode(std::uint32_t node) {
  children_.Erase(HashOf(node), node);
  Node& freed = nodes_[node];
  freed.run.clear();
  freed.holders.clear();
  if (freed.run.capacity() > kKeptRun) freed.run.shrink_to_fit();
  if (freed.holders.capacity() > kKeptHolders) freed.holders.shrink_to_fit();
  free_.push_back(node);
}

// Cuts the first `length` blocks off `node` into a new node above it, and returns that. `node`
// stays the lower part, so that the leaves that name it stay right.
std::uint32_t PromptTrie::SplitAt(std::uint32_t node, std::size_t length) {
  children_.Erase(HashOf(node), node);
  // The span stays valid when nodes_ grows: nodes move, their runs stay where they are.
  const std::span<const SequenceHash> run = nodes_[node].run;
  const std::uint32_t upper = NewNode(nodes_[node].parent, run.first(length));
  nodes_[upper].holders = nodes_[node].holders;
  auto& rest = nodes_[node].run;
  rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
  nodes_[node].parent = upper;
  children_.Insert(HashOf(node), node);
  return upper;
}

PromptTrie::Holder& PromptTrie::HolderOf(Node& node, LoadSlot slot) {
  const auto holder = std::ranges::lower_bound(node.holders, slot, {}, &Holder::slot);
  KVR_CHECK(holder != node.holders.end() && holder->slot == slot);
  return *holder;
}

Weight PromptTrie::AddUse(Node& node, LoadSlot slot) {
  const auto holder = std::ranges::lower_bound(node.holders, slot, {}, &Holder::slot);
  if (holder != node.holders.end() && holder->slot == slot) {
    ++holder->uses;
    return 0;
  }
  node.holders.insert(holder, Holder{slot, 1, kWholeBlock});
  return kWholeBlock * static_cast<Weight>(node.run.size());
}

}  // namespace kvr::load
