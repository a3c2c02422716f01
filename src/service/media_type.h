#pragma once

#include <string_view>

namespace kvr::service {

// The media type of a Content-Type value, without parameters, is `type`.
bool IsMediaType(std::string_view value, std::string_view type);

}  // namespace kvr::service
