// Help for a misspelt name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvr::config {

// "did you mean `port`?" where one of `known` is close to `name`, else "known: a, b, c". Empty when
// nothing is known.
std::string Suggest(std::string_view name, std::span<const std::string> known);

}  // namespace kvr::config
