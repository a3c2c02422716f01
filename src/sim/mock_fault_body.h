// The body of POST /mock/fault, read and checked; mock_faults.h says what the fields mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "openai/api_error.h"

namespace kvr::sim {

// Numbers are at most this: the largest of any use, and safe to add up.
inline constexpr std::uint64_t kFaultNumberMax = 1'000'000'000;

// Messages that are sent at once.
inline constexpr std::uint64_t kFaultMessagesMax = 10'000;

struct FaultBody {
  std::optional<std::uint64_t> rank, drop_messages, event_delay_ms;
  std::optional<std::uint64_t> repeat_messages, swap_messages, foreign_messages, garbage_messages;
  std::optional<std::uint64_t> cut_replays, cut_after;
  std::optional<std::uint64_t> error_requests, die_requests, die_after_tokens;
  std::optional<std::uint64_t> error_status;  // 400 to 599
  std::optional<bool> keep_for_replay, replay_silent, hold_events, restart, keep_numbers;
};

// Refuses unknown fields.
Result<FaultBody, openai::ApiError> ReadFaultBody(std::string_view text);

}  // namespace kvr::sim
