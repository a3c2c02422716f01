#include "routing/router.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/side_group.h"
#include "routing/prompt.h"
#include "routing/router_fixture.h"

namespace kvr::routing {
namespace {

using testing::HasSubstr;

constexpr Rank kOne{WorkerId{1}, 0};
constexpr Rank kTwo{WorkerId{2}, 0};

class RouterTest : public testing::Test, protected RouterFixture {
 protected:
  Decision Route(const RouteRequest& request) {
    auto decision = router.Route(request);
    EXPECT_TRUE(decision) << decision.error().message;
    return decision ? *std::move(decision) : Decision{};
  }
  Error Refused(const RouteRequest& request) {
    auto decision = router.Route(request);
    EXPECT_FALSE(decision);
    return decision ? Error{} : decision.error();
  }
  RankLoad LoadOf(Rank rank) {
    for (const RankLoad& load : router.Loads(ThePartition())) {
      if (load.rank == rank) return load;
    }
    ADD_FAILURE() << "no such rank";
    return {};
  }
  std::string Metrics() {
    std::string text;
    registry.WriteText(text);
    return text;
  }
};

TEST_F(RouterTest, GoesToTheHolderOfThePrefix) {
  AddWorker(1);
  AddWorker(2);
  const auto prompt = MakePrompt(1, 8);
  Store(kTwo, prompt);
  const Decision decision = Route(RequestFor(prompt));
  EXPECT_EQ(decision.rank, kTwo);
  EXPECT_EQ(decision.endpoint, "http://engine2");
  EXPECT_FALSE(decision.send_dp_rank);
  EXPECT_EQ(decision.overlap.device(), 8u);
  EXPECT_EQ(decision.reason, Reason::kLongestPrefix);
  EXPECT_EQ(decision.cache_view, CacheView::kExact);
  EXPECT_EQ(decision.candidates, 2u);
  EXPECT_EQ(decision.effective_prefill_tokens, 1u);
  EXPECT_EQ(LoadOf(kTwo).active_prefill_tokens, 1u);
  EXPECT_EQ(LoadOf(kTwo).active_blocks, 8u);
  EXPECT_EQ(LoadOf(kOne).active_blocks, 0u);
}

// Whole blocks, and never the last token of the prompt.
TEST_F(RouterTest, PredictsWhatAnEngineReuses) {
  AddWorker(1);
  Store(kOne, MakePrompt(1, 4, 0));
  const struct {
    std::size_t blocks, tail;
    std::uint64_t cached;
  } rows[] = {{4, 0, 48}, {4, 1, 64}, {3, 15, 48}, {3, 0, 32}, {0, 15, 0}, {1, 0, 0}, {9, 3, 64}};
  for (const auto& row : rows) {
    const auto prompt = MakePrompt(1, row.blocks, row.tail);
    EXPECT_EQ(Route(RequestFor(prompt)).predicted_cached_tokens, row.cached)
        << row.blocks << " blocks and " << row.tail;
  }
}

TEST_F(RouterTest, LowerTiersCountAfterTheDevice) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 8);
  Store(kOne, prompt, 0, 2);
  Store(kOne, prompt, 2, 5, Tier::kHostPinned);
  const Decision decision = Route(RequestFor(prompt));
  EXPECT_EQ(decision.overlap.device(), 2u);
  EXPECT_EQ(decision.overlap.blocks[1], 3u);
  EXPECT_EQ(decision.predicted_cached_tokens, 5u * kBlockSize);
  // 2 + 0.75 · 3 = 4.25 blocks of credit.
  EXPECT_DOUBLE_EQ(decision.cost.credit_blocks, 4.25);
  EXPECT_EQ(decision.effective_prefill_tokens, prompt.size() - 68);
}

// An engine of a hybrid model reuses a prefix as far as its other cache groups go along.
TEST_F(RouterTest, OfAHybridModelCountsWhatCanBeReused) {
  AddWorker(1);
  AddWorker(2);
  const auto prompt = MakePrompt(1, 8);
  Store(kOne, prompt, 0, 4);
  Store(kOne, prompt, 4, 8, Tier::kHostPinned);
  Store(kTwo, prompt, 0, 5);
  const auto partition = indexes.Find(ThePartition());
  const auto sides = partition->hybrid->FindOrAdd(kOne, Index(), kBlockSize);
  EXPECT_EQ(Route(RequestFor(prompt)).rank, kOne);

  std::vector<BlockHash> hashes;
  hashing::HashBlocks(prompt, {.block_size = kBlockSize}, hashes);
  std::vector<SequenceHash> names;
  hashing::ChainHashes(hashes, names);
  const auto checkpoint = [&](std::size_t blocks) {
    const SideCopy copy{EngineHash{Raw(names[blocks - 1])}};
    sides->Store(1, Tier::kDevice, std::span(&copy, 1));
  };
  sides->Declare({1, SideRule::kCheckpoint, kBlockSize, 0});
  checkpoint(3);
  const Decision other = Route(RequestFor(prompt));
  EXPECT_EQ(other.rank, kTwo);
  EXPECT_EQ(other.predicted_cached_tokens, 5 * kBlockSize);
  checkpoint(6);
  const Decision first = Route(RequestFor(prompt));
  EXPECT_EQ(first.rank, kOne);
  EXPECT_EQ(first.overlap.device(), 4u);
  EXPECT_EQ(first.overlap.depth(), 6u);
  EXPECT_EQ(first.predicted_cached_tokens, 6 * kBlockSize);
  // Of a prompt that ends with its last block the engine computes that block.
  const std::vector<TokenId> whole(prompt.begin(), prompt.begin() + 6 * kBlockSize);
  RouteRequest pinned = RequestFor(whole);
  pinned.constraints.pinned = sched::Pin{kOne.worker, kOne.dp_rank};
  EXPECT_EQ(Route(pinned).predicted_cached_tokens, 3 * kBlockSize);
}

TEST_F(RouterTest, IdentityKeepsPromptsApart) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  Store(kOne, prompt);
  RouteRequest request = RequestFor(prompt);
  EXPECT_EQ(Route(request).overlap.device(), 4u);
  request.lora_name = "sql";
  EXPECT_EQ(Route(request).overlap.device(), 0u);
  request.lora_name = {};
  request.cache_salt = "tenant-a";
  EXPECT_EQ(Route(request).overlap.device(), 0u);
}

// As among an engine's keys: a client may have put the tag there by itself.
TEST_F(RouterTest, ATaggedSaltIsTheSaltBehindTheTag) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  RouteRequest request = RequestFor(prompt);
  std::vector<BlockHash> blocks;
  hashing::HashBlocks(prompt, {.block_size = kBlockSize, .seed = hashing::Seed("", "t")}, blocks);
  for (const std::string_view salt : {"t", "dynamo-cache-salt:t"}) {
    request.cache_salt = salt;
    PromptBuffers buffers;
    const Prompt read = ReadPrompt(request, kBlockSize, false, buffers);
    EXPECT_EQ(std::vector<BlockHash>(read.blocks.begin(), read.blocks.end()), blocks) << salt;
  }
}

TEST_F(RouterTest, HashesDoAsWellAsTokens) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  Store(kOne, prompt);
  std::vector<BlockHash> blocks;
  hashing::HashBlocks(prompt, {.block_size = kBlockSize}, blocks);
  std::vector<SequenceHash> sequence;
  hashing::ChainHashes(blocks, sequence);
  const Decision by_tokens = Route(RequestFor(prompt));
  RouteRequest request;
  request.model_name = "m";
  request.block_hashes = blocks;
  request.isl_tokens = prompt.size();
  const Decision chained_here = Route(request);
  request.sequence_hashes = sequence;
  const Decision by_hashes = Route(request);
  for (const Decision* decision : {&chained_here, &by_hashes}) {
    EXPECT_EQ(decision->overlap.blocks, by_tokens.overlap.blocks);
    EXPECT_EQ(decision->predicted_cached_tokens, by_tokens.predicted_cached_tokens);
  }
  EXPECT_EQ(LoadOf(kOne).active_blocks, 4u);  // three times the same prompt
}

TEST_F(RouterTest, RefusesWithTheRightError) {
  const auto prompt = MakePrompt(1, 2);
  EXPECT_EQ(Refused(RequestFor(prompt)).code, ErrorCode::kNotFound);
  AddWorker(1);
  EXPECT_EQ(Refused(RequestFor({})).code, ErrorCode::kInvalidArgument);

  RouteRequest request = RequestFor(prompt);
  request.routing_group = "elsewhere";
  EXPECT_THAT(Refused(request).message,
              HasSubstr("no worker serves model=m routing_group=elsewhere"));

  const std::vector<BlockHash> blocks(2);
  const std::vector<SequenceHash> sequence(1);
  request = {};
  request.model_name = "m";
  request.block_hashes = blocks;
  EXPECT_EQ(Refused(request).code, ErrorCode::kInvalidArgument);  // no isl_tokens
  request.isl_tokens = 33;
  request.sequence_hashes = sequence;
  EXPECT_EQ(Refused(request).message, "block_hashes length 2 must match sequence_hashes length 1");
  request.tokens = prompt;
  EXPECT_THAT(Refused(request).message, HasSubstr("both tokens and hashes"));

  request = RequestFor(prompt);
  request.cost.temperature = -1;
  EXPECT_THAT(Refused(request).message, HasSubstr("temperature is -1"));
  request = RequestFor(prompt);
  const std::vector<Rank> failed{kOne};
  request.constraints.excluded = failed;
  EXPECT_EQ(Refused(request).code, ErrorCode::kUnavailable);

  RemoveWorker(1);
  EXPECT_EQ(Refused(RequestFor(prompt)).code, ErrorCode::kUnavailable);
  EXPECT_THAT(Metrics(), HasSubstr("kvr_routing_refused_total{code=\"unavailable\"} 2"));
}

TEST(Router, RefusesPromptsBeyondItsMaximum) {
  RouterOptions options;
  options.prompt_tokens_max = 32;
  RouterFixture fixture(options);
  fixture.AddWorker(1);
  EXPECT_TRUE(fixture.router.Route(RequestFor(MakePrompt(1, 2, 0))));
  const auto refused = fixture.router.Route(RequestFor(MakePrompt(1, 2, 1)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
}

TEST_F(RouterTest, WorkersWithoutUrlAreOnlyObserved) {
  AddWorker(1, 1, RankState::kExact, "");
  const auto prompt = MakePrompt(1, 2);
  EXPECT_THAT(Refused(RequestFor(prompt)).message, HasSubstr("1 unavailable"));
  AddWorker(2);
  EXPECT_EQ(Route(RequestFor(prompt)).rank, kTwo);
}

TEST_F(RouterTest, RetryLeavesOutWhatFailed) {
  AddWorker(1);
  AddWorker(2);
  const auto prompt = MakePrompt(1, 8);
  Store(kOne, prompt);
  RouteRequest request = RequestFor(prompt);
  request.request_id = "r";
  Decision first = Route(request);
  EXPECT_EQ(first.rank, kOne);
  first.booking.Free();
  const std::vector<Rank> failed{first.rank};
  request.constraints.excluded = failed;
  const Decision second = Route(request);
  EXPECT_EQ(second.rank, kTwo);
  EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
}

TEST_F(RouterTest, RequestIdsAreUnique) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 2);
  RouteRequest request = RequestFor(prompt);
  request.request_id = "r";
  const Decision first = Route(request);
  EXPECT_EQ(Refused(request).code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(LoadOf(kOne).active_requests, 1u);
}

TEST_F(RouterTest, PinnedRequestsGoWhereTheyMust) {
  AddWorker(1);
  AddWorker(2);
  const auto prompt = MakePrompt(1, 8);
  Store(kOne, prompt);
  RouteRequest request = RequestFor(prompt);
  request.constraints.pinned = sched::Pin{WorkerId{2}, 0};
  const Decision decision = Route(request);
  EXPECT_EQ(decision.rank, kTwo);
  EXPECT_EQ(decision.reason, Reason::kPinned);
}

TEST_F(RouterTest, DestroyingADecisionGivesTheLoadBack) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  {
    Decision decision = Route(RequestFor(prompt));
    EXPECT_EQ(LoadOf(kOne).active_requests, 1u);
    decision.booking.PrefillDone();
    decision.booking.AddOutput(100);
    EXPECT_GT(LoadOf(kOne).active_blocks, 4u);
    const Decision moved = std::move(decision);
    EXPECT_EQ(LoadOf(kOne).active_requests, 1u);
  }
  EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
  EXPECT_EQ(LoadOf(kOne).active_blocks, 0u);
}

TEST_F(RouterTest, AdvisoryDecisionsLeaveNoTrace_S40) {
  AddWorker(1);
  AddWorker(2);
  const auto prompt = MakePrompt(1, 4);
  RouteRequest request = RequestFor(prompt);
  request.policy = sched::PolicyKind::kRoundRobin;
  request.reserve = false;
  for (int i = 0; i < 3; ++i) {
    const Decision decision = Route(request);
    EXPECT_EQ(decision.rank, kOne);
    EXPECT_FALSE(decision.booking);
  }
  EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
  request.reserve = true;
  const Decision first = Route(request);
  const Decision second = Route(request);
  EXPECT_EQ(first.rank, kOne);
  EXPECT_EQ(second.rank, kTwo);
}

TEST_F(RouterTest, SaysHowFarTheCachesWereKnown) {
  AddWorker(1, 1, RankState::kBlind);
  AddWorker(2, 1, RankState::kBlind);
  const auto prompt = MakePrompt(1, 2);
  const auto view = [&] { return Route(RequestFor(prompt)).cache_view; };
  EXPECT_EQ(view(), CacheView::kNone);
  SetState(kOne, RankState::kWarming);
  EXPECT_EQ(view(), CacheView::kPartial);
  SetState(kOne, RankState::kExact);
  EXPECT_EQ(view(), CacheView::kPartial);
  SetState(kTwo, RankState::kDegraded);
  EXPECT_EQ(view(), CacheView::kPartial);
  SetState(kTwo, RankState::kExact);
  EXPECT_EQ(view(), CacheView::kExact);
  // The policy stays what was asked for, whatever is known.
  SetState(kOne, RankState::kBlind);
  SetState(kTwo, RankState::kBlind);
  EXPECT_EQ(Route(RequestFor(prompt)).policy, sched::PolicyKind::kKv);
  EXPECT_THAT(Metrics(), HasSubstr("kvr_routing_cache_views_total{view=\"none\"} 2"));
}

TEST_F(RouterTest, RanksWithoutEventsAreRemembered) {
  AddWorker(1, 1, RankState::kBlind);
  AddWorker(2, 1, RankState::kBlind);
  for (const Rank rank : {kOne, kTwo})
    SetState(rank, RankState::kBlind, StateReason::kNoEventSource);
  const auto prompt = MakePrompt(1, 8);
  const Rank first = Route(RequestFor(prompt)).rank;
  const Decision second = Route(RequestFor(prompt));
  EXPECT_EQ(second.rank, first);
  EXPECT_EQ(second.overlap.device(), 8u);
  EXPECT_EQ(second.guessed_blocks, 8u);
  EXPECT_EQ(second.reason, Reason::kLongestPrefix);
  EXPECT_EQ(second.cache_view, CacheView::kGuessed);
  EXPECT_EQ(second.predicted_cached_tokens, 8u * kBlockSize);
  EXPECT_THAT(Metrics(),
              HasSubstr("kvr_routing_guessed_blocks{model=\"m\",routing_group=\"default\"} 8"));
  // Two minutes after the last decision; advisory ones do not count.
  clock.Advance(Millis(119'000));
  RouteRequest advisory = RequestFor(prompt);
  advisory.reserve = false;
  EXPECT_EQ(Route(advisory).guessed_blocks, 8u);
  clock.Advance(Millis(1'200));
  EXPECT_EQ(Route(advisory).guessed_blocks, 0u);
  EXPECT_EQ(Route(advisory).cache_view, CacheView::kNone);
}

// Twelve blocks of cache: a third prompt of six drives the one out that was used least recently,
// however long ago; running ones stay.
TEST_F(RouterTest, RanksOfAKnownSizeKeepWhatFits) {
  AddWorker(1, 1, RankState::kBlind, "http://engine", 12);
  SetState(kOne, RankState::kBlind, StateReason::kNoEventSource);
  const auto guessed = [&](std::uint32_t seed) {
    const auto prompt = MakePrompt(seed, 6);
    RouteRequest request = RequestFor(prompt);
    request.reserve = false;
    return Route(request).guessed_blocks;
  };
  const auto first = MakePrompt(1, 6);
  const auto second = MakePrompt(2, 6);
  const auto third = MakePrompt(3, 6);
  {
    const Decision running = Route(RequestFor(first));
    (void)Route(RequestFor(second));
    clock.Advance(Millis(3'600'000));
    router.Sweep();
    EXPECT_EQ(guessed(1), 6u) << "time does not matter";
    EXPECT_EQ(guessed(2), 6u);
    (void)Route(RequestFor(third));
    EXPECT_EQ(guessed(1), 6u) << "it runs";
    EXPECT_EQ(guessed(2), 0u);
    EXPECT_EQ(guessed(3), 6u);
  }
  (void)Route(RequestFor(third));
  (void)Route(RequestFor(second));
  EXPECT_EQ(guessed(1), 0u);
  EXPECT_EQ(guessed(2), 6u);
  EXPECT_EQ(guessed(3), 6u);
}

TEST(Router, ByTimeAloneWhereCapacityIsNotToCount) {
  RouterOptions options;
  options.approximate_by_capacity = false;
  RouterFixture fixture(options);
  fixture.AddWorker(1, 1, RankState::kBlind, "http://engine", 12);
  fixture.SetState(kOne, RankState::kBlind, StateReason::kNoEventSource);
  const auto prompt = MakePrompt(1, 20);
  for (const std::uint32_t guessed : {0u, 20u}) {
    const auto decision = fixture.router.Route(RequestFor(prompt));
    ASSERT_TRUE(decision);
    EXPECT_EQ(decision->guessed_blocks, guessed);
  }
  fixture.clock.Advance(Millis(121'000));
  const auto later = fixture.router.Route(RequestFor(prompt));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->guessed_blocks, 0u);
}

TEST_F(RouterTest, GuessesEndWithTheirRank) {
  AddWorker(1, 1, RankState::kBlind);
  SetState(kOne, RankState::kBlind, StateReason::kNoEventSource);
  const auto prompt = MakePrompt(1, 8);
  (void)Route(RequestFor(prompt));
  RemoveWorker(1);
  router.Sweep();
  AddWorker(1, 1, RankState::kBlind);
  EXPECT_EQ(Route(RequestFor(prompt)).guessed_blocks, 0u);
}

TEST(Router, SiblingsFollowBeforeTheEventComes) {
  RouterOptions options;
  options.speculative_ttl = Millis(2'000);
  RouterFixture fixture(options);
  fixture.AddWorker(1);
  fixture.AddWorker(2);
  const auto prompt = MakePrompt(1, 8);
  auto first = fixture.router.Route(RequestFor(prompt));
  ASSERT_TRUE(first);
  const Rank chosen = first->rank;
  first->booking = {};  // its load no longer speaks against it
  auto second = fixture.router.Route(RequestFor(prompt));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->rank, chosen);
  EXPECT_EQ(second->guessed_blocks, 8u);
  EXPECT_EQ(second->cache_view, CacheView::kExact);
  // Row P4: what is real counts as it is, and stays when the guess is gone.
  fixture.Store(chosen, prompt);
  second->booking = {};
  auto third = fixture.router.Route(RequestFor(prompt));
  ASSERT_TRUE(third);
  EXPECT_EQ(third->guessed_blocks, 0u);
  third->booking = {};
  fixture.clock.Advance(Millis(5'000));
  const auto fourth = fixture.router.Route(RequestFor(prompt));
  ASSERT_TRUE(fourth);
  EXPECT_EQ(fourth->overlap.device(), 8u);
}

TEST_F(RouterTest, ExplainsTheChoice) {
  for (std::uint64_t worker = 1; worker <= 40; ++worker)
    AddWorker(worker, 1, worker == 3 ? RankState::kWarming : RankState::kExact);
  const auto prompt = MakePrompt(1, 8);
  Store({WorkerId{3}, 0}, prompt, 0, 5);
  Store({WorkerId{9}, 0}, prompt, 0, 3);
  RouteRequest request = RequestFor(prompt);
  request.policy = sched::PolicyKind::kRoundRobin;
  const Decision decision = Route(request);
  EXPECT_EQ(decision.rank, kOne);
  EXPECT_EQ(decision.policy, sched::PolicyKind::kRoundRobin);
  EXPECT_EQ(decision.reason, Reason::kShorterPrefix);
  EXPECT_EQ(decision.candidates, 40u);
  ASSERT_EQ(decision.explained.size(), RouterOptions{}.explained_max);
  EXPECT_EQ(decision.explained[0].rank, decision.rank);
  EXPECT_DOUBLE_EQ(decision.explained[0].cost.total, decision.cost.total);
  EXPECT_EQ(decision.explained[1].rank.worker, WorkerId{3});
  EXPECT_EQ(decision.explained[1].overlap.device(), 5u);
  EXPECT_EQ(decision.explained[1].state, RankState::kWarming);
  EXPECT_EQ(decision.explained[2].rank.worker, WorkerId{9});
  EXPECT_TRUE(
      std::is_sorted(decision.explained.begin() + 1, decision.explained.end(),
                     [](const auto& a, const auto& b) { return a.cost.total < b.cost.total; }));
}

TEST_F(RouterTest, CountsPredictionsAgainstReports) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  Store(kOne, prompt);
  const Decision decision = Route(RequestFor(prompt));
  router.ReportActual(decision, 64);
  router.ReportActual(decision, 48);
  router.ReportActual(decision, 80);
  const std::string text = Metrics();
  EXPECT_THAT(text,
              HasSubstr("kvr_routing_decisions_total{policy=\"kv\",reason=\"longest_prefix\"} 1"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_predicted_cached_tokens_total 64"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_reports_total 3"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_reported_predicted_tokens_total 192"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_reported_actual_tokens_total 192"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_overpredicted_tokens_total 16"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_underpredicted_tokens_total 16"));
  EXPECT_THAT(text, HasSubstr("kvr_routing_active_requests{model=\"m\",routing_group=\"default\","
                              "worker_id=\"1\",dp_rank=\"0\"} 1"));
}

TEST_F(RouterTest, FollowsTheCatalog) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  Decision on_one = Route(RequestFor(prompt));
  AddWorker(2);
  const Decision on_two = Route(RequestFor(prompt));
  EXPECT_EQ(on_two.rank, kTwo);
  RemoveWorker(1);
  AddWorker(1);  // the same id, another engine: nothing is booked there
  router.Sweep();
  EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
  EXPECT_EQ(LoadOf(kTwo).active_requests, 1u);
  on_one.booking.Free();
  EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
}

TEST_F(RouterTest, SweepFreesTheExpiredAndForgetsIdlePartitions) {
  AddWorker(1);
  const auto prompt = MakePrompt(1, 4);
  {
    const Decision lost = Route(RequestFor(prompt));
    clock.Advance(std::chrono::seconds{301});
    EXPECT_EQ(router.Sweep(), 1u);
    EXPECT_EQ(LoadOf(kOne).active_requests, 0u);
    RemoveWorker(1);
    router.Sweep();
    EXPECT_EQ(Refused(RequestFor(prompt)).code, ErrorCode::kUnavailable);  // still held by `lost`
  }
  router.Sweep();
  EXPECT_EQ(Refused(RequestFor(prompt)).code, ErrorCode::kNotFound);
}

TEST_F(RouterTest, RanksOfOneWorkerAreCandidatesOfTheirOwn) {
  AddWorker(1, 2);
  const auto prompt = MakePrompt(1, 4);
  Store({WorkerId{1}, 1}, prompt);
  const Decision decision = Route(RequestFor(prompt));
  EXPECT_EQ(decision.rank, (Rank{WorkerId{1}, 1}));
  EXPECT_TRUE(decision.send_dp_rank);
}

TEST(RouterOptions, Validate) {
  EXPECT_TRUE(RouterOptions{}.Validate());
  RouterOptions options;
  options.cost.temperature = -1;
  EXPECT_FALSE(options.Validate());
  options = {};
  options.load.expiry = Nanos{0};
  EXPECT_FALSE(options.Validate());
  options = {};
  options.prompt_tokens_max = 0;
  EXPECT_FALSE(options.Validate());
}

}  // namespace
}  // namespace kvr::routing
