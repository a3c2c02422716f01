// How many files and sockets this process may have open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvr::cmd {

// Raises the limit as far as this process may, and says what is wrong, for the log, when that is
// less than the `needed` descriptors.
std::optional<std::string> RaiseDescriptorLimit(std::uint64_t needed);

}  // namespace kvr::cmd
