#include "service/gateway/forwarding.h"

#include <array>
#include <span>
#include <vector>

#include "base/text.h"

namespace kvr::service {
namespace {

// RFC 9110 §7.6.1, and what RFC 2616 §13.5.1 named besides.
constexpr std::array<std::string_view, 9> kHopByHop = {"Connection",
                                                       "Keep-Alive",
                                                       "Proxy-Connection",
                                                       "Proxy-Authenticate",
                                                       "Proxy-Authorization",
                                                       "TE",
                                                       "Trailer",
                                                       "Transfer-Encoding",
                                                       "Upgrade"};
// `Expect` was answered by our server, and the body goes on at once.
constexpr std::array<std::string_view, 4> kOursTowardsEngine = {"Host", "Content-Length", "Expect",
                                                                "X-data-parallel-rank"};
constexpr std::array<std::string_view, 1> kOursTowardsClient = {"Content-Length"};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  for (const std::string_view known : names) {
    if (net::EqualsIgnoreCase(known, name)) return true;
  }
  return false;
}

// The headers that `Connection` declares to be of this connection only.
std::vector<std::string_view> NamedByConnection(const net::HttpHeaders& headers) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : headers.all()) {
    if (!net::EqualsIgnoreCase(name, "Connection")) continue;
    for (const std::string_view declared : Split(value, ','))
      names.push_back(Trim(declared));
  }
  return names;
}

net::HttpHeaders EndToEnd(const net::HttpHeaders& headers, std::span<const std::string_view> ours) {
  const auto named = NamedByConnection(headers);
  net::HttpHeaders kept;
  for (const auto& [name, value] : headers.all()) {
    if (Contains(kHopByHop, name) || Contains(ours, name) || Contains(named, name)) continue;
    kept.Add(name, value);
  }
  return kept;
}

}  // namespace

net::HttpHeaders HeadersForEngine(const net::HttpHeaders& from_client) {
  return EndToEnd(from_client, kOursTowardsEngine);
}

net::HttpHeaders HeadersForClient(const net::HttpHeaders& from_engine) {
  return EndToEnd(from_engine, kOursTowardsClient);
}

}  // namespace kvr::service
