#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "net/event_endpoint.h"
#include "net/event_socket.h"

namespace kvr::net {
namespace {

constexpr std::string_view kPolledScheme = "trtllm+";

// What is wrong with the port, or nothing. `*` asks the system for a free one.
std::string CheckPort(std::string_view port, bool connecting) {
  if (port == "*" && !connecting) return {};
  if (port.empty()) return "invalid TCP port: cannot parse integer from empty string";
  std::uint16_t value = 0;
  const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (code == std::errc::result_out_of_range) {
    return "invalid TCP port: number too large to fit in target type";
  }
  if (code != std::errc() || end != port.data() + port.size()) {
    return "invalid TCP port: invalid digit found in string";
  }
  if (value == 0 && connecting) return "invalid TCP port: 0 cannot be connected to";
  return {};
}

std::string CheckTcp(std::string_view address, bool connecting) {
  if (address.front() == '[') {
    const std::size_t close = address.find(']');
    if (close == std::string_view::npos) return "missing closing `]`";
    if (close == 1) return "missing TCP host";
    const std::string_view rest = address.substr(close + 1);
    if (rest.empty() || rest.front() != ':') return "missing TCP port";
    return CheckPort(rest.substr(1), connecting);
  }
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return "missing TCP port";
  const std::string_view host = address.substr(0, colon);
  if (host.empty()) return "missing TCP host";
  if (host.find(':') != std::string_view::npos) {
    return "an IPv6 host must stand in brackets, as in tcp://[::1]:5557";
  }
  if (host == "*" && connecting) {
    return "host `*` is for listeners; name the address to connect to";
  }
  return CheckPort(address.substr(colon + 1), connecting);
}

std::string CheckAddress(std::string_view endpoint, bool connecting) {
  // The transport takes C strings; a longer one cannot be an address either.
  constexpr std::size_t kBytesMax = 1024;
  if (endpoint.size() > kBytesMax) return fmt::format("longer than {} bytes", kBytesMax);
  if (endpoint.find('\0') != std::string_view::npos) return "holds a NUL byte";
  const std::size_t separator = endpoint.find("://");
  if (separator == std::string_view::npos || separator == 0)
    return "missing scheme; write tcp://HOST:PORT";
  const std::string_view scheme = endpoint.substr(0, separator);
  const std::string_view address = endpoint.substr(separator + 3);
  if (address.empty()) return "missing address";
  if (scheme == "tcp") return CheckTcp(address, connecting);
  if (scheme != "ipc" && scheme != "inproc") return fmt::format("unsupported scheme `{}`", scheme);
  if (connecting && address == "*") {
    return "address `*` is for listeners; name the address to connect to";
  }
  return {};
}

}  // namespace

Result<void> CheckEndpoint(std::string_view endpoint, bool connecting) {
  const std::string wrong = CheckAddress(endpoint, connecting);
  if (wrong.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("invalid ZMQ endpoint `{}`: {}", endpoint.substr(0, 256), wrong));
}

bool IsPolled(std::string_view endpoint) {
  return endpoint.starts_with(kPolledScheme);
}

Result<Url> PolledUrl(std::string_view endpoint) {
  auto url = ParseUrl(endpoint.substr(std::min(endpoint.size(), kPolledScheme.size())));
  if (url) return url;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("invalid polled endpoint `{}`: {}", endpoint.substr(0, 256),
                          url.error().message));
}

Result<void> CheckEventEndpoint(std::string_view endpoint) {
  if (!IsPolled(endpoint)) return CheckEndpoint(endpoint, true);
  KVR_TRY_VOID(PolledUrl(endpoint));
  return {};
}

}  // namespace kvr::net
