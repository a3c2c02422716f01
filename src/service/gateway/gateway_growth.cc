#include "service/gateway/gateway_growth.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "service/gateway/gateway_test_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVR_SANITIZED 1
#endif
#endif

namespace kvr::service::testing {
namespace {

constexpr std::size_t kConnections = 4;
// The engines publish no events, so the router remembers what it sent them: as much as they hold.
constexpr std::uint64_t kEngineBlocks = 512;

std::size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::string KeptPost(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n\r\n{}",
      path, body.size(), body);
}

// Distinct prompts, so that nothing that grows with them stays hidden.
std::string Prompt(std::size_t i, bool stream) {
  return fmt::format(R"({{"model":"m","prompt":[{},2,3,4,{},6,7,8,9],"stream":{}}})", i, i, stream);
}

bool Exchange(net::testing::RawClient& client, std::size_t i) {
  const bool chunked = i % 2 == 0;
  if (!client.Send(KeptPost("/v1/completions", Prompt(i, chunked)))) return false;
  const std::string answer = chunked ? client.ReadUntil("0\r\n\r\n") : client.ReadAnswer();
  return answer.starts_with("HTTP/1.1 200") && answer.find("usage") != std::string::npos;
}

}  // namespace

Growth MeasureGrowth(std::size_t requests) {
  FakeEngine streaming;
  FakeEngine plain;
  streaming.Play(ChatStream(4));
  plain.Play(PlainAnswer());
  GatewaySetup setup;
  setup.router.policy = sched::PolicyKind::kRoundRobin;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, streaming.url(), 1, kEngineBlocks);
  gateway.AddWorker(2, plain.url(), 1, kEngineBlocks);
  std::array<std::unique_ptr<net::testing::RawClient>, kConnections> clients;
  for (auto& client : clients)
    client = std::make_unique<net::testing::RawClient>(gateway.port());

  Growth growth;
  growth.requests = requests;
  for (std::size_t i = 0; i < requests; ++i) {
    if (i == requests / 10) growth.resident_before = ResidentBytes();
    if (!Exchange(*clients[i % kConnections], i)) ++growth.failed;
  }
  growth.resident_after = ResidentBytes();
  growth.idle = net::testing::Eventually([&] { return gateway.IsIdle(); });
  growth.counted =
      gateway.Series("kvr_gateway_requests_total{route=\"completions\",outcome=\"ok\"}");
  return growth;
}

std::size_t GrowthBytesMax() {
#ifdef KVR_SANITIZED
  return std::size_t{512} << 20;
#else
  return std::size_t{4} << 20;
#endif
}

}  // namespace kvr::service::testing
