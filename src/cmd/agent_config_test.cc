#include "cmd/agent_config.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "config/option_table.h"

namespace kvr::cmd {
namespace {

std::string Finished(std::string_view yaml, std::string_view worker) {
  AgentConfig config;
  config::OptionTable table;
  config.Bind(table);
  if (const auto loaded = table.LoadYaml(yaml, "f"); !loaded) return loaded.error().message;
  if (!worker.empty()) {
    auto read = ReadWorkerFlag(worker);
    if (!read) return read.error().message;
    config.workers.push_back(*std::move(read));
  }
  const auto finished = config.Finish();
  return finished ? "" : finished.error().message;
}

constexpr std::string_view kWorker =
    "id=1,url=http://h:1,model=m,block-size=16,dp-size=2,events=tcp://h:5557";

TEST(AgentConfig, WhatIsWrongIsSaid) {
  const struct {
    std::string_view yaml;
    std::string_view worker;
    std::string_view error;
  } rows[] = {
      {"publish: {topic: kv}", kWorker, ""},
      {"publish: {endpoint: 'tcp://*:6000', replay_endpoint: 'tcp://*:6100'}", kWorker, ""},
      {"publish: {endpoint: 'tcp://*:*', replay_endpoint: ''}", kWorker, ""},
      {"", "", "no engine to follow; list it in --config or give --worker"},
      {"", "id=1,url=http://h:1,model=m,block-size=16",
       "worker 1: no `events`: there is nothing to publish"},
      {"publish: {endpoint: 'ipc:///x'}", kWorker,
       "`ipc:///x` has no port to which rank 1 can be added"},
      {"publish: {coalesce_ms: 15001}", kWorker,
       "f:1: publish.coalesce_ms must be a whole number of 0 to 15000, got `15001`"},
      {"publish: {ring_events_max: 0}", kWorker,
       "f:1: publish.ring_events_max must be a whole number of 1 to 1048576, got `0`"},
      {"publish: {replay_messages_max: 0}", kWorker,
       "f:1: publish.replay_messages_max must be a whole number of at least 1, got `0`"},
      {"publish: {replay_bytes_max: 0}", kWorker,
       "f:1: publish.replay_bytes_max must be a whole number of at least 1, got `0`"},
      {"publish: {send_bytes_max: 65535}", kWorker,
       "publish.send_bytes_max needs room for a message of publish.message_bytes_max"},
      {"index: {blocks_max: 1}", kWorker,
       "f:1: unknown key `index`; known: server, ingest, identity, log, publish, workers"},
  };
  for (const auto& row : rows)
    EXPECT_EQ(Finished(row.yaml, row.worker), row.error) << row.yaml;
}

TEST(AgentConfig, WhatMayBeGoneIsTakenBack) {
  EXPECT_TRUE(AgentConfig().server.ingest.stream.clear_on_loss);
}

TEST(AgentConfig, FurtherSourcesTellOfTheSameCache) {
  const auto finished = [](std::string_view second) {
    AgentConfig config;
    for (const std::string_view text : {kWorker, second})
      config.workers.push_back(*ReadWorkerFlag(text));
    const auto result = config.Finish();
    EXPECT_EQ(config.rank.publisher.sources, result ? 2u : 1u);
    return result ? "" : result.error().message;
  };
  EXPECT_EQ(finished("id=2,url=http://h:1,model=m,block-size=16,dp-size=2,events=tcp://h:7"), "");
  EXPECT_EQ(finished("id=1,url=http://h:1,model=m,block-size=16,dp-size=2,events=tcp://h:7"),
            "worker 1: this id is given twice; choose another");
  for (const std::string_view other :
       {"id=2,url=http://h:1,model=n,block-size=16,dp-size=2,events=tcp://h:7",
        "id=2,url=http://h:1,model=m,block-size=8,dp-size=2,events=tcp://h:7",
        "id=2,url=http://h:1,model=m,block-size=16,events=tcp://h:7"}) {
    EXPECT_EQ(finished(other),
              "worker 2: a further source has the model, block size and ranks of the first one");
  }
}

TEST(AgentConfig, OneRoutersMarkIsInBytes) {
  const auto mark = [](std::string_view yaml) {
    AgentConfig config;
    config::OptionTable table;
    config.Bind(table);
    EXPECT_TRUE(table.LoadYaml(yaml, "f"));
    return config.RankOptions({WorkerId{7}, 0}, 9)->send_high_water();
  };
  EXPECT_EQ(mark("{}"), 1'000) << "at most 64 MiB";
  EXPECT_EQ(mark("publish: {send_bytes_max: 6553600}"), 100);
  EXPECT_EQ(mark("publish: {message_bytes_max: 1048576}"), 64);
  EXPECT_EQ(mark("publish: {message_bytes_max: 67108864}"), 1);
  EXPECT_EQ(mark("publish: {send_high_water: 20}"), 20);
}

TEST(AgentConfig, EveryRankHasEndpointsOfItsOwn) {
  AgentConfig config;
  config.endpoint = "tcp://*:6000";
  config.replay_endpoint = "tcp://*:*";
  const Rank third{WorkerId{7}, 2};
  const auto options = config.RankOptions(third, 9);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->socket.endpoint, "tcp://*:6002");
  EXPECT_EQ(options->socket.replay_endpoint, "tcp://*:*");
  EXPECT_EQ(options->publisher.rank, third);
  EXPECT_EQ(options->publisher.publisher_id, 9u);
  config.replay_endpoint.clear();
  EXPECT_FALSE(config.RankOptions(third, 9)->socket.replay_endpoint);
}

}  // namespace
}  // namespace kvr::cmd
