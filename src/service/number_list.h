// The one long list of a request, read at the speed of its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvr::service {

// A field whose value is a list of integers of 0 to 2^32-1, at least one.
struct NumberList {
  std::string_view field;
  std::vector<std::uint32_t> numbers;
};

// Looks into the text of a JSON object for the first such list among its own fields. When there is
// one, `rest` is the text with an empty list in its place, for a parser to judge; the list itself
// has been judged. None: there is no such list, or the text is no JSON before its end, or the
// field's name is written with escapes; then the parser has to read all of it.
std::optional<NumberList> CutNumberList(std::string_view text, std::string& rest);

}  // namespace kvr::service
