// What a cache salt names.
#pragma once

#include <string_view>

namespace kvr::hashing {

// Before a salt among an engine's keys that are no salts. Some clients tag theirs by themselves.
inline constexpr std::string_view kSaltTag = "dynamo-cache-salt:";

// The salt that a tagged one names, which may be empty; any other is itself. Blocks and prompts are
// hashed with it, so that it does not matter who put the tag there.
constexpr std::string_view NamedSalt(std::string_view salt) {
  return salt.starts_with(kSaltTag) ? salt.substr(kSaltTag.size()) : salt;
}

}  // namespace kvr::hashing
