// What a request says its body is.
#pragma once

#include <string_view>

#include "base/result.h"
#include "net/http.h"
#include "service/request_body.h"

namespace kvr::service {

// The media type of a Content-Type value, without parameters, is `type`.
bool IsMediaType(std::string_view value, std::string_view type);

// kUnsupportedMedia unless the request says that its body is JSON.
Result<void> RequireJson(const net::HttpRequest& request);

// The form the request says its body has; kUnsupportedMedia unless that is JSON or MessagePack
// (application/msgpack, application/x-msgpack, application/vnd.msgpack).
Result<BodyForm> BodyFormOf(const net::HttpRequest& request);

}  // namespace kvr::service
