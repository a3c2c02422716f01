// A field of a JSON answer that there may be no value for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json_writer.h"

namespace kvr::service {

// Null when there is none.
inline void WriteOptional(std::string_view name, std::optional<std::uint64_t> value,
                          JsonWriter& json) {
  json.Key(name);
  if (value) {
    json.Value(*value);
  } else {
    json.Null();
  }
}

}  // namespace kvr::service
