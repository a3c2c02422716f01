// MessagePack written as JSON, so that a test can show the bytes it sends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvr::test {

// JSON as MessagePack, each value in its shortest form; {"$bytes": "hex"} is a bin, {"$raw": "hex"}
// the bytes themselves. Numbers with a point or exponent are float64. Aborts on bad JSON.
std::vector<std::byte> MsgpackFromJson(std::string_view json);

}  // namespace kvr::test
