// Which prompt blocks the active requests of each rank use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "load/number_table.h"
#include "model/ids.h"

namespace kvr::load {

// Dense number of a rank inside one load book; reused after the rank was removed.
enum class LoadSlot : std::uint32_t {};

// Blocks as fixed-point numbers, so that what is added and taken away again leaves exactly nothing.
using Weight = std::int64_t;
inline constexpr Weight kWholeBlock = Weight{1} << 24;
// `fraction` is in [0, 1].
Weight WeightOf(double fraction);
// To whole blocks, half away from zero. `weight` is not negative.
constexpr std::uint64_t RoundToBlocks(Weight weight) {
  return static_cast<std::uint64_t>((weight + kWholeBlock / 2) / kWholeBlock);
}

// A compressed trie over the sequence hashes of all active prompts of a partition. Each node is a
// run of blocks with the ranks that use all of it, so a prompt nobody shares is one node whatever
// its length, and a request meets all ranks in one walk. A block that several requests of a rank
// use counts once there. Two blocks are the same when their hash and everything before it are
// equal.
//
// Not thread-safe. Allocates nothing once its pools have seen the load.
class PromptTrie {
 public:
  // The end of one acquired path. Stays valid until that path is released.
  using Leaf = std::uint32_t;

  PromptTrie() : nodes_(1) {}

  struct Acquired {
    Leaf leaf = 0;
    Weight change = 0;  // to the load of the rank
  };
  Acquired Acquire(LoadSlot slot, std::span<const SequenceHash> path);

  // Gives one acquired path back and returns the change to the load of the rank, at most 0.
  Weight Release(LoadSlot slot, Leaf leaf);

  // Weighs the end of the path that no other request of the rank uses now, and returns the change.
  // Blocks keep their weight when they become shared later, or shared ones become exclusive.
  Weight SetWeight(LoadSlot slot, Leaf leaf, Weight weight);

  // shared[slot] = how many leading blocks of `path` are active there. Slots that share nothing are
  // left alone; `shared` reaches beyond every slot in use.
  void SharedBlocks(std::span<const SequenceHash> path, std::span<std::uint32_t> shared) const;

  // Runs in use, for tests and statistics.
  [[nodiscard]] std::size_t nodes() const { return nodes_.size() - 1 - free_.size(); }

 private:
  static constexpr std::uint32_t kRoot = 0;

  // A rank that uses every block of a run.
  struct Holder {
    LoadSlot slot{};
    std::uint32_t uses = 0;  // requests
    Weight weight = kWholeBlock;
  };
  struct Node {
    std::vector<SequenceHash> run;  // not empty, but in the root
    std::vector<Holder> holders;    // ascending by slot
    std::uint32_t parent = kRoot;
  };

  // kNone when there is none.
  [[nodiscard]] std::uint32_t FindChild(std::uint32_t parent, SequenceHash first) const;
  [[nodiscard]] std::uint64_t HashOf(std::uint32_t node) const;
  std::uint32_t NewNode(std::uint32_t parent, std::span<const SequenceHash> run);
  void FreeNode(std::uint32_t node);
  std::uint32_t SplitAt(std::uint32_t node, std::size_t length);
  Holder& HolderOf(Node& node, LoadSlot slot);
  Weight AddUse(Node& node, LoadSlot slot);

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_;
  NumberTable children_;  // (parent, first hash) → node
};

}  // namespace kvr::load
