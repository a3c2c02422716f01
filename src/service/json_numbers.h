// Which number of a JSON text a parser could not take. The parser has one code for numbers that are
// not written as JSON asks and for those beyond 64 bits, and names neither.
#pragma once

#include <string>
#include <string_view>

namespace kvr::service {

struct NumberFaults {
  bool malformed = false;  // some number is not written as RFC 8259 §6 asks; the rest is not read
  // The field of the outermost object that holds the first number beyond 64 bits, as "`name`", and
  // of a list its element, as "`name`[3]". Empty when there is none.
  std::string far_where;
  // The text with a 0 for each number beyond 64 bits, so that its other faults show.
  std::string without_far;
};

// `text` need not be JSON otherwise.
NumberFaults FindNumberFaults(std::string_view text);

}  // namespace kvr::service
