// The rows P1 to P20 of the wire's edge cases.
#include "publish/coalescer.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "publish/test_mutations.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

using std::chrono::milliseconds;

// A coalescer that has put something out at time 0, and what comes out of it later.
struct Bench {
  explicit Bench(Millis timeout = Millis{0}) : coalescer(Coalescer::Options{128, timeout}, out) {
    coalescer.Push(Script::Clear(), now);
    out.Drain();
  }

  // One list.
  std::string Feed(const std::vector<Mutation>& list) {
    for (const Mutation& mutation : list)
      coalescer.Push(mutation, now);
    coalescer.EndList(now);
    return out.Drain();
  }
  std::string Tick() {
    coalescer.OnTick(now);
    return out.Drain();
  }

  Recorder out;
  Nanos now{0};
  Coalescer coalescer;
};

std::string OneList(const std::function<std::vector<Mutation>(Script&)>& make) {
  Script script;
  Bench bench;
  return bench.Feed(make(script));
}

TEST(Coalescer, RowsOfOneList) {
  struct Row {
    std::string_view name;
    std::function<std::vector<Mutation>(Script&)> list;
    std::string_view want;
  };
  using List = std::vector<Mutation>;
  const Rank other_rank{WorkerId{0}, 1};
  const Row rows[] = {
      {"P1",
       [](Script& s) {
         return List{s.Store(9, 1), s.Store(1, 2), s.Store(2, 3)};
       },
       "+9<1,2,3"},
      {"P1 from the root",
       [](Script& s) {
         return List{s.Store({}, 1), s.Store(1, 2)};
       },
       "+1,2"},
      {"P6",
       [](Script& s) {
         return List{s.Store({}, 1), s.Store(7, 2)};
       },
       "+1; +7<2"},
      {"P6 no parent",
       [](Script& s) {
         return List{s.Store({}, 1), s.Store({}, 2)};
       },
       "+1; +2"},
      {"P7",
       [](Script& s) {
         return List{s.Store(9, 1), s.Store(9, 2)};
       },
       "+9<1; +9<2"},
      {"P7 the parent in the middle",
       [](Script& s) {
         return List{s.Store({}, 1, 2), s.Store(1, 3)};
       },
       "+1,2; +1<3"},
      {"P8",
       [](Script& s) {
         return List{s.Remove({5}), s.Remove({1, 9}), s.Remove({5})};
       },
       "-5,1,9,5"},
      {"P9",
       [](Script& s) {
         return List{s.Store({}, 1), s.Remove({1}), s.Store(1, 2)};
       },
       "+1; -1; +1<2"},
      {"K12",
       [](Script& s) {
         return List{s.Remove({1}), s.Store({}, 1)};
       },
       "-1; +1"},
      {"P10 tier",
       [](Script& s) {
         return List{s.Store({}, 1), On(Tier::kDisk, s.Store(1, 2))};
       },
       "+1; +1<2/disk"},
      {"P10 rank",
       [&](Script& s) {
         return List{s.Store({}, 1), Of(other_rank, s.Store(1, 2))};
       },
       "+1; +1<2 rank 1"},
      {"P10 worker",
       [](Script& s) {
         return List{s.Store({}, 1), Of(Rank{WorkerId{5}, 0}, s.Store(1, 2))};
       },
       "+1; +1<2"},
      {"P10 domain",
       [](Script& s) {
         Mutation other = s.Remove({2});
         other.domain = wire::ResidencyDomain::kCacheOwner;
         return List{s.Remove({1}), other};
       },
       "-1; -2"},
      {"P10 removals of two tiers",
       [](Script& s) {
         return List{s.Remove({1}), On(Tier::kDisk, s.Remove({1}))};
       },
       "-1; -1/disk"},
      {"P11 some and none",
       [](Script& s) {
         return List{In("a", s.Store({}, 1)), s.Store(1, 2)};
       },
       "+1 'a'; +1<2"},
      {"P11 none and some",
       [](Script& s) {
         return List{s.Store({}, 1), In("a", s.Store(1, 2))};
       },
       "+1; +1<2 'a'"},
      {"P11 other",
       [](Script& s) {
         return List{In("a", s.Remove({1})), In("b", s.Remove({2}))};
       },
       "-1 'a'; -2 'b'"},
      {"P11 the same",
       [](Script& s) {
         return List{In("a", s.Store({}, 1)), In("a", s.Store(1, 2))};
       },
       "+1,2 'a'"},
      {"P12 true, false",
       [](Script& s) {
         return List{Eligible(s.Store(9, 1)), s.Store(1, 2)};
       },
       "+9<1 sce; +1<2"},
      {"P12 false, true",
       [](Script& s) {
         return List{s.Store(9, 1), Eligible(s.Store(1, 2))};
       },
       "+9<1; +1<2 sce"},
      {"P13 true, true",
       [](Script& s) {
         return List{Eligible(s.Store(9, 1)), Eligible(s.Store(1, 2))};
       },
       "+9<1,2 sce"},
      {"P13 false, false",
       [](Script& s) {
         return List{s.Store(9, 1), s.Store(1, 2)};
       },
       "+9<1,2"},
      {"P14",
       [](Script& s) {
         return List{s.Store({}, 1), Script::Clear(), s.Store(1, 2), s.Store(2, 3)};
       },
       "+1; !; +1<2,3"},
      {"P14 removals",
       [](Script& s) {
         return List{s.Remove({1}), Script::Clear(), s.Remove({2})};
       },
       "-1; !; -2"},
      {"P19",
       [](Script& s) {
         return List{s.Store(9, 1, 0), s.Store({}, 1)};
       },
       "+1"},
      {"P19 between",
       [](Script& s) {
         return List{s.Store({}, 1), s.Store(1, 2, 0), s.Store(1, 2)};
       },
       "+1,2"},
      {"P19 empty removal",
       [](Script& s) {
         return List{s.Remove({}), s.Remove({1})};
       },
       "-1"},
      {"P20",
       [](Script& s) {
         return List{At(4, s.Store(9, 1)), At(5, s.Store(1, 2)), s.Store(2, 3)};
       },
       "+9<1,2,3@4"},
      {"P20 only the second's",
       [](Script& s) {
         return List{s.Store(9, 1), At(5, s.Store(1, 2))};
       },
       "+9<1,2"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(OneList(row.list), row.want) << row.name;
}

TEST(Coalescer, P2WithoutTimeoutEveryListEndsWhatIsPending) {
  Script script;
  Bench bench;
  EXPECT_EQ(bench.Feed({script.Store({}, 1)}), "+1");
  EXPECT_EQ(bench.Feed({script.Store(1, 2)}), "+1<2");
  EXPECT_FALSE(bench.coalescer.deadline());
}

TEST(Coalescer, P3WithTimeoutListsAreMerged) {
  Script script;
  Bench bench(milliseconds{1000});
  bench.now = milliseconds{1};
  EXPECT_EQ(bench.Feed({script.Store({}, 1)}), "");
  EXPECT_EQ(bench.Feed({script.Store(1, 2)}), "");
  EXPECT_EQ(bench.coalescer.deadline(), milliseconds{1000});
  bench.now = milliseconds{999};
  EXPECT_EQ(bench.Tick(), "");
  bench.now = milliseconds{1000};
  EXPECT_EQ(bench.Tick(), "+1,2");
  EXPECT_FALSE(bench.coalescer.deadline());
  // What went out moved the time.
  EXPECT_EQ(bench.Feed({script.Store(2, 3)}), "");
  EXPECT_EQ(bench.coalescer.deadline(), milliseconds{2000});
}

TEST(Coalescer, P3AListIsProcessedWhole) {
  Script script;
  Bench bench(milliseconds{1000});
  bench.coalescer.Push(script.Store({}, 1), milliseconds{1});
  bench.coalescer.Push(script.Store(1, 2), milliseconds{5000});
  EXPECT_EQ(bench.out.Drain(), "");
  bench.coalescer.EndList(milliseconds{5000});
  EXPECT_EQ(bench.out.Drain(), "+1,2");
}

TEST(Coalescer, P4TheFirstEventAfterAPauseGoesAtOnce) {
  Script script;
  Bench bench(milliseconds{1000});
  bench.now = milliseconds{1001};
  EXPECT_EQ(bench.Feed({script.Store({}, 1)}), "+1");
}

TEST(Coalescer, P5TimeoutsAreCapped) {
  Script script;
  Bench bench(milliseconds{60'000});
  bench.now = milliseconds{14'999};
  EXPECT_EQ(bench.Feed({script.Store({}, 1)}), "");
  EXPECT_EQ(bench.coalescer.deadline(), milliseconds{15'000});
  EXPECT_FALSE((Coalescer::Options{128, milliseconds{-1}}.Validate()));
  EXPECT_FALSE((Coalescer::Options{0, milliseconds{0}}.Validate()));
  EXPECT_TRUE((Coalescer::Options{1, milliseconds{60'000}}.Validate()));
}

// How many blocks each event has that comes out of one list.
std::vector<std::size_t> Sizes(const std::function<std::vector<Mutation>(Script&)>& make) {
  struct Counter final : MutationSink {
    void Take(const Mutation& mutation) override {
      sizes.push_back(mutation.event.blocks.size() + mutation.event.removed.size());
    }
    std::vector<std::size_t> sizes;
  };
  Script script;
  Counter counter;
  Coalescer coalescer({}, counter);
  for (const Mutation& mutation : make(script))
    coalescer.Push(mutation, Nanos{0});
  coalescer.EndList(Nanos{0});
  return counter.sizes;
}

TEST(Coalescer, P15ToP18Sizes) {
  using List = std::vector<Mutation>;
  using Sizes_ = std::vector<std::size_t>;
  const auto names = [](std::uint64_t first, std::size_t count) {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(first + i);
    return all;
  };
  EXPECT_EQ(Sizes([](Script& s) {
              return List{s.Store({}, 1, 127), s.Store(127, 128, 1), s.Store(128, 129, 1)};
            }),
            (Sizes_{128, 1}))
      << "P15";
  EXPECT_EQ(Sizes([](Script& s) {
              return List{s.Store({}, 1, 127), s.Store(127, 128, 50)};
            }),
            (Sizes_{177}))
      << "P16";
  EXPECT_EQ(Sizes([](Script& s) {
              return List{s.Store({}, 1, 3), s.Store({}, 500, 200)};
            }),
            (Sizes_{3, 200}))
      << "P17";
  EXPECT_EQ(Sizes([](Script& s) {
              return List{s.Store({}, 1, 500), s.Store(500, 501, 1)};
            }),
            (Sizes_{500, 1}))
      << "P18";
  EXPECT_EQ(Sizes([&](Script& s) {
              return List{s.Remove(names(1, 127)), s.Remove({500}), s.Remove({501})};
            }),
            (Sizes_{128, 1}))
      << "P15, removals";
}

TEST(Coalescer, ClearsPassAtOnceWhateverTheTimeout) {
  Script script;
  Bench bench(milliseconds{1000});
  bench.coalescer.Push(script.Store({}, 1), bench.now);
  bench.coalescer.Push(Script::Clear(), bench.now);
  EXPECT_EQ(bench.out.Drain(), "+1; !");
  EXPECT_FALSE(bench.coalescer.pending());
}

TEST(Coalescer, FlushDoesNotWait) {
  Script script;
  Bench bench(milliseconds{1000});
  bench.Feed({script.Store({}, 1)});
  bench.coalescer.Flush(bench.now);
  EXPECT_EQ(bench.out.Drain(), "+1");
}

TEST(Coalescer, WarmItAllocatesNothing) {
  struct Nothing final : MutationSink {
    void Take(const Mutation&) override {}
  };
  Script script;
  Nothing out;
  Coalescer coalescer({}, out);
  std::vector<Mutation> list;
  for (std::uint64_t i = 1; i < 200; ++i)
    list.push_back(In("a session whose name is long enough", script.Store(i, i + 1)));
  list.push_back(script.Remove({1, 2, 3}));
  const auto feed = [&] {
    for (const Mutation& mutation : list)
      coalescer.Push(mutation, Nanos{0});
    coalescer.EndList(Nanos{0});
  };
  feed();
  EXPECT_EQ(test::AllocationsIn(feed), 0u);
}

}  // namespace
}  // namespace kvr::publish
