// Readers beside writers of different ranks. Meant for the thread sanitizer as well.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "hashing/block_hash.h"
#include "index/run_arena.h"
#include "support/index_script.h"
#include "support/naive_index.h"
#include "support/three_shards.h"

namespace kvr::index {
namespace {

template <typename Index>
class IndexConcurrency : public testing::Test {};

using Indexes = testing::Types<NaiveIndex, RunArena, ThreeShards>;
TYPED_TEST_SUITE(IndexConcurrency, Indexes);

constexpr std::uint32_t kLength = 12;
constexpr std::uint32_t kBranches = 4;

// Chain `branch` shares its first half with all others.
std::string Chain(std::uint64_t branch, std::uint64_t end) {
  std::string text = "[";
  for (std::uint64_t i = 0; i < end; ++i)
    text += fmt::format("{},", i < kLength / 2 ? i + 1 : 100 * (branch + 1) + i);
  return text + "]";
}

// One worker's history. It never stores more than `cap` blocks of a chain.
std::vector<script::Op> History(std::uint64_t worker, std::uint64_t cap, std::uint64_t seed) {
  Rng rng(seed);
  std::string text;
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t branch = rng.Below(kBranches);
    const char* tier = rng.Below(3) == 0 ? "@host" : "";
    const std::uint64_t dice = rng.Below(20);
    if (dice < 11) {
      text += fmt::format("S{}{}:{};", worker, tier, Chain(branch, 1 + rng.Below(cap)));
    } else if (dice < 18) {
      text += fmt::format("R{}{}:{}{{{}}};", worker, tier, Chain(branch, cap), rng.Below(cap));
    } else if (dice < 19) {
      text += fmt::format("C{};", worker);
    } else {
      text += fmt::format("RR{};", worker);
    }
  }
  return script::Parse(text);
}

struct Writer {
  Rank rank;
  std::uint32_t cap = 0;
  std::vector<script::Op> history;
};

void Play(PrefixIndex& index, const std::vector<script::Op>& history) {
  RankSlot slot{};
  bool known = false;
  for (const script::Op& op : history) {
    if (op.kind == script::Op::Kind::kRemoveRank) {
      index.RemoveRank(op.rank);
      known = false;
      continue;
    }
    if (!known) slot = *index.AddRank(op.rank);
    known = true;
    index.Apply(slot, op.Event());
  }
}

// Depths never pass what the rank ever stored while all run, and equal the model's afterwards.
TYPED_TEST(IndexConcurrency, ReadersBesideWriters) {
  TypeParam index{IndexOptions{}};
  std::vector<Writer> writers;
  for (std::uint32_t w = 0; w < 4; ++w) {
    const std::uint32_t cap = kLength - 2 * w;
    writers.push_back({Rank{WorkerId{w}, 0}, cap, History(w, cap, 17 + w)});
  }
  std::vector<std::vector<BlockHash>> queries;
  for (std::uint32_t branch = 0; branch < kBranches; ++branch)
    queries.push_back(script::Parse("Q" + Chain(branch, kLength))[0].query);

  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> overcounts{0};
  std::atomic<std::uint64_t> strangers{0};  // blocks of another chain
  {
    std::vector<std::jthread> readers;
    for (int r = 0; r < 2; ++r) {
      readers.emplace_back([&] {
        OverlapScores scores;
        std::vector<SequenceHash> sequence;
        std::vector<BlockHash> found;
        // At least one round, however early the writers are done.
        for (bool last = false; !last;) {
          last = done;
          for (const auto& query : queries) {
            index.Match(query, {.device_holders = true}, scores);
            for (const RankSlot slot : scores.scored()) {
              const RankOverlap& overlap = scores.at(slot);
              overcounts += overlap.depth() > writers[Raw(overlap.rank.worker)].cap;
              ++answers;
            }
            hashing::ChainHashes(query, sequence);
            index.FindBlocks(sequence, found);
            strangers += !std::equal(found.begin(), found.end(), query.begin());
          }
          index.Dump([&answers](const PlacementEvent& event) { answers += event.blocks.size(); });
          answers += index.Stats().memberships;
        }
      });
    }
    {
      std::vector<std::jthread> threads;
      for (const Writer& writer : writers)
        threads.emplace_back([&index, &writer] { Play(index, writer.history); });
    }
    done = true;
  }
  EXPECT_EQ(overcounts, 0u);
  EXPECT_EQ(strangers, 0u);
  EXPECT_GT(answers, 0u);

  NaiveIndex model{IndexOptions{}};
  for (const Writer& writer : writers)
    Play(model, writer.history);
  for (const auto& query : queries) {
    std::map<Rank, script::Answer> got;
    std::map<Rank, script::Answer> expected;
    OverlapScores scores;
    index.Match(query, {}, scores);
    for (const RankSlot slot : scores.scored())
      got[scores.at(slot).rank] = {{scores.at(slot).blocks}, scores.at(slot).last};
    model.Match(query, {}, scores);
    for (const RankSlot slot : scores.scored())
      expected[scores.at(slot).rank] = {{scores.at(slot).blocks}, scores.at(slot).last};
    EXPECT_EQ(got, expected) << ToString(got) << ToString(expected);
  }
  EXPECT_EQ(index.Stats().memberships, model.Stats().memberships);
}

// A shared block that two ranks remove and store again is never lost, or left, for either.
TYPED_TEST(IndexConcurrency, ASharedBlockSurvivesRemoveAndStoreRaces) {
  TypeParam index{IndexOptions{}};
  const auto ops = script::Parse("S0,1:[1]; R0,1:[1]{0}; Q[1]");
  const RankSlot zero = *index.AddRank(ops[0].rank);
  const RankSlot one = *index.AddRank(ops[1].rank);
  {
    const auto toggle = [&index](RankSlot slot, const script::Op& store, const script::Op& remove) {
      for (int i = 0; i < 5'000; ++i) {
        index.Apply(slot, remove.Event());
        index.Apply(slot, store.Event());
      }
    };
    std::jthread first([&] { toggle(zero, ops[0], ops[2]); });
    std::jthread second([&] {
      toggle(one, ops[1], ops[3]);
      index.Apply(one, ops[3].Event());
    });
  }
  OverlapScores scores;
  index.Match(ops[4].query, {}, scores);
  EXPECT_EQ(scores.at(zero).device(), 1u);
  EXPECT_EQ(scores.at(one).device(), 0u);
  EXPECT_EQ(index.Stats().memberships, 1u);
}

// Row 86: an idempotent store beside queries of two threads never disturbs another rank's answer.
TYPED_TEST(IndexConcurrency, RepeatedStoresDisturbNobody) {
  constexpr int kStores = std::is_same_v<TypeParam, NaiveIndex> ? 20'000 : 200'000;
  TypeParam index{IndexOptions{}};
  const auto ops = script::Parse("S0,1:[1..3]; Q[1..3]");
  const RankSlot zero = *index.AddRank(ops[0].rank);
  const RankSlot one = *index.AddRank(ops[1].rank);
  index.Apply(zero, ops[0].Event());
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  {
    std::vector<std::jthread> readers;
    for (int r = 0; r < 2; ++r) {
      readers.emplace_back([&] {
        OverlapScores scores;
        bool held = false;
        for (bool last = false; !last;) {
          last = done;
          index.Match(ops[2].query, {}, scores);
          const std::uint32_t other = scores.at(one).device();
          wrong += scores.at(zero).device() != 3 || scores.scored().size() > 2;
          wrong += other != 3 && (other != 0 || held);  // once seen it stays
          held = other == 3;
        }
        wrong += !held;
      });
    }
    for (int i = 0; i < kStores; ++i)
      wrong += index.Apply(one, ops[1].Event()).duplicate_store != (i > 0);
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(index.Stats().memberships, 6u);
}

// A query that starts after RemoveRank does not report the rank, and its slot's next owner has
// nothing of it.
TYPED_TEST(IndexConcurrency, ARemovedRankIsGoneAtOnce) {
  TypeParam index{IndexOptions{}};
  const auto ops = script::Parse("S0,1:[1..3]; Q[1..3]");
  std::uint64_t wrong = 0;
  {
    std::atomic<bool> done{false};
    std::jthread other([&] {
      while (!done)
        Play(index, {ops[1]});
    });
    OverlapScores scores;
    for (int i = 0; i < 500; ++i) {
      const RankSlot slot = *index.AddRank(ops[0].rank);
      index.Apply(slot, ops[0].Event());
      index.Match(ops[2].query, {}, scores);
      wrong += scores.at(slot).rank != ops[0].rank || scores.at(slot).device() != 3;
      index.RemoveRank(ops[0].rank);
      index.Match(ops[2].query, {}, scores);
      for (const RankSlot scored : scores.scored())
        wrong += scores.at(scored).rank == ops[0].rank;
      const RankSlot heir = *index.AddRank(Rank{WorkerId{9}, 0});
      index.Match(ops[2].query, {}, scores);
      wrong += scores.at(heir).device() != 0;
      index.RemoveRank(Rank{WorkerId{9}, 0});
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
}

// A rank with many runs leaves while others change the shape of the same runs and queries walk
// them.
TYPED_TEST(IndexConcurrency, OthersGoOnWhileARankLeaves) {
  constexpr std::uint32_t kChains = 600;
  constexpr std::uint32_t kBlocks = 8;
  const auto chain = [](std::uint32_t number, std::uint32_t end) {
    std::vector<PlacedBlock> blocks;
    for (std::uint32_t i = 0; i < end; ++i)
      blocks.push_back({EngineHash{number * 100 + i}, BlockHash{number * 100 + i}});
    return blocks;
  };
  const auto store = [&chain](PrefixIndex& index, RankSlot slot, std::uint32_t number,
                              std::uint32_t end) {
    const std::vector<PlacedBlock> blocks = chain(number, end);
    PlacementEvent event;
    event.blocks = blocks;
    index.Apply(slot, event);
  };
  TypeParam index{IndexOptions{.remembered_names_max = 0}};
  const Rank leaver{WorkerId{1}, 0};
  const Rank other{WorkerId{2}, 0};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  {
    std::jthread writer([&] {
      const RankSlot slot = *index.AddRank(other);
      Rng rng(1);
      while (!done) {
        const auto number = static_cast<std::uint32_t>(rng.Below(kChains));
        store(index, slot, number, 1 + static_cast<std::uint32_t>(rng.Below(kBlocks)));
        const std::vector<EngineHash> removed = {
            EngineHash{rng.Below(kChains) * 100 + rng.Below(kBlocks)}};
        PlacementEvent event;
        event.kind = PlacementKind::kRemoved;
        event.removed = removed;
        index.Apply(slot, event);
      }
    });
    std::jthread reader([&] {
      OverlapScores scores;
      Rng rng(2);
      while (!done) {
        std::vector<BlockHash> query;
        for (const PlacedBlock& block :
             chain(static_cast<std::uint32_t>(rng.Below(kChains)), kBlocks + 1))
          query.push_back(block.local);
        index.Match(query, {}, scores);
        for (const RankSlot scored : scores.scored())
          wrong += scores.at(scored).depth() > kBlocks;
        index.Dump([&wrong](const PlacementEvent& event) { wrong += event.blocks.empty(); });
      }
    });
    OverlapScores scores;
    for (int round = 0; round < 12; ++round) {
      const RankSlot slot = *index.AddRank(leaver);
      for (std::uint32_t number = 0; number < kChains; ++number)
        store(index, slot, number, kBlocks);
      if (round % 2 == 0) {
        wrong += !index.RemoveRank(leaver);
        wrong += index.FindRank(leaver).has_value();
      } else {
        PlacementEvent event;
        event.kind = PlacementKind::kCleared;
        index.Apply(slot, event);
        wrong += index.StatsOf(slot).blocks[0];
      }
      for (std::uint32_t number = 0; number < kChains; ++number) {
        index.Match(std::vector<BlockHash>{BlockHash{number * 100}}, {}, scores);
        for (const RankSlot scored : scores.scored())
          wrong += scores.at(scored).rank == leaver;
      }
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  index.RemoveRank(leaver);
  index.RemoveRank(other);
  EXPECT_EQ(index.Stats().nodes + index.Stats().idle_nodes, 0u);
}

// Chains that are held all the time are found by their sequence hashes while others come and go
// beside them, at each of their blocks.
TYPED_TEST(IndexConcurrency, HeldChainsAreFoundBesideOthers) {
  constexpr std::uint64_t kHeld = 8;
  TypeParam index{IndexOptions{.remembered_names_max = 0}};
  const auto ops = script::Parse("S0:[1..6]; S1:[1..6]");
  const RankSlot holder = *index.AddRank(ops[0].rank);
  const RankSlot churner = *index.AddRank(ops[1].rank);
  // Leaves the others' path behind block `from`, 1 to 6.
  const auto branch = [](std::uint64_t from, std::uint64_t number) {
    return fmt::format("[1..{}]+[{},{}]", from, 100 * number, 100 * number + 1);
  };
  std::vector<std::vector<BlockHash>> held;
  index.Apply(holder, ops[0].Event());
  for (std::uint64_t i = 0; i < kHeld; ++i) {
    index.Apply(holder, script::Parse("S0:" + branch(1 + i % 6, 1 + i))[0].Event());
    held.push_back(script::Parse("Q" + branch(1 + i % 6, 1 + i))[0].query);
  }
  std::atomic<bool> done{false};
  std::uint64_t wrong = 0;
  {
    std::jthread writer([&] {
      Rng rng(5);
      for (int i = 0; i < 4'000; ++i) {
        if (i % 3 == 0) index.Apply(churner, ops[1].Event());
        const std::string other = branch(1 + rng.Below(6), 50 + rng.Below(20));
        index.Apply(churner, script::Parse("S1:" + other)[0].Event());
        if (i % 3 == 2) index.Apply(churner, script::Parse("C1")[0].Event());
      }
      done = true;
    });
    std::vector<SequenceHash> sequence;
    std::vector<BlockHash> found;
    for (bool last = false; !last;) {
      last = done;
      for (const auto& chain : held) {
        hashing::ChainHashes(chain, sequence);
        index.FindBlocks(sequence, found);
        wrong += found != chain;
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
}

// Ranks hold beginnings of one long chain, more of them than a run has parts: it is split and
// joined, at its head and its tail, while the holder of all is asked for.
class LongChain {
 public:
  static constexpr std::uint32_t kRanks = 24;
  static constexpr std::uint32_t kHead = 5;
  static constexpr std::uint32_t kBlocks = 1'000;
  static constexpr std::uint32_t kConversations = 40;

  explicit LongChain(PrefixIndex& index) : index_(index) {
    holder_ = *index_.AddRank(Rank{WorkerId{0}, 0});
    // Leaves the others' path early, and is there first, so that theirs goes on in another run.
    std::vector<PlacedBlock> blocks = Blocks(0, kHead);
    blocks.push_back({EngineHash{9'000'000}, BlockHash{9'000'000}});
    PlacementEvent event;
    event.blocks = blocks;
    index_.Apply(holder_, event);
    for (std::uint32_t i = 0; i < kConversations; ++i)
      Store(holder_, i, kBlocks + 1);
    for (const PlacedBlock& block : Blocks(3, kBlocks + 1))
      query_.push_back(block.local);
    hashing::ChainHashes(query_, sequence_);
  }

  // Splits the chain, and lets it be joined again.
  void Reshape(Rng& rng) {
    for (std::uint32_t rank = 1; rank <= kRanks; ++rank) {
      const auto end = kHead + 1 + static_cast<std::uint32_t>(rng.Below(kBlocks - kHead));
      Store(*index_.AddRank(Rank{WorkerId{rank}, 0}), 0, end);
    }
    for (std::uint32_t rank = 1; rank <= kRanks; ++rank) {
      PlacementEvent event;
      event.kind = PlacementKind::kCleared;
      index_.Apply(*index_.AddRank(Rank{WorkerId{rank}, 0}), event);
    }
  }

  [[nodiscard]] bool IsFoundBySequence(std::vector<BlockHash>& found) const {
    index_.FindBlocks(sequence_, found);
    return found == query_;
  }
  [[nodiscard]] bool IsMatched(OverlapScores& scores) const {
    index_.Match(query_, {}, scores);
    return scores.at(holder_).depth() == query_.size();
  }
  // As the longest of several that end elsewhere.
  [[nodiscard]] bool IsMatchedAmongOthers(std::vector<OverlapScores>& scores) const {
    std::vector<std::span<const BlockHash>> queries;
    for (std::size_t i = scores.size(); i-- > 0;)
      queries.push_back(std::span(query_).first(query_.size() - i * 10));
    index_.MatchMany(queries, {}, scores);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (scores[i].at(holder_).depth() != queries[i].size()) return false;
    }
    return true;
  }

 private:
  static std::vector<PlacedBlock> Blocks(std::uint32_t conversation, std::uint32_t end) {
    std::vector<PlacedBlock> blocks;
    for (std::uint64_t i = 0; i < end; ++i) {
      const std::uint64_t local = i < kBlocks ? i + 1 : 1'000'000 + conversation;
      blocks.push_back({EngineHash{local}, BlockHash{local}});
    }
    return blocks;
  }
  void Store(RankSlot slot, std::uint32_t conversation, std::uint32_t end) {
    const std::vector<PlacedBlock> blocks = Blocks(conversation, end);
    PlacementEvent event;
    event.blocks = blocks;
    index_.Apply(slot, event);
  }

  PrefixIndex& index_;
  RankSlot holder_{};
  std::vector<BlockHash> query_;
  std::vector<SequenceHash> sequence_;
};

TYPED_TEST(IndexConcurrency, AHeldChainIsFoundWhileItIsSplitAndJoined) {
  constexpr bool kSlow = std::is_same_v<TypeParam, NaiveIndex>;
  constexpr int kRounds = kSlow ? 3 : 100;
  TypeParam index{IndexOptions{.remembered_names_max = 0}};
  LongChain chain(index);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  {
    std::vector<std::jthread> readers;
    for (int r = 0; r < 2; ++r) {
      readers.emplace_back([&] {
        std::vector<BlockHash> found;
        OverlapScores scores;
        std::vector<OverlapScores> many(3);
        for (bool last = false; !last;) {
          last = done;
          wrong += !chain.IsFoundBySequence(found);
          wrong += !chain.IsMatched(scores);
          wrong += !chain.IsMatchedAmongOthers(many);
        }
      });
    }
    Rng rng(7);
    for (int round = 0; round < kRounds; ++round)
      chain.Reshape(rng);
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  if (std::is_same_v<TypeParam, RunArena>) {
    EXPECT_GE(index.Stats().splits, static_cast<std::uint64_t>(kRounds));
    EXPECT_GE(index.Stats().joins, static_cast<std::uint64_t>(kRounds) - 1);
  }
}

// A change of shape that moves thousands of children outlasts the looks of a query, which waits for
// it then, and is told of the whole chain.
TEST(RunArenaConcurrency, AQueryWaitsForALongChangeOfShape) {
  constexpr std::uint64_t kBlocks = 4'000;
  constexpr std::uint64_t kBranch = kBlocks * 7 / 8;
  constexpr std::uint64_t kRanks = 24;
  RunArena index{IndexOptions{.remembered_names_max = 0}};
  const RankSlot holder = *index.AddRank(Rank{WorkerId{0}, 0});
  const auto block = [](std::uint64_t chain, std::uint64_t i, bool branch) {
    const std::uint64_t local = chain << 32 | (branch ? 1ull << 31 : 0) | i;
    return PlacedBlock{EngineHash{local}, BlockHash{local}};
  };
  const auto store = [&index](RankSlot slot, std::optional<EngineHash> parent,
                              std::span<const PlacedBlock> blocks) {
    PlacementEvent event;
    event.parent = parent;
    event.blocks = blocks;
    index.Apply(slot, event);
  };
  std::atomic<std::uint64_t> chains{0};  // that the holder has, each with a branch at each block
  std::atomic<bool> done{false};
  std::uint64_t wrong = 0;
  {
    std::jthread reader([&] {
      OverlapScores scores;
      std::vector<BlockHash> query;
      while (!done) {
        const std::uint64_t chain = chains;
        if (chain == 0) continue;
        query.clear();
        for (std::uint64_t i = 1; i <= kBranch; ++i)
          query.push_back(block(chain, i, false).local);
        query.push_back(block(chain, kBranch, true).local);
        while (!done && chains == chain) {
          index.Match(query, {}, scores);
          wrong += scores.at(holder).depth() != query.size();
        }
      }
    });
    std::vector<PlacedBlock> blocks;
    while (index.Stats().query_waits == 0) {
      const std::uint64_t chain = chains + 1;
      blocks.clear();
      for (std::uint64_t i = 1; i <= kBlocks; ++i)
        blocks.push_back(block(chain, i, false));
      store(holder, {}, blocks);
      for (std::uint64_t i = 1; i < kBlocks; ++i) {
        const PlacedBlock branch = block(chain, i, true);
        store(holder, block(chain, i, false).engine, std::span(&branch, 1));
      }
      chains = chain;
      // More parts than a run has: it is split, and stays so.
      for (std::uint64_t rank = 1; rank <= kRanks; ++rank) {
        const RankSlot slot = *index.AddRank(Rank{WorkerId{rank}, 0});
        store(slot, {}, std::span(blocks).first(kBlocks / 2 + 37 * rank));
      }
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(index.Stats().query_retries, index.Stats().query_waits);
}

// At its limit an index drops blocks of all ranks while queries walk them; no answer passes what
// the rank stored, and names the right block.
TEST(RunArenaConcurrency, EvictsBesideReaders) {
  constexpr std::uint32_t kBlocks = 40;
  RunArena index{IndexOptions{.remembered_names_max = 16, .memory_limit = 400'000}};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> answers{0};
  const auto local = [](std::uint64_t chain, std::uint32_t i) {
    return BlockHash{i < 10 ? i + 1 : chain * 1'000 + i};
  };
  {
    std::vector<std::jthread> readers;
    for (std::uint64_t r = 0; r < 2; ++r) {
      readers.emplace_back([&, r] {
        OverlapScores scores;
        Rng rng(r);
        for (bool last = false; !last;) {
          last = done;
          const std::uint64_t chain = 1 + rng.Below(1'000);
          std::vector<BlockHash> query;
          for (std::uint32_t i = 0; i < kBlocks; ++i)
            query.push_back(local(chain, i));
          index.Match(query, {}, scores);
          for (const RankSlot slot : scores.scored()) {
            const RankOverlap& overlap = scores.at(slot);
            const std::uint64_t rank = Raw(overlap.rank.worker);
            wrong += overlap.depth() == 0 || overlap.depth() > kBlocks - rank ||
                     Raw(overlap.last) != Raw(query[overlap.depth() - 1]) + (rank << 40);
            ++answers;
          }
        }
      });
    }
    {
      std::vector<std::jthread> writers;
      for (std::uint64_t w = 0; w < 2; ++w) {
        writers.emplace_back([&, w] {
          Rng rng(10 + w);
          for (int step = 0; step < 4'000; ++step) {
            const std::uint64_t rank = 2 * rng.Below(3) + w;
            const RankSlot slot = *index.AddRank(Rank{WorkerId{rank}, 0});
            const std::uint64_t chain = 1 + rng.Below(1'000);
            std::vector<PlacedBlock> blocks;
            for (std::uint32_t i = 0; i < kBlocks - rank; ++i)
              blocks.push_back({EngineHash{Raw(local(chain, i)) + (rank << 40)}, local(chain, i)});
            PlacementEvent event;
            event.blocks = blocks;
            index.Apply(slot, event);
          }
        });
      }
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(answers, 0u);
  EXPECT_GT(index.Stats().evicted_blocks, 0u);
  // Readers may have held something back; the next update frees it.
  const RankSlot slot = *index.AddRank(Rank{WorkerId{0}, 0});
  PlacementEvent event;
  index.Apply(slot, event);
  EXPECT_LE(index.Stats().bytes, 400'000u);
}

// A rank goes along a chain that another one holds, block by block and back, and gives the blocks
// other names each time: a query never reads a name that is being written.
TEST(RunArenaConcurrency, NamesBlocksBesideReaders) {
  constexpr std::uint32_t kBlocks = 600;
  constexpr std::uint64_t kTurns = 12;
  RunArena index{IndexOptions{.remembered_names_max = 16}};
  const RankSlot other = *index.AddRank(Rank{WorkerId{1}, 0});
  const RankSlot slot = *index.AddRank(Rank{WorkerId{2}, 0});
  const auto name_of = [](std::uint64_t turn, std::uint64_t block) {
    return EngineHash{turn * 1'000'000 + block};
  };
  std::vector<PlacedBlock> chain;
  std::vector<BlockHash> query;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    chain.push_back({name_of(0, i), BlockHash{i + 1}});
    query.push_back(BlockHash{i + 1});
  }
  PlacementEvent event;
  event.blocks = chain;
  index.Apply(other, event);

  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  const auto read = [&] {
    OverlapScores scores;
    while (!done) {
      index.Match(query, {}, scores);
      for (const RankSlot scored : scores.scored()) {
        const RankOverlap& overlap = scores.at(scored);
        const std::uint64_t name = Raw(overlap.last);
        wrong += name % 1'000'000 != overlap.depth() - 1;
        wrong += (scored == other) != (name < 1'000'000);
      }
    }
  };
  {
    const std::jthread first(read);
    const std::jthread second(read);
    for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
      for (std::uint32_t i = 0; i < kBlocks; ++i) {
        const PlacedBlock block{name_of(turn, i), BlockHash{i + 1}};
        event = {};
        if (i > 0) event.parent = name_of(turn, i - 1);
        event.blocks = {&block, 1};
        wrong += index.Apply(slot, event).status != ApplyStatus::kOk;
      }
      for (std::uint32_t i = kBlocks; i-- > 0;) {
        const EngineHash name = name_of(turn, i);
        event = {};
        event.kind = PlacementKind::kRemoved;
        event.removed = {&name, 1};
        wrong += index.Apply(slot, event).status != ApplyStatus::kOk;
      }
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
}

// Many ranks hold other parts of the same two chains, half of them under names of their own, so
// that runs are split, joined, cut and freed while queries walk them. An answer never passes what
// the rank ever stores, and ends in the rank's own name of the block there.
TYPED_TEST(IndexConcurrency, RunsChangeShapeBesideReaders) {
  constexpr std::uint32_t kRanks = 48;
  constexpr std::uint32_t kBlocks = 60;
  constexpr std::uint32_t kFork = 25;
  constexpr std::uint32_t kThreads = 2;
  const auto local = [](std::uint32_t branch, std::uint32_t i) {
    return BlockHash{i < kFork ? i : 1'000 * (branch + 1) + i};
  };
  const auto name = [&](std::uint32_t rank, std::uint32_t branch, std::uint32_t i) {
    return EngineHash{Raw(local(branch, i)) + (rank % 2 == 0 ? 0 : 1'000'000 * rank)};
  };
  const auto cap = [](std::uint32_t rank) { return kBlocks - rank % 20; };

  TypeParam index{IndexOptions{.remembered_names_max = 16}};
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> answers{0};
  const auto read = [&] {
    OverlapScores scores;
    for (bool last = false; !last;) {
      last = done;
      for (std::uint32_t branch = 0; branch < 2; ++branch) {
        std::vector<BlockHash> query;
        for (std::uint32_t i = 0; i < kBlocks; ++i)
          query.push_back(local(branch, i));
        index.Match(query, {}, scores);
        for (const RankSlot slot : scores.scored()) {
          const RankOverlap& overlap = scores.at(slot);
          const auto rank = static_cast<std::uint32_t>(Raw(overlap.rank.worker));
          wrong += overlap.depth() == 0 || overlap.depth() > cap(rank) ||
                   overlap.last != name(rank, branch, overlap.depth() - 1);
          ++answers;
        }
      }
    }
  };
  const auto write = [&](std::uint32_t thread) {
    Rng rng(thread);
    std::vector<PlacedBlock> blocks;
    std::vector<EngineHash> removed;
    for (int step = 0; step < 6'000; ++step) {
      const auto rank =
          static_cast<std::uint32_t>(rng.Below(kRanks / kThreads)) * kThreads + thread;
      const Rank id{WorkerId{rank}, 0};
      const RankSlot slot = *index.AddRank(id);
      const auto branch = static_cast<std::uint32_t>(rng.Below(2));
      PlacementEvent event;
      event.tier = rng.Below(4) == 0 ? Tier::kHostPinned : Tier::kDevice;
      const std::uint64_t dice = rng.Below(100);
      if (dice < 60) {
        blocks.clear();
        const std::uint64_t end = 1 + rng.Below(cap(rank));
        for (std::uint32_t i = 0; i < end; ++i)
          blocks.push_back({name(rank, branch, i), local(branch, i)});
        event.blocks = blocks;
      } else if (dice < 97) {
        removed.clear();
        const auto begin = static_cast<std::uint32_t>(rng.Below(kBlocks));
        const std::uint32_t end = rng.Below(3) == 0 ? begin + 1 : kBlocks;
        for (std::uint32_t i = end; i-- > begin;)
          removed.push_back(name(rank, branch, i));
        event.kind = PlacementKind::kRemoved;
        event.removed = removed;
      } else if (dice < 99) {
        event.kind = PlacementKind::kCleared;
      } else {
        index.RemoveRank(id);
        continue;
      }
      index.Apply(slot, event);
    }
  };
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 2; ++i)
      readers.emplace_back(read);
    {
      std::vector<std::jthread> writers;
      for (std::uint32_t thread = 0; thread < kThreads; ++thread)
        writers.emplace_back(write, thread);
    }
    done = true;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(answers, 0u);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank)
    index.RemoveRank(Rank{WorkerId{rank}, 0});
  const IndexStats stats = index.Stats();
  EXPECT_EQ(stats.nodes + stats.idle_nodes + stats.memberships, 0u);
}

// Many conversations hang behind one prompt, of which other ranks hold and drop beginnings of any
// length: it is split and joined all the time. The rank that holds all is never found with less.
TYPED_TEST(IndexConcurrency, ConversationsStayFoundWhileTheirPromptChangesShape) {
  constexpr std::uint32_t kPrompt = 60;
  constexpr std::uint32_t kConversations = 300;
  constexpr std::uint32_t kOthers = 24;
  const auto local = [](std::uint32_t i, std::uint32_t conversation) {
    return BlockHash{i < kPrompt ? i + 1 : 1'000 + conversation};
  };
  const auto query_of = [&](std::uint32_t conversation) {
    std::vector<BlockHash> query;
    for (std::uint32_t i = 0; i <= kPrompt; ++i)
      query.push_back(local(i, conversation));
    return query;
  };
  TypeParam index{IndexOptions{.remembered_names_max = 16}};
  const auto store = [&](RankSlot slot, std::uint32_t conversation, std::uint32_t end) {
    std::vector<PlacedBlock> blocks;
    for (std::uint32_t i = 0; i < end; ++i)
      blocks.push_back({EngineHash{Raw(local(i, conversation))}, local(i, conversation)});
    PlacementEvent event;
    event.blocks = blocks;
    index.Apply(slot, event);
  };
  const Rank holder{WorkerId{0}, 0};
  const RankSlot held_by = *index.AddRank(holder);
  for (std::uint32_t i = 0; i < kConversations; ++i)
    store(held_by, i, kPrompt + 1);

  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> answers{0};
  std::atomic<std::uint64_t> low{0};
  {
    std::vector<std::jthread> readers;
    for (std::uint64_t r = 0; r < 2; ++r) {
      readers.emplace_back([&, r] {
        Rng rng(r);
        OverlapScores scores;
        for (bool last = false; !last;) {
          last = done;
          index.Match(query_of(static_cast<std::uint32_t>(rng.Below(kConversations))), {}, scores);
          low += scores.at(held_by).depth() < kPrompt + 1;
          ++answers;
        }
      });
    }
    Rng rng(7);
    for (int step = 0; step < 3'000 || answers < 20'000; ++step) {
      const RankSlot slot = *index.AddRank(Rank{WorkerId{1 + rng.Below(kOthers)}, 0});
      if (rng.Below(5) < 3) {
        store(slot, 0, 1 + static_cast<std::uint32_t>(rng.Below(kPrompt)));
      } else {
        PlacementEvent clear;
        clear.kind = PlacementKind::kCleared;
        index.Apply(slot, clear);
      }
    }
    done = true;
  }
  EXPECT_EQ(low, 0u);
  EXPECT_GT(answers, 0u);
}

}  // namespace
}  // namespace kvr::index
