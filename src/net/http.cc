#include "net/http.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text.h"

namespace kvr::net {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

Result<std::uint16_t> ParsePort(std::string_view text, std::string_view url) {
  const auto port = ParseNumber<std::uint16_t>(text);
  if (!port || *port == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("invalid URL `{}`: port `{}` is not in 1..65535", url, text));
  }
  return *port;
}

bool IsUrlText(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c != '\x7f'; });
}

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return Lower(x) == Lower(y); });
}

std::optional<std::string_view> HttpHeaders::Find(std::string_view name) const {
  for (const auto& [key, value] : all_) {
    if (EqualsIgnoreCase(key, name)) return value;
  }
  return std::nullopt;
}

void HttpHeaders::Add(std::string_view name, std::string_view value) {
  all_.emplace_back(name, value);
}

void HttpHeaders::Set(std::string_view name, std::string_view value) {
  Remove(name);
  Add(name, value);
}

void HttpHeaders::Remove(std::string_view name) {
  std::erase_if(all_, [&](const auto& header) { return EqualsIgnoreCase(header.first, name); });
}

std::string_view HttpRequest::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string_view HttpRequest::query() const {
  const std::size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

HttpResponse JsonError(const Error& error, std::string_view details_json) {
  return JsonError(HttpStatus(error.code), CodeName(error.code), error.message, details_json);
}

HttpResponse JsonError(int status, std::string_view code, std::string_view message,
                       std::string_view details_json) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("error", message);
  json.Field("code", code);
  if (!details_json.empty()) {
    json.Key("details");
    json.Raw(details_json);
  }
  json.EndObject();
  return JsonResponse(status, std::move(body));
}

HttpResponse JsonResponse(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.headers.Add("Content-Type", "application/json");
  response.body = std::move(body);
  return response;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

std::optional<std::string> QueryParameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (PercentDecode(pair.substr(0, equals)) != name) continue;
    if (equals == std::string_view::npos) return std::string();
    std::string value(pair.substr(equals + 1));
    std::ranges::replace(value, '+', ' ');  // as forms encode a space
    return PercentDecode(value);
  }
  return std::nullopt;
}

std::string Url::authority() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Url> ParseUrl(std::string_view text) {
  const auto fail = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("invalid URL `{}`: {}", text, why));
  };
  constexpr std::string_view kScheme = "http://";
  if (text.size() < kScheme.size() || !EqualsIgnoreCase(text.substr(0, kScheme.size()), kScheme))
    return fail("it must start with http://, as http://HOST:PORT");
  if (!IsUrlText(text)) return fail("it holds a space or a control character");
  std::string_view rest = text.substr(kScheme.size());
  if (rest.find_first_of("?#@") != std::string_view::npos)
    return fail("a base URL has no user, query or fragment");

  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view prefix = rest.substr(slash);
  while (prefix.ends_with('/'))
    prefix.remove_suffix(1);

  Url url;
  url.prefix = prefix;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return fail("`[` without `]`");
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    if (authority.find(':', colon + 1) != std::string_view::npos)
      return fail("an IPv6 address needs brackets");
    url.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (url.host.empty()) return fail("the host is missing");
  if (!authority.empty()) {
    if (authority.front() != ':') return fail("unexpected text after `]`");
    KVR_TRY(url.port, ParsePort(authority.substr(1), text));
  }
  return url;
}

Result<Url> ParseOpenAiUrl(std::string_view text) {
  constexpr std::string_view kVersion = "/v1";
  KVR_TRY(Url url, ParseUrl(text));
  if (!url.prefix.ends_with(kVersion)) return url;
  const std::string_view base = text.substr(0, text.rfind(kVersion));
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("invalid URL `{}`: /v1 is added to it; write `{}`", text, base));
}

}  // namespace kvr::net
