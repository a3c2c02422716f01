// The bounds of a book of requests under way, which its owner configures.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::load {

struct BookOptions {
  // A booking that nobody touched for so long is freed and counted: its owner is gone or hangs.
  Nanos expiry = std::chrono::seconds{300};
  // At once in one partition; beyond, bookings are refused with kOverloaded.
  std::size_t bookings_max = 1'000'000;

  // kInvalidArgument names the field and its range.
  [[nodiscard]] Result<void> Validate() const;
};

}  // namespace kvr::load
