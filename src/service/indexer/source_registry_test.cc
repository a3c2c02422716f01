#include "service/indexer/source_registry.h"

#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/text.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/io_runtime.h"

namespace kvr::service {
namespace {

constexpr Rank kRank{WorkerId{1}, 0};

class SourceRegistryTest : public ::testing::Test {
 protected:
  ~SourceRegistryTest() override {
    ingest_.Stop();
    runtime_.Stop();
  }

  void Register(const std::string& model, const std::string& endpoint = "tcp://127.0.0.1:9") {
    ASSERT_TRUE(Try(model, endpoint));
  }
  Result<bool> Try(const std::string& model, const std::string& endpoint) {
    fleet::EventSource source;
    source.endpoint = endpoint;
    return sources_.Register({kRank, {model, "default"}, source, 16, false});
  }
  void Unregister(const std::string& model) {
    ASSERT_TRUE(sources_.Unregister(kRank.worker, model, {}, {}));
  }
  // The worker comes and goes under model names that nobody ever asks of.
  void ComeAndGo(int models) {
    for (int i = 0; i < models; ++i) {
      Register(fmt::format("m{}", i));
      Unregister(fmt::format("m{}", i));
    }
  }

  ManualClock clock_;
  metrics::Registry metrics_;
  net::IoRuntime runtime_{{1, "io"}};
  std::unique_ptr<net::EventTransport> direct_ = net::MakeZmqTransport({});
  std::unique_ptr<net::EventTransport> transport_ =
      ingest::MakePollTransport(*direct_, runtime_, {});
  fleet::Catalog catalog_;
  index::IndexSet indexes_{index::IndexOptions{}};
  ingest::Ingest ingest_{*transport_, clock_, metrics_, {}};
  StreamStart streams_{catalog_, indexes_, ingest_, clock_, {}};
  SourceRegistry sources_{catalog_, indexes_, streams_, clock_, {.partition_grace = Millis{100}}};
};

TEST_F(SourceRegistryTest, Row44EmptyPartitionsAnswerForTheirGrace) {
  ComeAndGo(3);
  clock_.Advance(Millis{100});
  sources_.RemoveExpired();
  EXPECT_EQ(indexes_.size(), 3u);
  EXPECT_TRUE(sources_.FindIndex({"m1", "default"}));
  clock_.Advance(Millis{1});
  sources_.RemoveExpired();
  EXPECT_EQ(indexes_.size(), 0u);
  EXPECT_FALSE(sources_.FindIndex({"m1", "default"}));
}

TEST_F(SourceRegistryTest, Row44EmptyPartitionsGoThoughNobodyAsksForThem) {
  ComeAndGo(50);
  clock_.Advance(Millis{101});
  Register("other");
  EXPECT_EQ(indexes_.size(), 1u);
  Unregister("other");
  clock_.Advance(Millis{101});
  EXPECT_FALSE(sources_.FindIndex({"unknown", "default"}));
  EXPECT_EQ(indexes_.size(), 0u);
}

TEST_F(SourceRegistryTest, Row44AWorkerThatComesBackKeepsItsPartition) {
  ComeAndGo(2);
  Register("m0");
  clock_.Advance(Millis{101});
  sources_.RemoveExpired();
  EXPECT_EQ(indexes_.size(), 1u);
  EXPECT_TRUE(sources_.FindIndex({"m0", "default"}));
  // Its grace begins anew.
  Unregister("m0");
  clock_.Advance(Millis{100});
  EXPECT_TRUE(sources_.FindIndex({"m0", "default"}));
  clock_.Advance(Millis{1});
  EXPECT_FALSE(sources_.FindIndex({"m0", "default"}));
}

// What is asked of a registry, in order, and how many streams are followed afterwards.
struct Step {
  enum class What { kRegister, kReplace, kUnregister };
  What what;
  std::uint64_t worker;
  std::uint32_t dp_rank;
  std::string endpoint;  // "endpoint[|replay[|topic]]"
  std::string outcome;   // "new", "same", "gone" or the error's beginning
  std::size_t streams;
};

class SharedStreams : public SourceRegistryTest {
 protected:
  static fleet::EventSource SourceOf(const std::string& text) {
    fleet::EventSource source;
    const auto parts = Split(text, '|');
    source.endpoint = parts[0];
    if (parts.size() > 1 && !parts[1].empty()) source.replay_endpoint = std::string(parts[1]);
    if (parts.size() > 2) source.topic = parts[2];
    return source;
  }

  std::string Do(const Step& step) {
    const Partition partition{fmt::format("m{}", step.worker), "default"};
    if (step.what == Step::What::kUnregister) {
      const auto gone =
          sources_.Unregister(WorkerId{step.worker}, partition.model_name, {}, step.dp_rank);
      return gone ? "gone" : gone.error().message;
    }
    const auto added = sources_.Register({{WorkerId{step.worker}, step.dp_rank},
                                          partition,
                                          SourceOf(step.endpoint),
                                          16,
                                          step.what == Step::What::kReplace});
    if (!added) return added.error().message;
    return *added ? "new" : "same";
  }

  // Also while streams wait: `held`.
  void Run(std::initializer_list<Step> steps, bool held) {
    if (held) streams_.Hold();
    for (const Step& step : steps) {
      SCOPED_TRACE(fmt::format("worker {} rank {} {}", step.worker, step.dp_rank, step.endpoint));
      EXPECT_EQ(Do(step).substr(0, step.outcome.size()), step.outcome);
      if (!held) {
        EXPECT_EQ(ingest_.sources(), step.streams);
      }
    }
    if (!held) return;
    streams_.Release([](Rank, const Error& why) { ADD_FAILURE() << why.message; });
    EXPECT_EQ(ingest_.sources(), std::prev(steps.end())->streams);
  }
  // Every listed rank has a state that its stream gave it.
  void ExpectFollowed() {
    for (const auto& worker : catalog_.snapshot()->workers) {
      for (const fleet::RankEntry& entry : worker->ranks)
        EXPECT_EQ(entry.health->status().reason, StateReason::kConnecting);
    }
  }
};

constexpr auto kRegister = Step::What::kRegister;
constexpr auto kReplace = Step::What::kReplace;
constexpr auto kUnregister = Step::What::kUnregister;
const std::string kA = "tcp://127.0.0.1:9";
const std::string kB = "tcp://127.0.0.1:10";
const std::string kReplay = "|tcp://127.0.0.1:11";

class SharedStreamsEachWay : public SharedStreams, public ::testing::WithParamInterface<bool> {};

TEST_P(SharedStreamsEachWay, RanksOfOneEndpointAreFollowedThroughOneStream) {
  Run({{kRegister, 1, 0, kA, "new", 1},
       {kRegister, 1, 1, kA, "new", 1},
       {kRegister, 1, 2, kA, "new", 1},
       {kRegister, 1, 2, kA, "same", 1},
       {kRegister, 1, 3, kB, "new", 2},
       {kRegister, 2, 0, kA, "new", 3},
       {kUnregister, 1, 1, "", "gone", 3}},
      GetParam());
  ExpectFollowed();
}

TEST_P(SharedStreamsEachWay, AStreamEndsWithTheLastOfItsRanks) {
  Run({{kRegister, 1, 0, kA, "new", 1},
       {kRegister, 1, 1, kA, "new", 1},
       {kRegister, 1, 2, kA, "new", 1},
       {kUnregister, 1, 0, "", "gone", 1},
       {kUnregister, 1, 0, "", "instance 1 dp_rank 0 not found", 1},
       {kUnregister, 1, 2, "", "gone", 1},
       {kUnregister, 1, 1, "", "gone", 0}},
      GetParam());
}

TEST_P(SharedStreamsEachWay, TheRankAStreamWasFollowedForMayComeBackOrGoElsewhere) {
  Run({{kRegister, 1, 0, kA, "new", 1},
       {kRegister, 1, 1, kA, "new", 1},
       {kUnregister, 1, 0, "", "gone", 1},
       {kRegister, 1, 0, kA, "new", 1},
       {kReplace, 1, 0, kB, "new", 2},
       {kReplace, 1, 1, kB, "new", 1},
       {kReplace, 1, 1, kB, "same", 1},
       {kReplace, 1, 0, kA, "new", 2}},
      GetParam());
  ExpectFollowed();
}

TEST_P(SharedStreamsEachWay, OneStreamIsReadInOneWay) {
  Run({{kRegister, 1, 0, kA + kReplay, "new", 1},
       {kRegister, 1, 1, kA, "instance 1 dp_rank 0 is registered with `tcp://127.0.0.1:9`", 1},
       {kRegister, 1, 1, kA + kReplay, "new", 1},
       {kReplace, 1, 1, kA, "instance 1 dp_rank 0 is registered with", 1},
       {kRegister, 1, 1, kA + kReplay, "same", 1},
       {kRegister, 1, 2, kA + "||kv@2", "new", 2},
       {kRegister, 3, 0, "trtllm+http://127.0.0.1:9", "new", 3},
       {kRegister, 3, 1, "trtllm+http://127.0.0.1:9", "new", 3},
       {kRegister, 3, 2, "trtllm+http://127.0.0.1:9||kv", "instance 3 dp_rank 0", 3},
       {kUnregister, 1, 1, "", "gone", 3},
       {kReplace, 1, 0, kA, "new", 3}},
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ways, SharedStreamsEachWay, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Waiting" : "AtOnce"; });

}  // namespace
}  // namespace kvr::service
