// What someone meets who starts the gateway for the first time, with something forgotten or wrong.
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/net_test_util.h"
#include "support/process.h"

namespace kvr::support {
namespace {

using net::testing::Eventually;
using net::testing::RawClient;
using net::testing::RawServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Get(const std::string& address_port, const std::string& path) {
  const std::size_t colon = address_port.rfind(':');
  RawClient client(static_cast<std::uint16_t>(std::stoul(address_port.substr(colon + 1))));
  EXPECT_TRUE(client.Send("GET " + path + " HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"));
  return client.ReadToEnd();
}

std::vector<std::string> GatewayOf(const std::string& url, const std::string& more = {}) {
  return {"gateway", "--port", "0", "--worker",
          "id=1,url=" + url + ",model=m,block-size=16" + more};
}

// The log and /workers tell where it was looked for and what was found.
TEST(GatewayStart, SaysWhereAndWhyAWorkerCannotBeReached) {
  RawServer failing;  // answers, but is not healthy
  struct Row {
    std::string url;
    std::string why;
  };
  const Row rows[] = {
      {"http://127.0.0.1:1", "cannot connect to 127.0.0.1:1: Connection refused"},
      {"http://nowhere.invalid:8000", "cannot look up nowhere.invalid: "},
      {"http://127.0.0.1:" + std::to_string(failing.port()), "status 500 of GET /health"},
  };
  for (const Row& row : rows) {
    Process gateway(GatewayOf(row.url));
    const std::string address = gateway.WaitForListener("gateway");
    if (row.why.starts_with("status")) {
      const auto probe = failing.Accept();
      EXPECT_THAT(probe->ReadUntil("\r\n\r\n"), HasSubstr("/health"));
      EXPECT_TRUE(probe->Send("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"));
    }
    EXPECT_TRUE(gateway.WaitForErr("worker 1 cannot be reached at " + row.url + ": " + row.why))
        << gateway.err();
    if (row.why.starts_with("status")) continue;  // it is asked again, and then it is silent
    EXPECT_THAT(Get(address, "/workers"), HasSubstr("\"down\":true,\"down_reason\":\"" + row.why));
  }
}

TEST(GatewayStart, AWorkerThatAnswersHasNoReasonToBeDown) {
  Process mock({"mock", "--model", "m", "--block-size", "16"});
  const std::string engine = mock.WaitForListener("mock-engine-0-http");
  Process gateway(GatewayOf("http://" + engine));
  const std::string address = gateway.WaitForListener("gateway");
  EXPECT_TRUE(gateway.WaitForErr("worker 1 answers")) << gateway.err();
  EXPECT_THAT(Get(address, "/workers"), HasSubstr("\"down\":false,\"down_reason\":\"\""));
}

TEST(GatewayStart, WarnsOfWorkersWithoutEvents) {
  Process gateway({"gateway", "--port", "0",                                         //
                   "--worker", "id=1,url=http://127.0.0.1:1,model=m,block-size=16",  //
                   "--worker",
                   "id=2,url=http://127.0.0.1:1,model=m,block-size=16,"  //
                   "events=tcp://127.0.0.1:1",                           //
                   "--worker", "id=3,url=http://127.0.0.1:1,model=m,block-size=16"});
  const std::string address = gateway.WaitForListener("gateway");
  EXPECT_TRUE(gateway.WaitForErr("no `events` of worker 1, 3: ")) << gateway.err();
  EXPECT_THAT(Get(address, "/workers"),
              HasSubstr("\"reason\":\"no_event_source\","
                        "\"detail\":\"no `events` endpoint is given for it\""));
}

TEST(GatewayStart, DoesNotWarnWhereAllHaveEvents) {
  Process gateway(GatewayOf("http://127.0.0.1:1", ",events=tcp://127.0.0.1:1"));
  EXPECT_TRUE(gateway.WaitForErr("worker 1 cannot be reached")) << gateway.err();
  EXPECT_THAT(gateway.err(), Not(HasSubstr("no `events`")));
}

TEST(GatewayStart, RefusesAUrlThatEndsInV1) {
  const auto done = RunKvroute(GatewayOf("http://h:8000/v1"));
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, AllOf(HasSubstr("`http://h:8000/v1`"), HasSubstr("write `http://h:8000`")));
  const auto replay = RunKvroute({"replay", "--no-progress", "--arm", "a=http://h:8000/v1/",
                                  KVR_SOURCE_DIR "/data/mooncake_conversation_2000.jsonl"});
  EXPECT_EQ(replay.exit_code, 2);
  EXPECT_THAT(replay.err, HasSubstr("write `http://h:8000`"));
}

TEST(GatewayStart, RefusesPortsOfRanksThatCollide) {
  const auto done = RunKvroute(GatewayOf(
      "http://h:1", ",dp-size=2,events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558"));
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("`tcp://127.0.0.1:5558` is both `events` of rank 1 and "
                                  "`replay` of rank 0"));
}

// One environment serves all commands, and holds what others put there.
TEST(GatewayStart, LeavesVariablesThatAreForOthers) {
  ProcessOptions options;
  options.env = {{"KVR_GATEWAY_BODY_BYTES_MAX", "100000"},      // the gateway's
                 {"KVR_INDEXER_MIN_INITIAL_WORKERS", "0"},      // the indexer's
                 {"KVR_TEST_SEEDS", "3"},                       // the tests'
                 {"KVR_GATEWAY_SERVICE_HOST", "10.0.0.11"},     // of a service `kvr-gateway`
                 {"KVR_GATEWAY_SERVICE_PORT", "80"},            //
                 {"KVR_GATEWAY_PORT", "tcp://10.0.0.11:80"},    //
                 {"KVR_GATEWAY_PORT_80_TCP_PROTO", "tcp"},      //
                 {"KVR_SERVER_PORT", "tcp://10.0.0.12:8080"}};  // of a service `kvr-server`
  Process indexer({"indexer", "--port", "0"}, options);
  EXPECT_NE(indexer.WaitForListener("indexer"), "") << indexer.err();
  std::vector<std::string> words = GatewayOf("http://127.0.0.1:1");
  Process gateway(words, options);
  EXPECT_NE(gateway.WaitForListener("gateway"), "") << gateway.err();
  EXPECT_TRUE(gateway.WaitForErr("\"body_bytes_max\":100000")) << gateway.err();
}

TEST(GatewayStart, AnUnknownVariableIsOneShortLine) {
  ProcessOptions options;
  options.env = {{"KVR_SOMETHING_ELSE_ENTIRELY", "1"}};
  const auto done = RunKvroute(GatewayOf("http://127.0.0.1:1"), {}, options);
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.err,
            "kvroute gateway: unknown environment variable KVR_SOMETHING_ELSE_ENTIRELY; `kvroute "
            "options` lists all there are\n");
}

TEST(GatewayStart, HelpShowsFlagsAsTheyAreTyped) {
  for (const char* command : {"gateway", "indexer", "agent", "mock", "replay"}) {
    const auto done = RunKvroute({command, "--help"});
    EXPECT_EQ(done.exit_code, 0) << command;
    EXPECT_THAT(done.out, Not(HasSubstr("{false}"))) << command;
  }
}

TEST(GatewayStart, SaysWhatIsWrongWithAnIndent) {
  struct Row {
    std::string_view yaml;
    std::string_view says;
  };
  const Row rows[] = {
      {"server:\n\tport: 0\n", "start.yaml:2: "},
      {"server:\n\tport: 0\n", "indent with spaces"},
      {"server:\n  port: 0\n    address: ::1\n", "indented as its neighbours are"},
  };
  const std::string path = ::testing::TempDir() + "gateway_start.yaml";
  for (const Row& row : rows) {
    std::ofstream(path) << row.yaml;
    const auto done = RunKvroute({"gateway", "--config", path});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_THAT(done.err, HasSubstr(row.says)) << row.yaml;
  }
}

}  // namespace
}  // namespace kvr::support
