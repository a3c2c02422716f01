// HTTP messages as values. No Boost type shows here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kvr::net {

// In wire order. Names compare without case.
class HttpHeaders {
 public:
  [[nodiscard]] std::optional<std::string_view> Find(std::string_view name) const;
  void Add(std::string_view name, std::string_view value);
  void Set(std::string_view name, std::string_view value);  // replaces all of that name
  void Remove(std::string_view name);
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

// Equal without regard to ASCII case.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

struct HttpRequest {
  std::string method = "GET";
  std::string target = "/";  // path and query as sent
  HttpHeaders headers;
  std::string body;

  [[nodiscard]] std::string_view path() const;   // target up to '?', not decoded
  [[nodiscard]] std::string_view query() const;  // after '?', empty when there is none
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;
};

// {"error": message, "code": name, "details": {...}}: the one error shape of our services.
// `details_json` is a JSON object or empty.
HttpResponse JsonError(const Error& error, std::string_view details_json = {});
HttpResponse JsonError(int status, std::string_view code, std::string_view message,
                       std::string_view details_json = {});
HttpResponse JsonResponse(int status, std::string body);

// The value of `name` in a query string, percent-decoded. Nothing when absent or badly encoded.
std::optional<std::string> QueryParameter(std::string_view query, std::string_view name);
std::optional<std::string> PercentDecode(std::string_view text);

// "http://host:port/prefix". Only http. kInvalidArgument says what is wrong.
struct Url {
  std::string host;
  std::uint16_t port = 80;
  std::string prefix;  // path without a trailing '/', may be empty

  [[nodiscard]] std::string authority() const;  // host:port, brackets round IPv6
  friend bool operator==(const Url&, const Url&) = default;
};
Result<Url> ParseUrl(std::string_view text);
// The same of a server that is asked for paths below /v1. One that ends in /v1 itself, as OpenAI's
// clients want it, is refused: the requests would go to /v1/v1.
Result<Url> ParseOpenAiUrl(std::string_view text);

}  // namespace kvr::net
