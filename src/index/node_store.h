// The tree of distinct blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "index/chain_table.h"
#include "index/hash_mix.h"
#include "index/holder_set.h"
#include "index/slab.h"
#include "model/ids.h"
#include "model/tier.h"

namespace kvr::index {

using NodeId = std::uint32_t;
inline constexpr NodeId kRoot = 0;

// One block after one prefix, whoever holds it.
struct Node {
  BlockHash local{};
  EngineHash engine{};  // the name most ranks use; see BlockTree::NameOf for those that do not
  NodeId parent = kRoot;
  std::uint32_t next = 0;     // in its bucket
  std::uint32_t refs = 0;     // children, and ranks that know its name
  std::uint32_t held = 0;     // (rank, tier) pairs
  std::uint32_t renamed = 0;  // ranks that use another name
  std::array<HolderSet, kTierCount> holders;
};

// Nodes live while something refers to them. Not thread-safe.
class NodeStore {
 public:
  explicit NodeStore(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] Node& operator[](NodeId id) { return nodes_[id]; }
  [[nodiscard]] const Node& operator[](NodeId id) const { return nodes_[id]; }

  // The child of `parent` with this block; kRoot when there is none.
  [[nodiscard]] NodeId Find(NodeId parent, BlockHash local) const {
    NodeId id = children_.First(Mix(seed_, Raw(local), parent));
    while (id != 0 && (nodes_[id].local != local || nodes_[id].parent != parent))
      id = nodes_[id].next;
    return id;
  }

  // As Find, but makes the child when there is none. A new one goes away with its last Unpin.
  NodeId FindOrAdd(NodeId parent, BlockHash local, EngineHash engine);

  void Pin(NodeId id) { ++nodes_[id].refs; }
  // Frees the node with its last reference, and so on towards the root.
  void Unpin(NodeId id);

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  // One beyond the largest id in use.
  [[nodiscard]] NodeId end() const { return nodes_.end(); }
  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + children_.bytes(); }

  // For ChainTable.
  [[nodiscard]] std::uint64_t HashOf(std::uint32_t id) const {
    return Mix(seed_, Raw(nodes_[id].local), nodes_[id].parent);
  }
  [[nodiscard]] std::uint32_t& NextOf(std::uint32_t id) { return nodes_[id].next; }

 private:
  const std::uint64_t seed_;
  Slab<Node, 1024> nodes_;
  ChainTable children_;
};

}  // namespace kvr::index
