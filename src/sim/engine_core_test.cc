#include "sim/engine_core.h"

#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/engine_timeline.h"

namespace kvr::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RequestId Id(std::uint64_t n) {
  return RequestId{n};
}

// `length` tokens; prompts with the same `family` share them from the start.
std::vector<TokenId> Prompt(std::uint32_t length, std::uint32_t family) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), family * 100'000);
  return tokens;
}

EngineCore::Options Base(std::uint32_t block_size = 64, std::uint32_t blocks_max = 1'024) {
  EngineCore::Options options;
  options.pool.block_size = block_size;
  options.pool.blocks_max = blocks_max;
  return options;
}

void MustSubmit(EngineCore& core, std::uint64_t id, std::vector<TokenId> prompt,
                std::uint32_t max_tokens) {
  const auto submitted =
      core.Submit({.id = Id(id), .prompt = std::move(prompt), .max_tokens = max_tokens});
  ASSERT_TRUE(submitted.has_value()) << submitted.error().message;
}

PassResult Pass(EngineCore& core) {
  PassResult result;
  core.Pass(result);
  return result;
}

// Runs until idle; the passes in order.
std::vector<PassResult> Drain(EngineCore& core) {
  std::vector<PassResult> passes;
  while (!core.idle() && passes.size() < 100'000)
    passes.push_back(Pass(core));
  EXPECT_TRUE(core.idle());
  return passes;
}

std::uint32_t CachedOf(const PassResult& pass, std::uint64_t id) {
  for (const auto& admission : pass.admitted) {
    if (admission.id == Id(id)) return admission.cached_tokens;
  }
  ADD_FAILURE() << "request " << id << " was not admitted";
  return 0;
}

std::uint64_t CountEvents(const PassResult& pass, PlacementKind kind) {
  return static_cast<std::uint64_t>(std::count_if(pass.events.begin(), pass.events.end(),
                                                  [&](const auto& e) { return e.kind == kind; }));
}

TEST(EngineCore, M1_AFullyCachedPromptRecomputesItsLastBlock) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(128, 1), 1);
  Drain(core);
  MustSubmit(core, 2, Prompt(128, 1), 1);
  EXPECT_EQ(CachedOf(Pass(core), 2), 64u);
}

TEST(EngineCore, M2_OneTokenBeyondTheCacheReusesAllOfIt) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(128, 1), 1);
  Drain(core);
  MustSubmit(core, 2, Prompt(129, 1), 1);
  EXPECT_EQ(CachedOf(Pass(core), 2), 128u);
}

TEST(EngineCore, M4_ALongPromptTakesSeveralPasses) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(20'000, 1), 1);
  EXPECT_THAT(Pass(core).outputs, IsEmpty());
  EXPECT_THAT(Pass(core).outputs, IsEmpty());
  const PassResult third = Pass(core);
  ASSERT_THAT(third.outputs, SizeIs(1));
  EXPECT_TRUE(third.outputs[0].token.has_value());
  EXPECT_TRUE(third.outputs[0].finished);
}

TEST(EngineCore, M5_WithoutChunksAPromptBeyondThePassIsRefused) {
  EngineCore::Options options = Base();
  options.chunked_prefill = false;
  EngineCore core(options);
  const auto refused = core.Submit({.id = Id(1), .prompt = Prompt(20'000, 1), .max_tokens = 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(core.idle());
}

TEST(EngineCore, WithoutChunksAPromptWaitsUntilItFitsThePass) {
  EngineCore::Options options = Base();
  options.chunked_prefill = false;
  options.pass_tokens_max = 1'000;
  EngineCore core(options);
  MustSubmit(core, 1, Prompt(600, 1), 2);
  MustSubmit(core, 2, Prompt(600, 2), 1);
  EXPECT_THAT(Pass(core).admitted, SizeIs(1));
  EXPECT_EQ(CachedOf(Pass(core), 2), 0u);
}

TEST(EngineCore, M6_APromptAsLongAsTheContextIsRefused) {
  EngineCore::Options options = Base();
  options.context_tokens_max = 1'000;
  EngineCore core(options);
  EXPECT_FALSE(core.Submit({.id = Id(1), .prompt = Prompt(1'000, 1), .max_tokens = 1}).has_value());
  MustSubmit(core, 2, Prompt(999, 1), 50);
  const auto passes = Drain(core);
  ASSERT_THAT(passes, SizeIs(1)) << "only one token fits behind the prompt";
  EXPECT_THAT(passes[0].outputs, SizeIs(1));
}

TEST(EngineCore, M7_APromptBeyondThePoolIsRefusedAndThePoolUndisturbed) {
  EngineCore core(Base(64, 8));
  MustSubmit(core, 1, Prompt(256, 1), 1);
  Drain(core);
  const auto visible = core.pool().Visible(Tier::kDevice);
  EXPECT_FALSE(core.Submit({.id = Id(2), .prompt = Prompt(513, 2), .max_tokens = 1}).has_value());
  EXPECT_THAT(Pass(core).events, IsEmpty());
  EXPECT_EQ(core.pool().Visible(Tier::kDevice), visible);
}

TEST(EngineCore, APromptThatFillsThePoolRuns) {
  EngineCore core(Base(64, 8));
  MustSubmit(core, 1, Prompt(512, 1), 5);
  const auto passes = Drain(core);
  ASSERT_THAT(passes, SizeIs(1));
  EXPECT_TRUE(passes[0].outputs[0].finished) << "output is cut to what the pool holds";
}

TEST(EngineCore, RefusesWhatIsNoRequest) {
  EngineCore::Options options = Base();
  options.waiting_max = 1;
  EngineCore core(options);
  EXPECT_EQ(core.Submit({.id = Id(1), .prompt = {}, .max_tokens = 1}).error().code,
            ErrorCode::kInvalidArgument);
  MustSubmit(core, 1, Prompt(10, 1), 3);
  EXPECT_EQ(core.Submit({.id = Id(2), .prompt = Prompt(10, 1), .max_tokens = 1}).error().code,
            ErrorCode::kOverloaded);
  Pass(core);
  EXPECT_EQ(core.Submit({.id = Id(1), .prompt = Prompt(10, 1), .max_tokens = 1}).error().code,
            ErrorCode::kAlreadyExists);
}

// Two decoders fill a pool of 4 blocks of 4 tokens and both need a fifth block in the same pass.
void FillPool(EngineCore& core) {
  MustSubmit(core, 1, Prompt(8, 1), 5);
  MustSubmit(core, 2, Prompt(8, 2), 5);
  const PassResult first = Pass(core);
  ASSERT_THAT(first.outputs, SizeIs(2));
  ASSERT_EQ(core.pool().active(), 4u);
}

TEST(EngineCore, M8_ThePoolIsFullSoTheLastAdmittedGoesToTheFront) {
  EngineCore core(Base(4, 4));
  FillPool(core);
  MustSubmit(core, 3, Prompt(4, 3), 1);

  const PassResult pass = Pass(core);
  ASSERT_THAT(pass.outputs, SizeIs(1));
  EXPECT_EQ(pass.outputs[0].id, Id(1));
  EXPECT_EQ(core.stats().preemptions, 1u);
  // Request 1 took one of the blocks that 2 gave up: the leaf went, which is eviction, and the pool
  // says so. Pre-emption itself removes nothing.
  EXPECT_EQ(CountEvents(pass, PlacementKind::kRemoved), 1u);
  EXPECT_EQ(core.pool().Visible(Tier::kDevice).size(), 3u);

  // It comes back before request 3, finds its first block, and goes on where it was: one token had
  // been generated, four are left.
  const auto passes = Drain(core);
  std::vector<std::uint64_t> admitted;
  std::uint32_t outputs = 0;
  for (const PassResult& later : passes) {
    for (const auto& admission : later.admitted)
      admitted.push_back(Raw(admission.id));
    for (const auto& output : later.outputs)
      outputs += output.id == Id(2);
  }
  EXPECT_THAT(admitted, ElementsAre(2u, 3u));
  EXPECT_EQ(outputs, 4u);
}

TEST(EngineCore, M8_PreemptionAloneRemovesNothing) {
  // Room for one more block exists only by taking a victim's private block, so nothing is evicted.
  EngineCore core(Base(4, 5));
  MustSubmit(core, 1, Prompt(8, 1), 9);
  MustSubmit(core, 2, Prompt(7, 2), 9);  // its second block is private
  PassResult pass;
  std::uint64_t removed = 0;
  while (core.stats().preemptions == 0) {
    pass = Pass(core);
    removed += CountEvents(pass, PlacementKind::kRemoved);
  }
  EXPECT_EQ(removed, 0u);
}

TEST(EngineCore, PreemptingTheFirstUndoesItsWorkOfThePass) {
  EngineCore::Options options = Base(4, 4);
  options.preemption = EngineCore::Preemption::kFirstAdmitted;
  EngineCore core(options);
  FillPool(core);
  // Request 1 needs a block first, finds none, and is itself the first: it goes, and 2 runs.
  const PassResult pass = Pass(core);
  ASSERT_THAT(pass.outputs, SizeIs(1));
  EXPECT_EQ(pass.outputs[0].id, Id(2));
  std::map<std::uint64_t, std::uint32_t> tokens;
  for (const PassResult& later : Drain(core)) {
    for (const auto& output : later.outputs)
      ++tokens[Raw(output.id)];
  }
  EXPECT_EQ(tokens[1], 4u);
  EXPECT_EQ(tokens[2], 3u);
}

TEST(EngineCore, M9_NothingIsAdmittedInAPassThatPreempts) {
  EngineCore core(Base(4, 4));
  FillPool(core);
  MustSubmit(core, 3, Prompt(1, 3), 1);
  const PassResult pass = Pass(core);
  EXPECT_EQ(core.stats().preemptions, 1u);
  EXPECT_THAT(pass.admitted, IsEmpty());
}

TEST(EngineCore, M10_AnIdenticalPromptHitsInTheSamePass) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(640, 1), 1);
  MustSubmit(core, 2, Prompt(640, 1), 1);
  const PassResult pass = Pass(core);
  EXPECT_EQ(CachedOf(pass, 1), 0u);
  EXPECT_EQ(CachedOf(pass, 2), 576u);
  ASSERT_EQ(CountEvents(pass, PlacementKind::kStored), 1u);
  EXPECT_THAT(pass.events[0].hashes, SizeIs(10));
}

TEST(EngineCore, M11_IdenticalRequestsMakeCopiesButOneAnnouncement) {
  EngineCore core(Base(4, 8));
  // Both compute their second block, since the last token is always computed, and then the same
  // output side by side.
  MustSubmit(core, 1, Prompt(8, 1), 5);
  MustSubmit(core, 2, Prompt(8, 1), 5);
  std::vector<PassResult> passes;
  for (int i = 0; i < 5; ++i)
    passes.push_back(Pass(core));
  EXPECT_TRUE(core.idle());
  // One first block, and of the other two a copy for each request.
  EXPECT_EQ(core.pool().idle(), 5u);
  EXPECT_EQ(core.pool().Visible(Tier::kDevice).size(), 3u);
  std::uint64_t stored = 0;
  for (const PassResult& pass : passes)
    stored += CountEvents(pass, PlacementKind::kStored);
  EXPECT_EQ(stored, 2u) << "the prompt as one run, then the output block";

  // 7 blocks are wanted and 3 are free: 4 of the 5 copies go, all but the first block.
  MustSubmit(core, 3, Prompt(28, 3), 1);
  EXPECT_EQ(CountEvents(Pass(core), PlacementKind::kRemoved), 2u);
}

TEST(EngineCore, M14_NoOutputAskedForCompletesAfterPrefill) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(100, 1), 0);
  const PassResult pass = Pass(core);
  ASSERT_THAT(pass.outputs, SizeIs(1));
  EXPECT_FALSE(pass.outputs[0].token.has_value());
  EXPECT_TRUE(pass.outputs[0].finished);
  EXPECT_TRUE(core.idle());
  EXPECT_EQ(core.stats().generated_tokens, 0u);
}

TEST(EngineCore, M15_OneTokenIsFirstAndLast) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(100, 1), 1);
  const auto passes = Drain(core);
  ASSERT_THAT(passes, SizeIs(1));
  EXPECT_TRUE(passes[0].outputs[0].token.has_value());
  EXPECT_TRUE(passes[0].outputs[0].finished);
}

TEST(EngineCore, TimeToFirstTokenWithoutLoadIsPrefillAndDecode) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(2'048, 1), 2);
  const PassResult pass = Pass(core);
  const TimeModel& time = core.options().time;
  const double ms = time.PrefillMs(2'048) + time.DecodeMs(1, 2'048, 64 * 1'024);
  EXPECT_NEAR(static_cast<double>(pass.duration.count()) / 1e6, ms, 1e-5);
}

TEST(EngineCore, DecodeBlocksAreAnnouncedAsTheyFill) {
  EngineCore core(Base(4, 64));
  MustSubmit(core, 1, Prompt(6, 1), 8);
  std::vector<std::size_t> stored;
  for (const PassResult& pass : Drain(core)) {
    std::size_t blocks = 0;
    for (const KvEvent& event : pass.events)
      blocks += event.hashes.size();
    stored.push_back(blocks);
  }
  // 4 prompt tokens at once; the 8th token is computed in pass 3, the 12th in pass 7. The last
  // token is never computed.
  EXPECT_THAT(stored, ElementsAre(1u, 0u, 1u, 0u, 0u, 0u, 1u, 0u));
}

TEST(EngineCore, AbortFreesTheBlocksAndKeepsThemCached) {
  EngineCore core(Base());
  MustSubmit(core, 1, Prompt(640, 1), 100);
  MustSubmit(core, 2, Prompt(640, 2), 100);
  Pass(core);
  EXPECT_TRUE(core.Abort(Id(1)));
  EXPECT_FALSE(core.Abort(Id(1)));
  EXPECT_TRUE(core.Abort(Id(2)));
  EXPECT_TRUE(core.idle());
  EXPECT_EQ(core.pool().active(), 0u);
  MustSubmit(core, 3, Prompt(700, 1), 1);
  EXPECT_EQ(CachedOf(Pass(core), 3), 640u);
}

TEST(EngineCore, PromptsThatLeftTheDeviceAreLoadedBackFromTheHost) {
  EngineCore::Options options = Base(4, 8);
  options.pool.host_blocks_max = 64;
  EngineCore core(options);
  MustSubmit(core, 1, Prompt(21, 1), 1);
  Drain(core);
  MustSubmit(core, 2, Prompt(29, 2), 1);  // 8 blocks: everything of request 1 goes
  Drain(core);
  MustSubmit(core, 3, Prompt(21, 1), 1);
  const PassResult pass = Pass(core);
  EXPECT_EQ(CachedOf(pass, 3), 20u);
  std::vector<std::size_t> stored_on_device;
  for (const KvEvent& event : pass.events) {
    if (event.kind != PlacementKind::kStored) continue;
    EXPECT_EQ(event.tier, Tier::kDevice) << "the host has it already";
    stored_on_device.push_back(event.hashes.size());
  }
  EXPECT_THAT(stored_on_device, ElementsAre(5u)) << "loading back announces them on the device";
  const TimeModel& time = core.options().time;
  EXPECT_NEAR(static_cast<double>(pass.duration.count()) / 1e6,
              time.PrefillMs(1) + time.DecodeMs(1, 21, 32) + 20 * time.host_load_ms_per_token,
              1e-5);
}

TEST(EngineCore, EnginesWithDifferentSeedsNameEqualBlocksDifferentlyAndSayTheSame) {
  EngineCore::Options options = Base();
  EngineCore first(options);
  options.hash_seed = 99;
  EngineCore second(options);
  MustSubmit(first, 1, Prompt(128, 1), 3);
  MustSubmit(second, 1, Prompt(128, 1), 3);
  const auto a = Drain(first);
  const auto b = Drain(second);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].outputs[0].token, b[i].outputs[0].token);
  EXPECT_EQ(a[0].events[0].tokens, b[0].events[0].tokens);
  EXPECT_NE(a[0].events[0].hashes, b[0].events[0].hashes);
}

TEST(EngineCore, OptionsThatCannotWorkAreNamed) {
  const auto broken = [](auto&& change) {
    EngineCore::Options options;
    change(options);
    return options.Validate().has_value();
  };
  EXPECT_TRUE(EngineCore::Options{}.Validate().has_value());
  EXPECT_FALSE(broken([](auto& o) { o.pool.block_size = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.pool.blocks_max = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.requests_max = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.waiting_max = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.pass_tokens_max = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.vocabulary = 0; }));
  EXPECT_FALSE(broken([](auto& o) { o.time.decode_base_ms = -1; }));
}

// Everything a run did, comparable byte for byte.
std::string Transcript(const std::vector<PassResult>& passes) {
  std::string text;
  for (const PassResult& pass : passes) {
    text += std::to_string(pass.duration.count());
    for (const auto& a : pass.admitted)
      text += " a" + std::to_string(Raw(a.id)) + ":" + std::to_string(a.cached_tokens);
    for (const auto& o : pass.outputs)
      text += " o" + std::to_string(Raw(o.id)) + ":" + std::to_string(o.token.value_or(0));
    for (const auto& e : pass.events) {
      for (const EngineHash hash : e.hashes)
        text += " e" + std::to_string(static_cast<int>(e.kind)) + ":" + std::to_string(Raw(hash));
    }
    text += '\n';
  }
  return text;
}

// A random workload under memory pressure, checked at the end of every pass.
std::string RandomRun(std::uint64_t seed, EngineCore::Options options) {
  Rng rng(seed);
  options.pool.host_blocks_max = static_cast<std::uint32_t>(rng.Below(2) * 40);
  options.hash_seed = seed;
  EngineCore core(options);
  std::vector<PassResult> passes;
  std::map<Tier, std::set<EngineHash>> reader;
  std::map<std::uint64_t, std::uint32_t> wanted, got;
  std::uint64_t next = 1;
  while (next <= 150 || !core.idle()) {
    if (next <= 150 && rng.Below(3) == 0) {
      const auto max_tokens = static_cast<std::uint32_t>(rng.Below(30));
      const auto length = static_cast<std::uint32_t>(1 + rng.Below(120));
      MustSubmit(core, next, Prompt(length, static_cast<std::uint32_t>(rng.Below(5))), max_tokens);
      wanted[next++] = max_tokens;
    }
    if (rng.Below(40) == 0 && next > 1) {
      const std::uint64_t victim = 1 + rng.Below(next - 1);
      if (core.Abort(Id(victim))) wanted.erase(victim);
    }
    PassResult pass = Pass(core);
    for (const KvEvent& event : pass.events) {
      for (const EngineHash hash : event.hashes) {
        if (event.kind == PlacementKind::kStored) {
          EXPECT_TRUE(reader[event.tier].insert(hash).second);
        } else {
          EXPECT_EQ(reader[event.tier].erase(hash), 1u);
        }
      }
    }
    for (const auto& output : pass.outputs)
      got[Raw(output.id)] += output.token.has_value();
    for (const Tier tier : {Tier::kDevice, Tier::kHostPinned}) {
      EXPECT_EQ(core.pool().Visible(tier),
                std::vector<EngineHash>(reader[tier].begin(), reader[tier].end()));
    }
    EXPECT_LE(core.pool().active() + core.pool().idle(), options.pool.blocks_max);
    EXPECT_LE(core.stats().running, options.requests_max);
    passes.push_back(std::move(pass));
    if (passes.size() > 50'000) {
      ADD_FAILURE() << "no progress with seed " << seed;
      return {};
    }
  }
  for (const auto& [id, tokens] : wanted)
    EXPECT_EQ(got[id], tokens) << "request " << id << " of seed " << seed;
  EXPECT_EQ(core.pool().active(), 0u);
  return Transcript(passes);
}

TEST(EngineCore, M21_M33_RandomRunsKeepTheirPromisesAndRepeat) {
  EngineCore::Options options = Base(4, 48);
  options.requests_max = 6;
  options.pass_tokens_max = 64;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    options.preemption = seed % 2 == 0 ? EngineCore::Preemption::kFirstAdmitted
                                       : EngineCore::Preemption::kLastAdmitted;
    EXPECT_EQ(RandomRun(seed, options), RandomRun(seed, options));
  }
}

TEST(EngineCore, M34_HitsAndComputedTokensAddUpToThePrompts) {
  EngineCore core(Base(16, 8'192));
  Rng rng(5);
  for (std::uint64_t id = 1; id <= 200; ++id) {
    MustSubmit(
        core, id,
        Prompt(static_cast<std::uint32_t>(1 + rng.Below(900)), static_cast<std::uint32_t>(id % 7)),
        4);
    if (id % 3 == 0) Pass(core);
  }
  Drain(core);
  const EngineCore::Stats stats = core.stats();
  ASSERT_EQ(stats.preemptions, 0u);
  EXPECT_GT(stats.cached_tokens, 0u);
  EXPECT_EQ(stats.cached_tokens + stats.prefilled_tokens, stats.prompt_tokens);
  EXPECT_EQ(stats.generated_tokens, 800u);
  EXPECT_EQ(stats.finished, 200u);
}

TEST(EngineTimeline, M20_RanksInStepWaitForTheSlowest) {
  EngineCore busy(Base());
  EngineCore other(Base());
  std::vector<std::pair<std::size_t, Nanos>> ends;
  EngineTimeline timeline({&busy, &other}, [&](std::size_t rank, Nanos end, PassResult& result) {
    if (!result.outputs.empty()) ends.emplace_back(rank, end);
  });
  MustSubmit(busy, 1, Prompt(8'000, 1), 1);
  timeline.Advance(Nanos{0});
  ASSERT_TRUE(timeline.next().has_value());
  const Nanos slow = *timeline.next();

  // Arrives while the other rank works, and starts only when that pass ends.
  timeline.Advance(Nanos{1'000});
  MustSubmit(other, 2, Prompt(16, 2), 1);
  timeline.Advance(Nanos{1'000});
  EXPECT_EQ(*timeline.next(), slow);
  timeline.Advance(std::chrono::seconds(10));
  ASSERT_THAT(ends, SizeIs(2));
  EXPECT_EQ(ends[0], std::make_pair(std::size_t{0}, slow));
  EXPECT_EQ(ends[1].first, 1u);
  EXPECT_GT(ends[1].second, slow);
  EXPECT_FALSE(timeline.next().has_value());
}

TEST(EngineTimeline, PassesFollowEachOtherHoweverLateTheCallerLooks) {
  const auto run = [](Nanos step) {
    EngineCore core(Base());
    std::vector<Nanos> ends;
    EngineTimeline timeline({&core},
                            [&](std::size_t, Nanos end, PassResult&) { ends.push_back(end); });
    MustSubmit(core, 1, Prompt(100, 1), 20);
    for (Nanos now{0}; ends.size() < 20; now += step)
      timeline.Advance(now);
    return ends;
  };
  EXPECT_EQ(run(Nanos{10'000}), run(Nanos{77'000'000}));
}

}  // namespace
}  // namespace kvr::sim
