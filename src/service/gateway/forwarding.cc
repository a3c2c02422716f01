#include "service/gateway/forwarding.h"

#include <array>
#include <span>
#include <vector>

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

std::string_view Trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && blank(text.back()))
    text.remove_suffix(1);
  return text;
}

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
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      names.push_back(Trim(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
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
