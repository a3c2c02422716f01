// YAML text into a tree of nodes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "config/node.h"

namespace kvr::config {

// A longer file is refused.
inline constexpr std::size_t kYamlBytesMax = std::size_t{4} << 20;

// One document; an empty one is a map without fields. Refused, each with "NAME:LINE:": a duplicate
// key, a key that is no scalar, an alias, more than one document, nesting deeper than the parser
// bears. `name` stands for the text in errors, usually the file's name.
Result<Node> ParseYaml(std::string_view text, std::string_view name);

// The content of a file, or kIo.
Result<Node> ReadYamlFile(const std::string& path);

}  // namespace kvr::config
