#include "fleet/catalog.h"

#include <functional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::fleet {
namespace {

WorkerSpec Spec(std::uint64_t id, std::uint32_t dp_rank = 0) {
  WorkerSpec spec;
  spec.id = WorkerId{id};
  spec.partition = {"m", "default"};
  spec.block_size = 16;
  spec.dp_ranks = {dp_rank};
  spec.events[dp_rank] = {"tcp://127.0.0.1:5557", std::nullopt, ""};
  return spec;
}

TEST(Catalog, Row19RegisterShowsUpInTheSnapshot) {
  Catalog catalog;
  const auto before = catalog.snapshot();
  EXPECT_TRUE(*catalog.Add(Spec(1)));
  const auto after = catalog.snapshot();
  EXPECT_EQ(before->Find(WorkerId{1}), nullptr) << "a snapshot never changes";
  ASSERT_NE(after->Find(WorkerId{1}), nullptr);
  EXPECT_GT(after->version, before->version);
  ASSERT_NE(after->Find(Rank{WorkerId{1}, 0}), nullptr);
  EXPECT_NE(after->Find(Rank{WorkerId{1}, 0})->health, nullptr);
  EXPECT_EQ(after->Find(Rank{WorkerId{1}, 1}), nullptr);
  EXPECT_EQ(after->In({"m", "default"}).size(), 1u);
  EXPECT_TRUE(after->In({"m", "other"}).empty());
}

TEST(Catalog, Row20IdenticalRepeatIsUnchanged) {
  Catalog catalog;
  EXPECT_TRUE(*catalog.AddRank(Spec(1)));
  const auto version = catalog.snapshot()->version;
  EXPECT_FALSE(*catalog.AddRank(Spec(1)));
  EXPECT_FALSE(*catalog.Add(Spec(1)));
  EXPECT_EQ(catalog.snapshot()->version, version);
}

TEST(Catalog, Row22SecondRankKeepsTheHealthOfTheFirst) {
  Catalog catalog;
  EXPECT_TRUE(*catalog.AddRank(Spec(1, 4)));
  const auto health = catalog.snapshot()->Find(Rank{WorkerId{1}, 4})->health;
  EXPECT_TRUE(*catalog.AddRank(Spec(1, 2)));
  const auto now = catalog.snapshot();
  EXPECT_EQ(now->Find(Rank{WorkerId{1}, 4})->health, health);
  EXPECT_THAT(now->Find(WorkerId{1})->spec.dp_ranks, testing::ElementsAre(2, 4));
  EXPECT_EQ(now->Find(WorkerId{1})->ranks[0].rank.dp_rank, 2u);
}

TEST(Catalog, Row28EveryIdIsLegal) {
  Catalog catalog;
  EXPECT_TRUE(*catalog.Add(Spec(~std::uint64_t{0})));
  EXPECT_TRUE(*catalog.Add(Spec(0)));
  EXPECT_EQ(catalog.snapshot()->workers.front()->spec.id, WorkerId{0});
}

struct Refusal {
  const char* name;
  std::function<void(WorkerSpec&)> change;
  ErrorCode code;
  const char* text;
};

class CatalogRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(CatalogRefuses, WithTheExactText) {
  Catalog catalog;
  ASSERT_TRUE(*catalog.AddRank(Spec(1)));
  const auto before = catalog.snapshot();
  WorkerSpec spec = Spec(1);
  GetParam().change(spec);
  const auto result = catalog.AddRank(spec);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, GetParam().code);
  EXPECT_EQ(result.error().message, GetParam().text);
  EXPECT_EQ(catalog.snapshot(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, CatalogRefuses,
    testing::Values(
        Refusal{"Row21", [](WorkerSpec& s) { s.events[0].endpoint = "tcp://127.0.0.1:1"; },
                ErrorCode::kAlreadyExists, "instance 1 dp_rank 0 already registered"},
        Refusal{"Row23", [](WorkerSpec& s) { s.partition.routing_group = "g"; },
                ErrorCode::kAlreadyExists,
                "instance 1 is already registered for model=m routing_group=default"},
        Refusal{"Row24",
                [](WorkerSpec& s) {
                  s.id = WorkerId{2};
                  s.block_size = 32;
                },
                ErrorCode::kAlreadyExists,
                "block_size mismatch for model=m routing_group=default: existing=16, requested=32"},
        Refusal{"Eagle",
                [](WorkerSpec& s) {
                  s.id = WorkerId{2};
                  s.is_eagle = true;
                },
                ErrorCode::kAlreadyExists,
                "is_eagle mismatch for model=m routing_group=default: existing=false, "
                "requested=true"},
        Refusal{"Row25", [](WorkerSpec& s) { s.block_size = 0; }, ErrorCode::kInvalidArgument,
                "block_size must be greater than 0"},
        Refusal{"Row35Model", [](WorkerSpec& s) { s.partition.model_name.clear(); },
                ErrorCode::kInvalidArgument, "model_name must not be empty"},
        Refusal{"Row35Group", [](WorkerSpec& s) { s.partition.routing_group.clear(); },
                ErrorCode::kInvalidArgument, "routing_group must not be empty"},
        Refusal{"NoText", [](WorkerSpec& s) { s.partition.routing_group = "a\xFF"; },
                ErrorCode::kInvalidArgument, "routing_group must be UTF-8"},
        Refusal{"Row36", [](WorkerSpec& s) { s.partition.model_name.assign(10'240, 'x'); },
                ErrorCode::kInvalidArgument, "model_name must not be longer than 512 bytes"},
        Refusal{"NoRank", [](WorkerSpec& s) { s.dp_ranks.clear(); }, ErrorCode::kInvalidArgument,
                "data_parallel_size must be greater than 0"},
        Refusal{"RepeatedRank",
                [](WorkerSpec& s) {
                  s.dp_ranks = {0, 0};
                },
                ErrorCode::kInvalidArgument, "dp ranks must be ascending and without repeats"},
        Refusal{"ForeignSource", [](WorkerSpec& s) { s.events[7] = s.events[0]; },
                ErrorCode::kInvalidArgument,
                "kv_events endpoint for dp_rank 7, which the worker does not have"}),
    [](const auto& row) { return row.param.name; });

TEST(Catalog, Row36NamesMayHoldColonAndSlash) {
  Catalog catalog;
  WorkerSpec spec = Spec(1);
  spec.partition.model_name = "org/model:v1";
  EXPECT_TRUE(*catalog.Add(spec));
  EXPECT_EQ(catalog.snapshot()->In(spec.partition).size(), 1u);
}

TEST(Catalog, Report58RemovingOneRankLeavesTheOthers) {
  Catalog catalog;
  EXPECT_TRUE(*catalog.AddRank(Spec(1, 0)));
  EXPECT_TRUE(*catalog.AddRank(Spec(1, 1)));
  EXPECT_TRUE(catalog.RemoveRank({WorkerId{1}, 1}));
  EXPECT_FALSE(catalog.RemoveRank({WorkerId{1}, 1}));
  EXPECT_NE(catalog.snapshot()->Find(Rank{WorkerId{1}, 0}), nullptr);
  EXPECT_TRUE(catalog.RemoveRank({WorkerId{1}, 0}));
  EXPECT_EQ(catalog.snapshot()->Find(WorkerId{1}), nullptr) << "the last rank takes the worker";
  EXPECT_FALSE(catalog.Remove(WorkerId{1}));
}

TEST(Catalog, AReRegisteredRankStartsWithFreshHealth) {
  Catalog catalog;
  EXPECT_TRUE(*catalog.AddRank(Spec(1)));
  const auto old = catalog.snapshot()->Find(Rank{WorkerId{1}, 0})->health;
  EXPECT_TRUE(catalog.Remove(WorkerId{1}));
  EXPECT_TRUE(*catalog.AddRank(Spec(1)));
  EXPECT_NE(catalog.snapshot()->Find(Rank{WorkerId{1}, 0})->health, old);
}

TEST(Catalog, TheNumberOfWorkersIsBounded) {
  Catalog catalog(Catalog::Options{.workers_max = 2});
  EXPECT_TRUE(*catalog.Add(Spec(1)));
  EXPECT_TRUE(*catalog.Add(Spec(2)));
  const auto third = catalog.Add(Spec(3));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kOverloaded);
}

TEST(DpRange, Row104RangeBeyond32BitsIsRefused) {
  EXPECT_THAT(*DpRange(2, 3), testing::ElementsAre(2, 3, 4));
  EXPECT_EQ(DpRange(0xFFFFFFFF, 1)->front(), 0xFFFFFFFF);
  EXPECT_EQ(DpRange(0xFFFFFFFF, 2).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(DpRange(0, 0).error().message, "data_parallel_size must be greater than 0");
  EXPECT_FALSE(DpRange(0, 0xFFFFFFFF)) << "a list of that size must not be made";
}

TEST(Catalog, Row40ConcurrentRegistersOfOneRankGiveOneWinner) {
  Catalog catalog;
  std::atomic<int> won{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (std::uint64_t id = 0; id < 100; ++id) {
          WorkerSpec spec = Spec(id);
          spec.events[0].endpoint = "tcp://127.0.0.1:" + std::to_string(1 + i);
          if (const auto added = catalog.AddRank(spec); added && *added) ++won;
          const auto seen = catalog.snapshot();
          ASSERT_NE(seen->Find(Rank{WorkerId{id}, 0}), nullptr);
        }
      });
    }
  }
  EXPECT_EQ(won.load(), 100);
}

}  // namespace
}  // namespace kvr::fleet
