// What a request says its body is.
#pragma once

#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace kvr::service {

// The media type of a Content-Type value, without parameters, is `type`.
bool IsMediaType(std::string_view value, std::string_view type);

// kUnsupportedMedia unless the request says that its body is JSON.
Result<void> RequireJson(const net::HttpRequest& request);

}  // namespace kvr::service
