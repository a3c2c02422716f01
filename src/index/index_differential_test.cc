// Random histories against the reference model. A failure prints its seed and the history in the
// notation of index_script.h, cut down to what still fails.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "hashing/block_hash.h"
#include "index/run_arena.h"
#include "index/sharded_index.h"
#include "support/index_script.h"
#include "support/naive_index.h"

namespace kvr::index {
namespace {

struct Profile {
  const char* name;
  std::uint32_t workers = 3;
  std::uint32_t dp_ranks = 2;
  std::uint32_t chains = 24;
  std::uint32_t length = 40;
  bool tiers = false;
  bool illegal = false;
  bool own_names = false;
  bool far_locals = false;  // same low bits, 0 and 2^64-1 among them
  bool small_limits = false;
  bool few_names = false;  // each is that of several blocks
};

constexpr Profile kProfiles[] = {
    {.name = "device"},
    {.name = "tiers", .tiers = true},
    {.name = "illegal", .tiers = true, .illegal = true},
    {.name = "own_names", .tiers = true, .own_names = true},
    {.name = "far_locals", .tiers = true, .far_locals = true},
    {.name = "small_limits", .tiers = true, .illegal = true, .small_limits = true},
    {.name = "many_ranks", .workers = 75, .chains = 12, .length = 12, .tiers = true},
    // Many lengths of few chains: runs are split and joined again.
    {.name = "crowded", .workers = 30, .dp_ranks = 1, .chains = 4, .length = 60, .tiers = true},
    {.name = "crowded_names",
     .workers = 30,
     .dp_ranks = 1,
     .chains = 4,
     .length = 60,
     .tiers = true,
     .own_names = true,
     .small_limits = true},
    {.name = "crowded_illegal",
     .workers = 25,
     .dp_ranks = 1,
     .chains = 3,
     .length = 30,
     .tiers = true,
     .illegal = true},
    {.name = "few_names",
     .workers = 2,
     .dp_ranks = 1,
     .chains = 40,
     .length = 6,
     .tiers = true,
     .illegal = true,
     .few_names = true},
    {.name = "long_chains", .workers = 2, .dp_ranks = 1, .chains = 5, .length = 1'300},
};

// More than a million operations over all profiles; fewer where the build is not optimised, to keep
// the suite quick. KVR_TEST_SEEDS=280 makes it ten million.
#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 28;
constexpr std::uint64_t kSeedsBesideReaders = 4;
#else
constexpr std::uint64_t kSeeds = 2;
constexpr std::uint64_t kSeedsBesideReaders = 1;
#endif

IndexOptions OptionsOf(const Profile& profile) {
  IndexOptions options;
  if (profile.small_limits) {
    options.pending_blocks_max = 5;
    options.remembered_names_max = 4;
  }
  return options;
}

// Writes one history: a statement an element.
class Generator {
 public:
  Generator(const Profile& profile, std::uint64_t seed) : profile_(profile), rng_(seed) {
    for (std::uint32_t i = 0; i < profile.chains; ++i) {
      std::vector<std::string> chain;
      if (i > 0 && OneIn(2)) {  // half share a prefix
        const auto& other = chains_[rng_.Below(i)];
        chain.assign(other.begin(), other.begin() + AsDiff(rng_.Below(other.size()) + 1));
      }
      const std::size_t length = 1 + rng_.Below(profile.length);
      while (chain.size() < length)
        chain.push_back(NewLocal());
      chains_.push_back(std::move(chain));
    }
  }

  [[nodiscard]] const std::vector<std::vector<std::string>>& chains() const { return chains_; }

  std::vector<std::string> History(std::size_t updates) {
    std::vector<std::string> history;
    while (history.size() < updates) {
      const std::uint64_t dice = rng_.Below(100);
      if (profile_.few_names) {
        FewNames(history);
      } else if (profile_.illegal && OneIn(20)) {
        Illegal(history);
      } else if (dice < 40) {
        Store(history);
      } else if (dice < 52) {
        Decode(history);
      } else if (dice < 94) {
        Remove(history);
      } else if (dice < 97) {
        history.push_back("C" + RankText());
      } else if (dice < 99) {
        history.push_back("RR" + RankText());
      } else {
        history.push_back(fmt::format("RW{}", rng_.Below(profile_.workers)));
      }
    }
    return history;
  }

  std::vector<std::string> Removals(std::size_t count) {
    std::vector<std::string> removals;
    while (removals.size() < count) {
      if (profile_.few_names) {
        removals.push_back(fmt::format("R{}:[]{{^{}}} !any", RankText() + TierText(), Name()));
      } else {
        Remove(removals);
      }
    }
    return removals;
  }

  // A live chain, now and then with one block replaced.
  std::string Query() {
    std::vector<std::string> chain = Pick();
    if (OneIn(4)) chain[rng_.Below(chain.size())] = NewLocal();
    return fmt::format("Q[{}]", fmt::join(chain, ","));
  }

 private:
  static std::ptrdiff_t AsDiff(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }
  bool OneIn(std::uint64_t n) { return rng_.Below(n) == 0; }
  const std::vector<std::string>& Pick() { return chains_[rng_.Below(chains_.size())]; }

  std::string NewLocal() {
    const std::uint64_t value = rng_.Below(profile_.few_names ? 4 : 8);
    if (!profile_.far_locals) return std::to_string(value + 1);
    if (value == 0) return "0";
    if (value == 1) return "M";
    return std::to_string(value << 40);
  }

  std::string RankText() {
    const std::uint64_t worker = rng_.Below(profile_.workers);
    const std::uint64_t dp_rank = rng_.Below(profile_.dp_ranks);
    return dp_rank == 0 ? fmt::format("{}", worker) : fmt::format("{}.{}", worker, dp_rank);
  }

  std::string TierText() {
    static constexpr const char* kTiers[] = {"", "", "", "@host", "@host", "@disk", "@ext"};
    return profile_.tiers ? kTiers[rng_.Below(std::size(kTiers))] : "";
  }

  // Of blocks that are eligible or not.
  std::string StoreText() { return OneIn(3) ? "S" : "E"; }

  static std::string Span(const std::vector<std::string>& chain, std::size_t begin,
                          std::size_t end) {
    return fmt::format("[{}]",
                       fmt::join(chain.begin() + AsDiff(begin), chain.begin() + AsDiff(end), ","));
  }

  void Store(std::vector<std::string>& history) {
    const auto& chain = Pick();
    const std::string who = StoreText() + RankText() + TierText();
    const std::size_t end = 1 + rng_.Below(chain.size());
    const std::size_t cut = rng_.Below(10) < 3 ? rng_.Below(end) : 0;
    if (cut > 0) history.push_back(fmt::format("{}:{} !any", who, Span(chain, 0, cut)));
    const std::string parent = cut > 0 ? Span(chain, 0, cut) + "+" : "";
    history.push_back(fmt::format("{}:{}{} !any", who, parent, Span(chain, cut, end)));
  }

  // One more block behind a part of a chain, held or not.
  void Decode(std::vector<std::string>& history) {
    const auto& chain = Pick();
    const std::size_t at = rng_.Below(chain.size());
    const std::string parent = at > 0 ? Span(chain, 0, at) + "+" : "";
    const std::string who = RankText() + TierText();
    if (profile_.tiers && OneIn(2)) {
      history.push_back(fmt::format("{}{}:{}{{{}}} !any", OneIn(6) ? "HE" : "H", who,
                                    Span(chain, 0, at + 1), at));
    } else {
      history.push_back(
          fmt::format("{}{}:{}{} !any", StoreText(), who, parent, Span(chain, at, at + 1)));
    }
  }

  void Remove(std::vector<std::string>& history) {
    const auto& chain = Pick();
    const std::uint64_t dice = rng_.Below(100);
    std::size_t begin = rng_.Below(chain.size());
    std::size_t end = chain.size();
    if (dice >= 35 && dice < 50) {  // a head run
      end = begin + 1;
      begin = 0;
    } else if (dice >= 50 && dice < 70) {  // one in the middle
      end = begin + 1;
    }
    std::vector<std::size_t> positions;
    for (std::size_t i = begin; i < end; ++i) {
      if (dice < 70 || OneIn(2)) positions.push_back(i);
    }
    if (OneIn(3)) {
      std::reverse(positions.begin(), positions.end());
    } else if (OneIn(2)) {
      for (std::size_t i = positions.size(); i > 1; --i)
        std::swap(positions[i - 1], positions[rng_.Below(i)]);
    }
    const std::string tier = TierText();
    history.push_back(fmt::format("R{}{}:{}{{{}}} !any", RankText(), tier,
                                  Span(chain, 0, chain.size()), fmt::join(positions, ",")));
  }

  std::uint64_t Name() { return rng_.Below(9); }
  void FewNames(std::vector<std::string>& history) {
    const std::string who = RankText() + TierText();
    const std::uint64_t dice = rng_.Below(100);
    if (dice < 65) {
      const bool at_root = OneIn(3);
      std::uint64_t before = Name();
      const std::string parent = at_root ? "" : fmt::format("^{}+", before);
      std::vector<std::string> blocks;
      for (std::uint64_t left = 1 + rng_.Below(3); left > 0; --left) {
        std::uint64_t next = Name();
        if (next == before && !OneIn(20)) next = (next + 1) % 9;
        blocks.push_back(fmt::format("{}/{}", 1 + rng_.Below(4), next));
        before = next;
      }
      history.push_back(
          fmt::format("{}{}:{}[{}] !any", StoreText(), who, parent, fmt::join(blocks, ",")));
    } else if (dice < 90) {
      history.push_back(fmt::format("R{}:[]{{^{},^{}}} !any", who, Name(), Name()));
    } else if (dice < 98) {
      history.push_back(fmt::format("H{}:[]{{^{}}} !any", who, Name()));
    } else {
      history.push_back("C" + RankText());
    }
  }

  void Illegal(std::vector<std::string>& history) {
    const auto& chain = Pick();
    const std::string all = Span(chain, 0, chain.size());
    const std::string who = RankText() + TierText();
    const std::uint64_t odd = rng_.Below(6);  // names that several blocks share
    switch (rng_.Below(7)) {
      case 0:
        history.push_back(fmt::format("S{}:^{}+{} !any", who, odd, all));
        break;
      case 1:
        history.push_back(fmt::format("R{}:[]{{^{}}} !any", who, odd));
        break;
      case 2:
        history.push_back(fmt::format("R{}:{}{{0,0,^{}}} !any", who, all, odd));
        break;
      case 3:
        history.push_back(fmt::format("S{0}:^{1}+[1/{1}] !any", who, odd));
        break;
      case 4:
        history.push_back(fmt::format("S{}:{}+[1/{},2] !any", who, all, odd));
        break;
      case 5:
        history.push_back(fmt::format("S{}:{}+[] !any", who, all));
        break;
      default:
        history.push_back(fmt::format("H{}:[]{{^{}}} !any", who, odd));
        break;
    }
  }

  const Profile& profile_;
  Rng rng_;
  std::vector<std::vector<std::string>> chains_;
};

std::vector<script::Op> ParseAll(const std::vector<std::string>& history, bool own_names) {
  std::string text = own_names ? "V" : "";
  for (const std::string& statement : history)
    text += ";" + statement;
  return script::Parse(text);
}

// Whether a chain is found by its sequence hashes as far as somebody holds it, and no farther than
// it was ever announced.
std::string WronglyFound(const std::vector<BlockHash>& query, const script::Answers& held,
                         const PrefixIndex& index, const PrefixIndex& model) {
  std::vector<SequenceHash> sequence;
  std::vector<BlockHash> found;
  std::vector<BlockHash> known;
  hashing::ChainHashes(query, sequence);
  index.FindBlocks(sequence, found);
  model.FindBlocks(sequence, known);
  std::size_t least = 0;
  for (const auto& [rank, answer] : held) {
    const auto& blocks = answer.depths.blocks;
    least = std::max<std::size_t>(least, std::accumulate(blocks.begin(), blocks.end(), 0u));
  }
  const bool same =
      found.size() <= query.size() && std::equal(found.begin(), found.end(), query.begin());
  if (same && found.size() >= least && found.size() <= known.size()) return "";
  return fmt::format("found {} blocks by sequence hashes, expected {} to {}{}", found.size(), least,
                     known.size(), same ? "" : ", and others");
}

std::uint32_t Depth(const script::Answer& answer) {
  return std::accumulate(answer.depths.blocks.begin(), answer.depths.blocks.end(), 0u);
}

// Threads that ask the queries of a history again and again while somebody else writes. What they
// hear may be old, but never longer than the question.
class Readers {
 public:
  Readers(const PrefixIndex& index, const std::vector<script::Op>& history, std::size_t count) {
    for (const script::Op& op : history) {
      if (!op.updates()) queries_.push_back(op.query);
    }
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this, &index, i] { Ask(index, i); });
  }
  ~Readers() {
    done_ = true;
    for (std::thread& thread : threads_)
      thread.join();
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  [[nodiscard]] bool wrong() const { return wrong_; }

 private:
  void Ask(const PrefixIndex& index, std::size_t first) {
    OverlapScores scores;
    std::vector<SequenceHash> sequence;
    std::vector<BlockHash> found;
    for (std::size_t i = first; !done_ && !queries_.empty(); ++i) {
      const auto& query = queries_[i % queries_.size()];
      index.Match(query, {}, scores);
      scores.ForEach([&](RankSlot, const Rank&, const auto& blocks, EngineHash) {
        if (std::accumulate(blocks.begin(), blocks.end(), 0u) > query.size()) wrong_ = true;
      });
      hashing::ChainHashes(query, sequence);
      index.FindBlocks(sequence, found);
      if (found.size() > query.size() || !std::equal(found.begin(), found.end(), query.begin()))
        wrong_ = true;
    }
  }

  std::vector<std::vector<BlockHash>> queries_;
  std::atomic<bool> done_ = false;
  std::atomic<bool> wrong_ = false;
  std::vector<std::thread> threads_;
};

// What goes wrong in this history, or nothing. Queries compare the whole answer.
std::string Difference(const std::vector<std::string>& history, const Profile& profile,
                       std::size_t shards, std::size_t readers = 0) {
  const IndexOptions options = OptionsOf(profile);
  script::Player index(MakeIndex(options, shards));
  script::Player model(std::make_unique<NaiveIndex>(options));
  const std::vector<script::Op> ops = ParseAll(history, profile.own_names);
  const Readers others(index.index(), ops, readers);
  for (const script::Op& op : ops) {
    if (op.updates()) {
      const std::string status = index.Update(op);
      const std::string expected = model.Update(op);
      if (status != expected)
        return fmt::format("{}: status {}, expected {}", op.text, status, expected);
    } else {
      const script::Answers answers = index.Query(op.query);
      const script::Answers expected = model.Query(op.query);
      if (answers != expected)
        return fmt::format("{}: {}, expected {}", op.text, ToString(answers), ToString(expected));
      const std::string wrong = WronglyFound(op.query, expected, index.index(), model.index());
      if (!wrong.empty()) return fmt::format("{}: {}", op.text, wrong);
    }
  }
  if (others.wrong()) return "who asked beside it was told too much";
  const IndexStats stats = index.index().Stats();
  const IndexStats expected = model.index().Stats();
  // What shards share is in each of them.
  if ((shards == 1 && stats.nodes != expected.nodes) || stats.memberships != expected.memberships ||
      stats.pending_blocks != expected.pending_blocks ||
      stats.pending_dropped != expected.pending_dropped ||
      stats.name_conflicts != expected.name_conflicts)
    return "the counts differ";
  if (profile.few_names) return "";  // a dump may lack some: see ACopyNeverHasMore
  const auto dump = index.SortedDump();
  if (dump != model.SortedDump()) return "the dumps differ";
  const script::Player copy = index.Copied(MakeIndex(OptionsOf(profile), shards));
  if (copy.SortedDump() != dump) return "a copy by ranks dumps differently";
  return "";
}

// Drops ever smaller parts of the history for as long as it still fails.
std::vector<std::string> Shrunk(std::vector<std::string> history, const Profile& profile,
                                std::size_t shards, std::size_t readers) {
  for (std::size_t part = history.size() / 2; part > 0; part /= 2) {
    for (std::size_t at = 0; at < history.size();) {
      std::vector<std::string> shorter = history;
      const auto from = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(from, from + static_cast<std::ptrdiff_t>(std::min(part, history.size() - at)));
      if (Difference(shorter, profile, shards, readers).empty()) {
        at += part;
      } else {
        history = std::move(shorter);
      }
    }
  }
  return history;
}

// KVR_TEST_SEEDS and KVR_TEST_FIRST_SEED widen a run or repeat one seed.
std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Differential : public testing::TestWithParam<Profile> {
 protected:
  template <typename F>
  static void ForEachSeed(std::uint64_t seeds, F&& f) {
    seeds = FromEnvironment("KVR_TEST_SEEDS", seeds);
    const std::uint64_t first = FromEnvironment("KVR_TEST_FIRST_SEED", 1);
    for (std::uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed)
      f(seed);
  }

  static void CompareWithTheModel(std::size_t shards, std::uint64_t seeds = kSeeds,
                                  std::size_t readers = 0);
};

void Differential::CompareWithTheModel(std::size_t shards, std::uint64_t seeds,
                                       std::size_t readers) {
  const Profile& profile = GetParam();
  const bool is_long = profile.length > 1'000;
  // Beside readers each update takes long, above all under a sanitizer.
  const std::size_t updates = (is_long ? 100u : 2'000u) / (readers > 0 ? 4u : 1u);
  ForEachSeed(is_long ? std::min<std::uint64_t>(seeds, 4) : seeds, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    std::vector<std::string> history;
    for (std::string& update : generator.History(updates)) {
      history.push_back(std::move(update));
      history.push_back(generator.Query());
    }
    if (Difference(history, profile, shards, readers).empty()) return;
    history = Shrunk(std::move(history), profile, shards, readers);
    ADD_FAILURE() << "profile " << profile.name << ", seed " << seed << "\n"
                  << (profile.own_names ? "V; " : "") << fmt::format("{}", fmt::join(history, "; "))
                  << "\n"
                  << Difference(history, profile, shards, readers);
  });
}

TEST_P(Differential, AnswersLikeTheModel) {
  CompareWithTheModel(1);
}

TEST_P(Differential, ShardsAnswerLikeTheModel) {
  CompareWithTheModel(3);
}

// Readers change nothing; under the thread sanitizer they race with every kind of update.
TEST_P(Differential, AnswersLikeTheModelWhileOthersAsk) {
  CompareWithTheModel(1, kSeedsBesideReaders, 2);
}

TEST_P(Differential, ShardsAnswerLikeTheModelWhileOthersAsk) {
  CompareWithTheModel(3, kSeedsBesideReaders, 2);
}

// With a memory limit the index may know less than the model, never more.
TEST_P(Differential, NeverMoreThanTheModelWithALimit) {
  const Profile& profile = GetParam();
  // Engines that give one name to several blocks are left to chance as to which of them goes.
  if (profile.illegal) return;
  std::uint64_t evicted = 0;
  ForEachSeed(profile.length > 1'000 ? 2 : kSeeds / 2, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    IndexOptions options = OptionsOf(profile);
    script::Player model(std::make_unique<NaiveIndex>(options));
    // A third of what it would take.
    script::Player all(std::make_unique<RunArena>(options));
    const std::uint64_t empty = all.index().Stats().bytes;
    const auto ops =
        ParseAll(generator.History(profile.length > 1'000 ? 100 : 1'000), profile.own_names);
    for (std::size_t i = 0; i < ops.size() / 2; ++i)
      all.Update(ops[i]);
    options.memory_limit = empty + (all.index().Stats().bytes - empty) / 3;
    script::Player index(std::make_unique<RunArena>(options));
    for (const script::Op& op : ops) {
      index.Update(op);
      model.Update(op);
      const auto query = script::Parse(generator.Query())[0].query;
      const script::Answers answers = index.Query(query);
      const script::Answers most = model.Query(query);
      for (const auto& [rank, answer] : answers) {
        const auto known = most.find(rank);
        const bool fits =
            known != most.end() && Depth(answer) <= Depth(known->second) &&
            answer.depths.blocks[0] <= known->second.depths.blocks[0] &&
            (Depth(answer) < Depth(known->second) || answer.last == known->second.last);
        ASSERT_TRUE(fits) << "seed " << seed << ", " << op.text << ": " << ToString(answers)
                          << ", at most " << ToString(most);
      }
      const IndexStats stats = index.index().Stats();
      ASSERT_LE(stats.memberships, model.index().Stats().memberships);
      ASSERT_EQ(std::accumulate(stats.bytes_of.begin(), stats.bytes_of.end(), std::uint64_t{0}),
                stats.bytes);
    }
    evicted += index.index().Stats().evicted_memberships;
    // It leaves nothing behind, and what it dumps it can read.
    const script::Player copy = index.Restored(std::make_unique<RunArena>(OptionsOf(profile)));
    EXPECT_EQ(copy.SortedDump(), index.SortedDump()) << "seed " << seed;
    while (!index.slots().empty()) {
      script::Op op;
      op.kind = script::Op::Kind::kRemoveRank;
      op.rank = index.slots().begin()->first;
      EXPECT_EQ(index.Update(op), "ok");
    }
    const IndexStats stats = index.index().Stats();
    EXPECT_EQ(stats.nodes + stats.idle_nodes + stats.memberships, 0u) << "seed " << seed;
  });
  EXPECT_GT(evicted, 0u);
}

// Everything that has to come to the same index, however it was announced.
struct Variant {
  const char* name;
  bool one_by_one = false;  // a store of n blocks as n stores
  bool twice = false;       // each update again
  bool removals_reversed = false;
  bool other_slots = false;  // ranks registered in another order
};

script::Player PlayVariant(const std::vector<script::Op>& ops, const Variant& variant,
                           const IndexOptions& options) {
  script::Player player(std::make_unique<RunArena>(options));
  if (variant.other_slots) {
    for (std::size_t i = ops.size(); i-- > 0;) {
      if (ops[i].kind != script::Op::Kind::kClear) continue;
      player.Update(ops[i]);  // clearing nothing gives the rank its slot
    }
  }
  for (script::Op op : ops) {
    if (variant.removals_reversed) std::reverse(op.removed.begin(), op.removed.end());
    if (variant.one_by_one && op.kind == script::Op::Kind::kStore && op.blocks.size() > 1) {
      const std::vector<PlacedBlock> blocks = op.blocks;
      for (const PlacedBlock& block : blocks) {
        op.blocks = {block};
        player.Update(op);
        op.parent = block.engine;
      }
      continue;
    }
    player.Update(op);
    if (variant.twice) player.Update(op);
  }
  return player;
}

TEST_P(Differential, SameStateHoweverAnnounced) {
  const Profile& profile = GetParam();
  // Shared names and full pools make order and repetition matter.
  if (profile.illegal || profile.small_limits) return;
  static constexpr Variant kVariants[] = {{.name = "one by one", .one_by_one = true},
                                          {.name = "twice", .twice = true},
                                          {.name = "reversed", .removals_reversed = true},
                                          {.name = "other slots", .other_slots = true}};
  const IndexOptions options = OptionsOf(profile);
  ForEachSeed(5, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    const auto history = generator.History(profile.length > 1'000 ? 50 : 500);
    const auto ops = ParseAll(history, profile.own_names);
    const script::Player plain = PlayVariant(ops, {}, options);
    for (const Variant& variant : kVariants) {
      const script::Player player = PlayVariant(ops, variant, options);
      EXPECT_EQ(player.SortedDump(), plain.SortedDump()) << variant.name << ", seed " << seed;
      EXPECT_EQ(player.index().Stats().memberships, plain.index().Stats().memberships)
          << variant.name << ", seed " << seed;
    }
  });
}

// Row L18, for all tiers.
TEST_P(Differential, DumpRestoresTheAnswersInAnyOrder) {
  const Profile& profile = GetParam();
  ForEachSeed(10, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    Rng rng(seed);
    script::Player player(std::make_unique<RunArena>(OptionsOf(profile)));
    for (const auto& op :
         ParseAll(generator.History(profile.length > 1'000 ? 50 : 300), profile.own_names))
      player.Update(op);
    const script::Player copy = player.Restored(std::make_unique<RunArena>(IndexOptions{}));

    struct Copied {
      PlacementEvent event;
      std::vector<PlacedBlock> blocks;
    };
    std::vector<Copied> events;
    player.index().Dump([&events](const PlacementEvent& event) {
      events.push_back({event, {event.blocks.begin(), event.blocks.end()}});
    });
    script::Player shuffled(std::make_unique<RunArena>(IndexOptions{}));
    while (!events.empty()) {
      std::swap(events.back(), events[rng.Below(events.size())]);
      events.back().event.blocks = events.back().blocks;
      shuffled.Apply(events.back().event);
      events.pop_back();
    }
    if (!profile.few_names) {
      EXPECT_EQ(copy.SortedDump(), player.SortedDump()) << "seed " << seed;
    }
    if (!profile.illegal) {
      EXPECT_EQ(shuffled.SortedDump(), player.SortedDump()) << "seed " << seed;
    }
    for (int i = 0; i < 50 && !profile.few_names; ++i) {
      const auto query = script::Parse(generator.Query())[0].query;
      EXPECT_EQ(copy.Query(query), player.Query(query)) << "seed " << seed;
    }
  });
}

// What a dump leaves out, and what hangs behind a hole, the copy lacks; it has nothing else, and
// removals take the same from both.
TEST_P(Differential, ACopyNeverHasMore) {
  const Profile& profile = GetParam();
  std::size_t found = 0;
  ForEachSeed(profile.few_names ? 10 * kSeeds : 5, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    script::Player player(std::make_unique<RunArena>(OptionsOf(profile)));
    for (const auto& op :
         ParseAll(generator.History(profile.length > 1'000 ? 20 : 60), profile.own_names))
      player.Update(op);
    script::Player copies[] = {player.Restored(std::make_unique<RunArena>(IndexOptions{})),
                               player.Copied(std::make_unique<RunArena>(IndexOptions{}))};
    for (const auto& op : ParseAll(generator.Removals(20), profile.own_names)) {
      for (script::Player& copy : copies) {
        for (int i = 0; i < 10; ++i) {
          const auto query = script::Parse(generator.Query())[0].query;
          const script::Answers answers = copy.Query(query);
          const script::Answers expected = player.Query(query);
          found += answers.size();
          for (const auto& [rank, answer] : answers) {
            const auto known = expected.find(rank);
            ASSERT_TRUE(known != expected.end() && Depth(answer) <= Depth(known->second))
                << "seed " << seed << ", before " << op.text << ": " << ToString(answers)
                << ", at most " << ToString(expected);
          }
        }
        copy.Update(op);
      }
      player.Update(op);
    }
  });
  EXPECT_GT(found, 0u);
}

TEST_P(Differential, NothingIsLeftWhenAllRanksAreGone) {
  const Profile& profile = GetParam();
  ForEachSeed(10, [&](std::uint64_t seed) {
    Generator generator(profile, seed);
    script::Player player(std::make_unique<RunArena>(OptionsOf(profile)));
    const std::uint64_t before = player.index().Stats().bytes;
    for (const auto& op :
         ParseAll(generator.History(profile.length > 1'000 ? 50 : 500), profile.own_names))
      player.Update(op);
    while (!player.slots().empty()) {
      script::Op op;
      op.kind = script::Op::Kind::kRemoveRank;
      op.rank = player.slots().begin()->first;
      EXPECT_EQ(player.Update(op), "ok");
    }
    const IndexStats stats = player.index().Stats();
    EXPECT_EQ(stats.nodes + stats.idle_nodes + stats.memberships + stats.pending_blocks, 0u)
        << "seed " << seed;
    // What stays is empty tables.
    EXPECT_LT(stats.bytes, before + 64'000) << "seed " << seed;
  });
}

INSTANTIATE_TEST_SUITE_P(Profiles, Differential, testing::ValuesIn(kProfiles),
                         [](const auto& profile) { return profile.param.name; });

}  // namespace
}  // namespace kvr::index
