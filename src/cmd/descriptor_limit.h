// How many files and sockets this process may have open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvr::cmd {

// What a process opens beside the sockets of its clients and engines.
constexpr std::uint64_t kOwnDescriptors = 64;

// Raises the limit as far as this process may, and says what is wrong, for the log, when that is
// less than the `needed` descriptors.
std::optional<std::string> RaiseDescriptorLimit(std::uint64_t needed);

}  // namespace kvr::cmd
