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

Result<BodyForm> BodyFormOf(const net::HttpRequest& request) {
  const std::string_view type = request.headers.Find("Content-Type").value_or("");
  for (const std::string_view msgpack :
       {"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"}) {
    if (IsMediaType(type, msgpack)) return BodyForm::kMsgpack;
  }
  KVR_TRY_VOID(RequireJson(request));
  return BodyForm::kJson;
}

}  // namespace kvr::service
