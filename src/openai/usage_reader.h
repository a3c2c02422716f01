// For this module only: reads a `usage` object.
#pragma once

#include <optional>

#include "openai/usage.h"

namespace simdjson::dom {
class element;
}

namespace kvr::openai {

// Nothing when `element` is no object with numeric counts.
std::optional<Usage> ReadUsage(const simdjson::dom::element& element);

}  // namespace kvr::openai
