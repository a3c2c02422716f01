#include "cmd/replay_fleet.h"

#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/io_runtime.h"

namespace kvr::cmd {
namespace {

constexpr Millis kStartMax{30'000};
constexpr Millis kStopMax{20'000};
constexpr Millis kPollEvery{20};

struct EngineReady {
  std::string url;
  std::vector<std::string> events;  // by dp rank
  std::vector<std::string> replay;
};

Result<std::vector<EngineReady>> ReadReadyLine(const std::string& line) {
  const auto wrong = [&] {
    return Fail(ErrorCode::kInternal, fmt::format("`kvroute mock` printed `{}`", line));
  };
  simdjson::dom::parser parser;
  simdjson::dom::array engines;
  if (parser.parse(line)["engines"].get(engines) != simdjson::SUCCESS) return wrong();
  std::vector<EngineReady> result;
  for (const auto engine : engines) {
    EngineReady ready;
    std::string_view text;
    if (engine["url"].get(text) != simdjson::SUCCESS) return wrong();
    ready.url = text;
    simdjson::dom::array ranks;
    if (engine["ranks"].get(ranks) != simdjson::SUCCESS) return wrong();
    for (const auto rank : ranks) {
      if (rank["events"].get(text) != simdjson::SUCCESS) return wrong();
      ready.events.emplace_back(text);
      if (rank["replay"].get(text) != simdjson::SUCCESS) return wrong();
      ready.replay.emplace_back(text);
    }
    result.push_back(std::move(ready));
  }
  return result;
}

std::vector<std::string> MockWords(const FleetOptions& options) {
  return {"mock",
          "--json-ready",
          "--engines",
          fmt::format("{}", options.engines),
          "--dp-size",
          fmt::format("{}", options.ranks),
          "--independent-ranks",
          "--model",
          options.model,
          "--block-size",
          fmt::format("{}", options.block_size),
          "--num-blocks",
          fmt::format("{}", options.device_blocks),
          "--host-blocks",
          fmt::format("{}", options.host_blocks),
          "--dialect",
          options.dialect,
          "--speedup",
          fmt::format("{}", options.speedup),
          "--seed",
          fmt::format("{}", options.seed)};
}

std::vector<std::string> GatewayWords(const FleetOptions& options,
                                      const std::vector<EngineReady>& engines) {
  std::vector<std::string> words = {"gateway",      "--port",      "0",   "--policy",
                                    options.policy, "--log-level", "warn"};
  for (std::size_t i = 0; i < engines.size(); ++i) {
    words.emplace_back("--worker");
    words.push_back(
        fmt::format("id={},url={},model={},block-size={},dp-size={},events={},replay={}", i + 1,
                    engines[i].url, options.model, options.block_size, options.ranks,
                    fmt::join(engines[i].events, "+"), fmt::join(engines[i].replay, "+")));
  }
  words.insert(words.end(), options.gateway_words.begin(), options.gateway_words.end());
  return words;
}

// How many ranks the gateway sees as exact; none when it does not answer.
std::size_t CountExact(const std::string& body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(body).get(root) != simdjson::SUCCESS) return 0;
  simdjson::dom::array workers;
  if (root.is_array()) {
    workers = root.get_array();
  } else if (root["workers"].get(workers) != simdjson::SUCCESS) {
    return 0;
  }
  std::size_t exact = 0;
  for (const auto worker : workers) {
    simdjson::dom::array ranks;
    if (worker["ranks"].get(ranks) != simdjson::SUCCESS) continue;
    for (const auto rank : ranks) {
      std::string_view state;
      if (rank["state"].get(state) == simdjson::SUCCESS && state == "exact") ++exact;
    }
  }
  return exact;
}

net::Task<void> PollUntilExact(net::IoRuntime& runtime, const net::Url& gateway, std::size_t ranks,
                               bool& reached) {
  net::HttpClient client(runtime, net::HttpClient::Options{});
  const auto deadline = std::chrono::steady_clock::now() + kStartMax;
  while (std::chrono::steady_clock::now() < deadline) {
    net::HttpRequest request;
    request.target = "/workers";
    const auto answer = co_await client.FetchWithin(kStartMax, gateway, request);
    if (answer && CountExact(answer->body) >= ranks) {
      reached = true;
      co_return;
    }
    co_await net::Sleep(kPollEvery);
  }
}

Result<void> WaitUntilExact(const net::Url& gateway, std::size_t ranks) {
  net::IoRuntime runtime(net::IoRuntime::Options{1, "fleet"});
  bool reached = false;
  runtime.RunBlocking([&] { return PollUntilExact(runtime, gateway, ranks, reached); });
  if (reached) return {};
  return Fail(ErrorCode::kTimeout, fmt::format("the gateway did not see {} exact ranks within {} s",
                                               ranks, kStartMax.count() / 1000));
}

Result<net::Url> ReadGatewayLine(ChildProcess& gateway) {
  constexpr std::string_view kPrefix = "listening gateway ";
  while (true) {
    KVR_TRY(const std::string line, gateway.ReadLine(kStartMax));
    if (line.starts_with(kPrefix)) return net::ParseUrl("http://" + line.substr(kPrefix.size()));
  }
}

}  // namespace

Result<Fleet> Fleet::Start(const FleetOptions& options) {
  KVR_TRY(ChildProcess mock, ChildProcess::StartSelf(MockWords(options)));
  KVR_TRY(const std::string line, mock.ReadLine(kStartMax));
  KVR_TRY(const auto engines, ReadReadyLine(line));
  KVR_TRY(ChildProcess gateway, ChildProcess::StartSelf(GatewayWords(options, engines)));
  KVR_TRY(net::Url url, ReadGatewayLine(gateway));
  Fleet fleet(std::move(mock), std::move(gateway));
  fleet.gateway_url_ = std::move(url);
  for (std::size_t i = 0; i < engines.size(); ++i) {
    for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
      fleet.ranks_.push_back(fmt::format("{}/{}", i + 1, rank));
    }
  }
  KVR_TRY_VOID(WaitUntilExact(fleet.gateway_url_, fleet.ranks_.size()));
  return fleet;
}

Result<void> Fleet::Stop() {
  const int gateway_code = gateway_.Terminate(kStopMax);
  const int mock_code = mock_.Terminate(kStopMax);
  if (gateway_code == 0 && mock_code == 0) return {};
  return Fail(ErrorCode::kInternal,
              fmt::format("the fleet did not end cleanly: gateway exit code {}, engines {}",
                          gateway_code, mock_code));
}

}  // namespace kvr::cmd
