#include "service/media_type.h"

#include <cstddef>

namespace kvr::service {

bool IsMediaType(std::string_view value, std::string_view type) {
  value = value.substr(0, value.find(';'));
  const std::size_t begin = value.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return false;
  const std::size_t end = value.find_last_not_of(" \t");
  return net::EqualsIgnoreCase(value.substr(begin, end - begin + 1), type);
}

Result<void> RequireJson(const net::HttpRequest& request) {
  if (IsMediaType(request.headers.Find("Content-Type").value_or(""), "application/json")) return {};
  return Fail(ErrorCode::kUnsupportedMedia,
              "the content type must be application/json; send the header "
              "`Content-Type: application/json`");
}

}  // namespace kvr::service
