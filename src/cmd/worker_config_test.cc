#include "cmd/worker_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/yaml.h"

namespace kvr::cmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<WorkerConfig>> ReadYaml(const std::string& yaml) {
  KVR_TRY(const config::Node root, config::ParseYaml(yaml, "k.yaml"));
  return ReadWorkers(root.Find("workers"));
}

TEST(ReadWorkers, TheExampleOfTheReferencePageIsRead) {
  const auto workers = ReadYaml(std::string(kWorkersExample));
  ASSERT_TRUE(workers) << workers.error().message;
  ASSERT_EQ(workers->size(), 2u);
  EXPECT_THAT(workers->front().adapters, ElementsAre("sql", "poems"));
}

TEST(ReadWorkers, TheWholeOfOne) {
  const auto workers = ReadYaml(R"(
workers:
  - id: 18446744073709551615
    url: http://10.0.0.1:8000
    model: llama
    routing_group: blue
    block_size: 16
    dp_size: 2
    dp_start: 4
    events: tcp://10.0.0.1:5557
    replay: tcp://10.0.0.1:5657
    topic: kv
    adapters: [sql, poems]
    max_num_batched_tokens: 8192
    total_kv_blocks: 4000
    eagle: true
)");
  ASSERT_TRUE(workers) << workers.error().message;
  ASSERT_EQ(workers->size(), 1u);
  const WorkerConfig& worker = workers->front();
  EXPECT_EQ(worker.spec.id, WorkerId{18446744073709551615u});
  EXPECT_EQ(worker.spec.url, "http://10.0.0.1:8000");
  EXPECT_EQ(worker.spec.partition, (Partition{"llama", "blue"}));
  EXPECT_EQ(worker.spec.block_size, 16u);
  EXPECT_THAT(worker.spec.dp_ranks, ElementsAre(4u, 5u));
  ASSERT_EQ(worker.spec.events.size(), 2u);
  const fleet::EventSource want{"tcp://10.0.0.1:5562", "tcp://10.0.0.1:5662", "kv"};
  EXPECT_EQ(worker.spec.events.at(5), want);
  EXPECT_FALSE(worker.share_stream);
  EXPECT_THAT(worker.adapters, ElementsAre("sql", "poems"));
  EXPECT_EQ(worker.spec.max_num_batched_tokens, 8192u);
  EXPECT_EQ(worker.spec.total_kv_blocks, 4000u);
  EXPECT_TRUE(worker.spec.is_eagle);
}

TEST(ReadWorkers, EndpointsOfRanks) {
  const std::string head =
      "workers:\n  - {id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, ";
  const auto listed = ReadYaml(head + "events: ['tcp://h:1', 'tcp://h:9']}");
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(listed->front().spec.events.at(1).endpoint, "tcp://h:9");
  EXPECT_FALSE(listed->front().share_stream);
  const auto shared = ReadYaml(head + "events: ['tcp://h:1']}");
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_EQ(shared->front().spec.events.size(), 1u);
  EXPECT_TRUE(shared->front().share_stream);
  const auto blind = ReadYaml(head + "}");
  ASSERT_TRUE(blind) << blind.error().message;
  EXPECT_TRUE(blind->front().spec.events.empty());
  EXPECT_FALSE(blind->front().share_stream);
}

TEST(ReadWorkers, WhatTheEventsDoNotSay) {
  const std::string head = "workers:\n  - {id: 1, url: 'http://h:1', model: m, block_size: 16, ";
  const auto plain = ReadYaml(head + "events: 'tcp://h:1'}");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->front().spec.events.at(0).engine, fleet::EngineKind::kUnknown);
  EXPECT_FALSE(plain->front().spec.events.at(0).lenient_media);
  const auto named = ReadYaml(head + "events: 'tcp://h:1', engine: sglang, media: lenient}");
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->front().spec.events.at(0).engine, fleet::EngineKind::kSglang);
  EXPECT_TRUE(named->front().spec.events.at(0).lenient_media);
  for (const std::string bad : {"engine: tgi", "media: all"})
    EXPECT_FALSE(ReadYaml(head + "events: 'tcp://h:1', " + bad + "}")) << bad;
}

// One list of events for all ranks, and nothing to add to the port.
TEST(ReadWorkers, APolledEndpointIsShared) {
  const auto read = ReadWorkerFlag(
      "id=1,url=http://h:1,model=m,block-size=16,dp-size=2,events=trtllm+http://h:8000");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->spec.events.size(), 1u);
  EXPECT_EQ(read->spec.events.at(0).endpoint, "trtllm+http://h:8000");
  EXPECT_TRUE(read->share_stream);
  EXPECT_FALSE(
      ReadWorkerFlag("id=1,url=http://h:1,model=m,block-size=16,events=trtllm+https://h:8000"));
}

TEST(ReadWorkers, NoListIsNoWorker) {
  const auto none = ReadYaml("a: 1");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

TEST(ReadWorkers, ErrorsSayWhere) {
  struct Row {
    const char* entry;
    const char* says;
  };
  const Row rows[] = {
      {"{url: 'http://h:1', model: m, block_size: 16}", "id"},
      {"{id: 1, model: m, block_size: 16}", "url"},
      {"{id: 1, url: 'http://h:1', block_size: 16}", "model"},
      {"{id: 1, url: 'http://h:1', model: m}", "block_size"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 0}", "block_size"},
      {"{id: -1, url: 'http://h:1', model: m, block_size: 16}", "id"},
      {"{id: 1, url: 'ftp://h:1', model: m, block_size: 16}", "url"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 0}", "dp_size"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, event: 'tcp://h:1'}", "events"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, events: 'http://h:1'}", "http://h:1"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, events: 'ipc://a'}",
       "rank 1"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, events: 'tcp://h:65535'}",
       "rank 1"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 3, events: ['tcp://h:1', "
       "'tcp://h:2']}",
       "2 endpoints for 3 ranks"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, replay: 'tcp://h:1'}", "replay"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, events: 'tcp://h:5557', "
       "replay: 'tcp://h:5558'}",
       "`tcp://h:5558` is both `events` of rank 1 and `replay` of rank 0"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, events: ['tcp://h:1', "
       "'tcp://h:1']}",
       "`tcp://h:1` is both `events` of rank 0 and `events` of rank 1"},
      {"{id: 1, url: 'http://h:1', model: m, block_size: 16, events: 'tcp://h:1', replay: "
       "'tcp://h:1'}",
       "`tcp://h:1` is both"},
      {"{id: 1, url: 'http://h:8000/v1', model: m, block_size: 16}", "write `http://h:8000`"},
      {"{id: 1, url: 'http://h:8000/llm/v1/', model: m, block_size: 16}",
       "write `http://h:8000/llm`"},
      {"7", "map"},
  };
  for (const Row& row : rows) {
    const auto workers = ReadYaml(std::string("workers:\n  - ") + row.entry);
    ASSERT_FALSE(workers) << row.entry;
    EXPECT_THAT(workers.error().message, HasSubstr("k.yaml:2")) << row.entry;
    EXPECT_THAT(workers.error().message, HasSubstr(row.says)) << row.entry;
  }
}

TEST(ReadWorkers, AMisspeltKeyIsNoMissingOne) {
  for (const char* key : {"blocksize", "block-size"}) {
    const auto workers = ReadYaml(
        std::string("workers:\n  - {id: 1, url: 'http://h:1', model: m, ") + key + ": 16}");
    ASSERT_FALSE(workers);
    EXPECT_THAT(workers.error().message, HasSubstr("unknown key"));
    EXPECT_THAT(workers.error().message, HasSubstr("did you mean `block_size`?"));
  }
}

TEST(WorkersJson, IsReadAsTheSameWorkers) {
  const auto workers = ReadYaml(
      "workers:\n"
      "  - {id: 1, url: 'http://h:1', model: m, block_size: 16, dp_size: 2, events: 'tcp://h:1',"
      " replay: 'tcp://h:5', topic: kv, media: lenient, adapters: [a], total_kv_blocks: 9}\n"
      "  - {id: 2, url: 'http://h:2', model: m, block_size: 16}\n");
  ASSERT_TRUE(workers) << workers.error().message;
  const auto again = ReadYaml("workers: " + WorkersJson(*workers));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*again)[i].spec, (*workers)[i].spec);
    EXPECT_EQ((*again)[i].adapters, (*workers)[i].adapters);
  }
}

TEST(ReadWorkerFlag, OneLine) {
  const auto worker = ReadWorkerFlag(
      "id=3,url=http://h:8000,model=m,block-size=16,dp-size=2,events=tcp://h:1+tcp://h:5,"
      "replay=tcp://h:2+tcp://h:6,topic=t,adapters=a+b,routing-group=g");
  ASSERT_TRUE(worker) << worker.error().message;
  EXPECT_EQ(worker->spec.id, WorkerId{3});
  EXPECT_EQ(worker->spec.partition.routing_group, "g");
  const fleet::EventSource want{"tcp://h:5", "tcp://h:6", "t"};
  EXPECT_EQ(worker->spec.events.at(1), want);
  EXPECT_THAT(worker->adapters, ElementsAre("a", "b"));
}

TEST(ReadWorkerFlag, ErrorsNameTheFlag) {
  for (const char* bad : {"", "id", "id=1,id=2", "id=x,url=http://h:1,model=m,block-size=16",
                          "id=1,url=http://h:1,model=m,block-size=16,colour=red"}) {
    const auto worker = ReadWorkerFlag(bad);
    ASSERT_FALSE(worker) << bad;
    EXPECT_THAT(worker.error().message, HasSubstr("--worker")) << bad;
  }
}

TEST(ReadWorkerFlag, SuggestsKeysAsTheFlagHasThem) {
  const auto worker = ReadWorkerFlag("id=1,url=http://h:1,model=m,blocksize=16");
  ASSERT_FALSE(worker);
  EXPECT_EQ(worker.error().message,
            "--worker: unknown key `blocksize`; did you mean `block-size`?");
}

}  // namespace
}  // namespace kvr::cmd
