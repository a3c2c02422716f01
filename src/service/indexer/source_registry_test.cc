#include "service/indexer/source_registry.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "metrics/registry.h"
#include "net/event_socket.h"

namespace kvr::service {
namespace {

constexpr Rank kRank{WorkerId{1}, 0};

class SourceRegistryTest : public ::testing::Test {
 protected:
  ~SourceRegistryTest() override { ingest_.Stop(); }

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
  std::unique_ptr<net::EventTransport> transport_ = net::MakeZmqTransport({});
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

}  // namespace
}  // namespace kvr::service
