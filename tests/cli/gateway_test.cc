#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <sys/stat.h>

#include "net/net_test_util.h"
#include "support/process.h"

namespace kvr::support {
namespace {

using net::testing::Eventually;
using net::testing::RawClient;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::uint16_t PortOf(const std::string& address_port) {
  return static_cast<std::uint16_t>(std::stoul(address_port.substr(address_port.rfind(':') + 1)));
}

// The --worker flags of all engines of a mock that was started with --json-ready.
std::vector<std::string> WorkerFlags(Process& mock, const std::string& block_size) {
  const std::string line = mock.WaitForLine("{");
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.parse(line);
  std::vector<std::string> flags;
  std::uint64_t id = 0;
  for (const simdjson::dom::element engine : root["engines"].get_array()) {
    const auto text = [](simdjson::dom::element value) {
      return std::string(std::string_view(value));
    };
    const simdjson::dom::element rank = engine["ranks"].at(0);
    flags.emplace_back("--worker");
    flags.push_back("id=" + std::to_string(++id) + ",url=" + text(engine["url"]) +
                    ",model=m,block-size=" + block_size + ",events=" + text(rank["events"]) +
                    ",replay=" + text(rank["replay"]));
  }
  return flags;
}

std::vector<std::string> GatewayWords(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {"gateway", "--port", "0"};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

std::string Post(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
         "Connection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string Ask(std::uint16_t port, const std::string& body) {
  RawClient client(port);
  EXPECT_TRUE(client.Send(Post(body)));
  return client.ReadToEnd();
}

TEST(KvrouteGateway, RoutesByWhatTheEnginesPublish) {
  Process mock({"mock", "--engines", "2", "--model", "m", "--block-size", "4", "--speedup", "100",
                "--json-ready"});
  Process gateway(GatewayWords(WorkerFlags(mock, "4")));
  const std::uint16_t port = PortOf(gateway.WaitForListener("gateway"));
  const std::string body = R"({"model":"m","prompt":"a b c d e f g h i j","max_tokens":2})";
  const std::string first = Ask(port, body);
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(first, HasSubstr("x-kvroute-tokens: engine\r\n"));
  EXPECT_THAT(first, HasSubstr("\"cached_tokens\":0"));
  const auto worker = [](const std::string& answer) {
    return answer.substr(answer.find("x-kvroute-worker: "), 20);
  };
  // The events travel on their own; once they are here every request goes where the blocks are. The
  // view is exact when both engines' histories are in.
  std::string answer;
  EXPECT_TRUE(Eventually([&] {
    answer = Ask(port, body);
    return answer.find("x-kvroute-predicted-cached-tokens: 0\r\n") == std::string::npos &&
           answer.find("x-kvroute-cache-view: exact\r\n") != std::string::npos;
  }));
  EXPECT_THAT(answer, HasSubstr("x-kvroute-predicted-cached-tokens: 8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\"cached_tokens\":8"));
  const std::string again = Ask(port, body);
  EXPECT_EQ(worker(again), worker(answer));

  gateway.Signal(SIGTERM);  // row 186
  EXPECT_EQ(gateway.Wait().exit_code, 0) << gateway.err();
}

std::string Get(std::uint16_t port, const std::string& path) {
  RawClient client(port);
  EXPECT_TRUE(client.Send("GET " + path + " HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"));
  return client.ReadToEnd();
}

TEST(KvrouteGateway, SeesWithoutARequestThatAnEngineIsGone) {
  Process mock({"mock", "--model", "m", "--block-size", "4", "--json-ready"});
  Process gateway(GatewayWords(WorkerFlags(mock, "4")));
  const std::uint16_t port = PortOf(gateway.WaitForListener("gateway"));
  const auto is_ready = [port] { return Get(port, "/ready").starts_with("HTTP/1.1 200"); };
  EXPECT_TRUE(Eventually(is_ready));
  EXPECT_TRUE(gateway.WaitForErr("worker 1 rank 0: blind (connecting) -> exact")) << gateway.err();
  mock.Signal(SIGKILL);
  mock.Wait();
  EXPECT_TRUE(gateway.WaitForErr("worker 1 cannot be reached")) << gateway.err();
  EXPECT_TRUE(gateway.WaitForErr("worker 1 rank 0: exact -> blind (disconnected), lost streams: 1"))
      << gateway.err();
  EXPECT_FALSE(is_ready());
  EXPECT_THAT(Get(port, "/workers"), HasSubstr("\"down\":true"));
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("kvr_gateway_engines_down 1\n"));
}

TEST(KvrouteGateway, SaysThatNoEngineCanBeReached) {
  Process gateway(
      {"gateway", "--port", "0", "--worker",
       "id=1,url=http://127.0.0.1:1,model=m,block-size=16,events=tcp://nowhere.invalid:1"});
  const std::uint16_t port = PortOf(gateway.WaitForListener("gateway"));
  EXPECT_TRUE(gateway.WaitForErr("worker 1 cannot be reached")) << gateway.err();
  const std::string ready = Get(port, "/ready");
  EXPECT_THAT(ready, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ready, HasSubstr("no engine could be reached when it was last tried"));
  EXPECT_THAT(Get(port, "/workers"), HasSubstr("no connection to the event endpoint yet"));
}

TEST(KvrouteGateway, DrainsOnTheFirstSignalAndEndsOnTheSecond) {
  Process mock({"mock", "--model", "m", "--block-size", "4", "--json-ready"});
  const auto words = GatewayWords(WorkerFlags(mock, "4"));
  {
    Process gateway(words);
    RawClient client(PortOf(gateway.WaitForListener("gateway")));
    ASSERT_TRUE(
        client.Send(Post(R"({"model":"m","prompt":[1,2,3],"max_tokens":20,"stream":true})")));
    client.ReadUntil("data: ");
    gateway.Signal(SIGTERM);
    EXPECT_THAT(client.ReadToEnd(), EndsWith("data: [DONE]\n\n\r\n0\r\n\r\n"));
    EXPECT_EQ(gateway.Wait().exit_code, 0);
  }
  Process gateway(words);
  RawClient client(PortOf(gateway.WaitForListener("gateway")));
  ASSERT_TRUE(client.Send(Post(R"({"model":"m","prompt":[1],"max_tokens":50000,"stream":true})")));
  client.ReadUntil("data: ");
  gateway.Signal(SIGTERM);
  gateway.Signal(SIGINT);            // row 187
  const auto done = gateway.Wait();  // not by the signal itself: it says so
  EXPECT_THAT(done.exit_code, AnyOf(128 + SIGINT, 128 + SIGTERM));
  EXPECT_THAT(done.err, HasSubstr("second signal"));
}

TEST(KvrouteGateway, ASignalBeforeItListensIsNoFailure) {
  const std::string pipe = ::testing::TempDir() + "kvroute_gateway_config_pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Process gateway({"gateway", "--config", pipe});
  const std::ofstream writer(pipe);  // opens when the gateway reads; it waits for the text
  gateway.Signal(SIGTERM);
  EXPECT_EQ(gateway.Wait().exit_code, 0) << gateway.err();
  std::remove(pipe.c_str());
}

TEST(KvrouteReplay, ASignalIsAFailureAndNoSignalsDeath) {
  const std::string trace = ::testing::TempDir() + "kvroute_replay_signal.jsonl";
  std::ofstream(trace) << R"({"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[1]})"
                       << '\n';
  net::testing::RawServer mute;
  Process replay({"replay", "--no-progress", "--arm",
                  "mute=http://127.0.0.1:" + std::to_string(mute.port()), trace});
  const auto request = mute.Accept();
  EXPECT_THAT(request->ReadUntil("\r\n\r\n"), StartsWith("POST "));
  replay.Signal(SIGTERM);
  EXPECT_EQ(replay.Wait().exit_code, 1);
  std::remove(trace.c_str());
}

TEST(KvrouteGateway, APortInUseEndsIt) {  // row 184
  net::testing::RawServer taken;
  const auto done = RunKvroute({"gateway", "--port", std::to_string(taken.port()), "--worker",
                                "id=1,url=http://127.0.0.1:1,model=m,block-size=16"});
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_THAT(done.err, HasSubstr(std::to_string(taken.port())));
  EXPECT_EQ(done.out, "");
}

TEST(KvrouteGateway, UsageErrorsAreOneLineAndSayWhere) {
  struct Row {
    std::vector<std::string> words;
    const char* says;
  };
  const std::string good = "id=1,url=http://h:1,model=m,block-size=16";
  const Row rows[] = {
      {{"gateway"}, "no workers"},
      {{"gateway", "--worker", "id=1"}, "url"},
      {{"gateway", "--worker", good, "--policy", "best"}, "round_robin"},
      {{"gateway", "--worker", good, "--gateway-in-flight-max", "0"}, "in_flight_max"},
      {{"gateway", "--worker", good, "--config", "/nowhere.yaml"}, "/nowhere.yaml"},
      {{"gateway", "--colour"}, "--colour"},
      {{"gateway", "--worker", good, "--worker", good}, "worker id 1 is given twice"},
      {{"gateway", "--worker", good, "--worker", "id=2,url=http://h:1,model=m,block-size=32"},
       "worker 2: block size 32"},
      {{"indexer", "--workers", "oops", "--block-size", "4"}, "oops"},
      {{"gateway", "--polcy", "kv"}, "did you mean `--policy`?"},
  };
  for (const Row& row : rows) {
    const auto done = RunKvroute(row.words);
    EXPECT_EQ(done.exit_code, 2) << row.says;
    EXPECT_THAT(done.err, HasSubstr(row.says));
    EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  }
}

TEST(KvrouteGateway, TheFileSaysWhichLineIsWrong) {
  const std::string path = ::testing::TempDir() + "gateway_test.yaml";
  std::ofstream(path) << "server:\n  port: 0\n  colour: red\n";
  const auto done = RunKvroute({"gateway", "--config", path});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("gateway_test.yaml:3"));
  EXPECT_THAT(done.err, HasSubstr("colour"));
}

}  // namespace
}  // namespace kvr::support
