// Rows T1..T5, T15, T16 and the fixtures of the active-sequence specification; then a seeded
// comparison with a naive model.
#include "load/prompt_trie.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::load {
namespace {

constexpr LoadSlot kA{0};
constexpr LoadSlot kB{1};

std::vector<SequenceHash> Path(const std::vector<std::uint64_t>& numbers) {
  std::vector<SequenceHash> path;
  for (const std::uint64_t number : numbers)
    path.push_back(SequenceHash{number});
  return path;
}

class PromptTrieTest : public testing::Test {
 protected:
  PromptTrie::Leaf Acquire(const std::vector<std::uint64_t>& path, LoadSlot slot = kA) {
    const auto acquired = trie_.Acquire(slot, Path(path));
    weight_[Raw(slot)] += acquired.change;
    return acquired.leaf;
  }
  void Release(PromptTrie::Leaf leaf, LoadSlot slot = kA) {
    weight_[Raw(slot)] += trie_.Release(slot, leaf);
  }
  void Fade(PromptTrie::Leaf leaf, double fraction, LoadSlot slot = kA) {
    weight_[Raw(slot)] += trie_.SetWeight(slot, leaf, WeightOf(fraction));
  }
  double Blocks(LoadSlot slot = kA) const {
    return static_cast<double>(weight_[Raw(slot)]) / static_cast<double>(kWholeBlock);
  }
  std::uint32_t Shared(const std::vector<std::uint64_t>& path, LoadSlot slot = kA) const {
    std::vector<std::uint32_t> shared(2, 0);
    trie_.SharedBlocks(Path(path), shared);
    return shared[Raw(slot)];
  }

  PromptTrie trie_;
  std::array<Weight, 2> weight_{};
};

TEST_F(PromptTrieTest, SamePromptTwiceCountsOnce_T1) {
  const auto first = Acquire({1, 2, 3});
  EXPECT_EQ(trie_.Acquire(kA, Path({1, 2, 3})).change, 0);
  EXPECT_EQ(Blocks(), 3);
  Release(first);
  EXPECT_EQ(Blocks(), 3);
}

TEST_F(PromptTrieTest, DivergingPrompts_T2) {
  const auto first = Acquire({1, 2, 3});
  const auto second = Acquire({1, 2, 4});
  EXPECT_EQ(Blocks(), 4);
  Release(first);
  EXPECT_EQ(Blocks(), 3);
  EXPECT_EQ(Shared({1, 2, 3}), 2u);
  EXPECT_EQ(Shared({1, 2, 4}), 3u);
  Release(second);
  EXPECT_EQ(Blocks(), 0);
  EXPECT_EQ(trie_.nodes(), 0u);
}

TEST_F(PromptTrieTest, ReleasingAPrefixOfALongerPromptFreesNothing_T3) {
  const auto longer = Acquire({1, 2, 3, 4});
  const auto prefix = Acquire({1, 2});
  EXPECT_EQ(Blocks(), 4);
  Release(prefix);
  EXPECT_EQ(Blocks(), 4);
  Release(longer);
  EXPECT_EQ(Blocks(), 0);
}

TEST_F(PromptTrieTest, SharingIsByDepth_T5) {
  Acquire({1, 2, 3});
  EXPECT_EQ(Shared({9, 3}), 0u);
  EXPECT_EQ(Shared({3}), 0u);
  const auto odd = Acquire({9, 3});
  EXPECT_EQ(Blocks(), 5);
  Release(odd);
  EXPECT_EQ(Blocks(), 3);
}

TEST_F(PromptTrieTest, Fixtures) {
  const auto r1 = Acquire({1, 2, 3});
  EXPECT_EQ(Blocks(), 3);
  const auto r2 = Acquire({5});
  EXPECT_EQ(Blocks(), 4);
  const auto r3 = Acquire({1, 2, 3, 4});
  EXPECT_EQ(Blocks(), 5);
  Release(r1);
  Release(r2);
  Release(r3);
  EXPECT_EQ(trie_.nodes(), 0u);
}

TEST_F(PromptTrieTest, RanksShareNothing) {
  Acquire({1, 2, 3}, kA);
  Acquire({1, 2, 9, 9}, kB);
  EXPECT_EQ(Blocks(kA), 3);
  EXPECT_EQ(Blocks(kB), 4);
  EXPECT_EQ(Shared({1, 2, 3, 7}, kA), 3u);
  EXPECT_EQ(Shared({1, 2, 3, 7}, kB), 2u);
}

TEST_F(PromptTrieTest, EmptyPathIsNothing) {
  const auto leaf = Acquire({});
  EXPECT_EQ(Blocks(), 0);
  Fade(leaf, 0.5);
  Release(leaf);
  EXPECT_EQ(Shared({}), 0u);
  EXPECT_EQ(trie_.nodes(), 0u);
}

TEST_F(PromptTrieTest, FractionReachesOnlyWhatIsExclusive_T15) {
  const auto holder = Acquire({1, 2, 3, 4});
  const auto other = Acquire({1, 2});
  Fade(holder, 0.5);
  EXPECT_EQ(Blocks(), 3.0);
  // What became exclusive later keeps its weight.
  Release(other);
  EXPECT_EQ(Blocks(), 3.0);
  Release(holder);
  EXPECT_EQ(Blocks(), 0);
}

TEST_F(PromptTrieTest, FractionOfADuplicateReachesNothing) {
  const auto first = Acquire({1, 2, 3});
  const auto second = Acquire({1, 2, 4});
  const auto duplicate = Acquire({1, 2, 3});
  EXPECT_EQ(Blocks(), 4);
  Fade(first, 0.5);
  EXPECT_EQ(Blocks(), 4);
  Release(duplicate);
  Fade(first, 0.5);
  EXPECT_EQ(Blocks(), 3.5);
  Fade(first, 0.25);
  EXPECT_EQ(Blocks(), 3.25);
  Release(first);
  EXPECT_EQ(Blocks(), 3);
  Release(second);
  EXPECT_EQ(Blocks(), 0);
}

TEST(Weights, RoundHalfAwayFromZero_T16) {
  EXPECT_EQ(RoundToBlocks(WeightOf(0.5)), 1u);
  EXPECT_EQ(RoundToBlocks(3 * kWholeBlock + WeightOf(0.5)), 4u);
  EXPECT_EQ(RoundToBlocks(3 * kWholeBlock + WeightOf(0.25)), 3u);
  EXPECT_EQ(RoundToBlocks(0), 0u);
}

// Every prefix of every active path, per rank, with its uses and weight.
class NaivePaths {
 public:
  using Hashes = std::vector<std::uint64_t>;

  void Acquire(LoadSlot slot, const Hashes& path) {
    for (std::size_t length = 1; length <= path.size(); ++length)
      ++blocks_[{Raw(slot), Hashes(path.begin(), path.begin() + std::ptrdiff_t(length))}].uses;
  }
  void Release(LoadSlot slot, const Hashes& path) {
    for (std::size_t length = 1; length <= path.size(); ++length) {
      const auto block =
          blocks_.find({Raw(slot), Hashes(path.begin(), path.begin() + std::ptrdiff_t(length))});
      if (--block->second.uses == 0) blocks_.erase(block);
    }
  }
  void SetWeight(LoadSlot slot, const Hashes& path, Weight weight) {
    for (std::size_t length = path.size(); length > 0; --length) {
      auto& block =
          blocks_[{Raw(slot), Hashes(path.begin(), path.begin() + std::ptrdiff_t(length))}];
      if (block.uses > 1) return;
      block.weight = weight;
    }
  }
  [[nodiscard]] Weight Total(LoadSlot slot) const {
    Weight total = 0;
    for (const auto& [key, block] : blocks_)
      total += key.first == Raw(slot) ? block.weight : 0;
    return total;
  }
  [[nodiscard]] std::uint32_t Shared(LoadSlot slot, const Hashes& path) const {
    std::uint32_t shared = 0;
    while (shared < path.size() &&
           blocks_.contains({Raw(slot), Hashes(path.begin(), path.begin() + shared + 1)}))
      ++shared;
    return shared;
  }

 private:
  struct Block {
    std::uint32_t uses = 0;
    Weight weight = kWholeBlock;
  };
  std::map<std::pair<std::uint32_t, Hashes>, Block> blocks_;
};

TEST(PromptTrieRandom, AgreesWithTheNaiveModel) {
  constexpr std::uint32_t kSlots = 5;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PromptTrie trie;
    NaivePaths naive;
    std::vector<Weight> weight(kSlots, 0);
    struct Live {
      LoadSlot slot;
      std::vector<std::uint64_t> path;
      PromptTrie::Leaf leaf;
    };
    std::vector<Live> live;
    const auto random_path = [&] {
      std::vector<std::uint64_t> path(rng.Below(9));
      for (auto& hash : path)
        hash = rng.Below(3);
      return path;
    };
    for (int step = 0; step < 600; ++step) {
      const std::uint64_t what = rng.Below(4);
      if (what < 2 || live.empty()) {
        Live added{LoadSlot{static_cast<std::uint32_t>(rng.Below(kSlots))}, random_path(), 0};
        const auto acquired = trie.Acquire(added.slot, Path(added.path));
        added.leaf = acquired.leaf;
        weight[Raw(added.slot)] += acquired.change;
        naive.Acquire(added.slot, added.path);
        live.push_back(added);
      } else {
        const std::size_t i = rng.Below(live.size());
        Live& one = live[i];
        if (what == 2) {
          const Weight faded = WeightOf(rng.Uniform());
          weight[Raw(one.slot)] += trie.SetWeight(one.slot, one.leaf, faded);
          naive.SetWeight(one.slot, one.path, faded);
        } else {
          weight[Raw(one.slot)] += trie.Release(one.slot, one.leaf);
          naive.Release(one.slot, one.path);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      const auto probe = random_path();
      std::vector<std::uint32_t> shared(kSlots, 0);
      trie.SharedBlocks(Path(probe), shared);
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        ASSERT_EQ(weight[slot], naive.Total(LoadSlot{slot})) << "step " << step;
        ASSERT_EQ(shared[slot], naive.Shared(LoadSlot{slot}, probe)) << "step " << step;
      }
    }
    for (const Live& one : live)
      weight[Raw(one.slot)] += trie.Release(one.slot, one.leaf);
    EXPECT_EQ(weight, std::vector<Weight>(kSlots, 0));
    EXPECT_EQ(trie.nodes(), 0u);
  }
}

}  // namespace
}  // namespace kvr::load
