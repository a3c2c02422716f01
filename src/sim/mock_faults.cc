#include "sim/mock_faults.h"

#include <string>

#include <fmt/format.h>

#include "base/clock.h"
#include "sim/mock_fault_body.h"

namespace kvr::sim {
namespace {

using openai::ApiError;

tl::unexpected<ApiError> Bad(std::string_view field, std::string message) {
  return tl::unexpected<ApiError>(openai::BadField(std::string(field), std::move(message)));
}

void ApplyToFeed(const FaultBody& body, Nanos wall, EventFeed& feed) {
  if (body.drop_messages) feed.LoseNext(*body.drop_messages, body.keep_for_replay.value_or(true));
  if (body.repeat_messages) feed.RepeatNext(*body.repeat_messages);
  if (body.swap_messages) feed.SwapNext(*body.swap_messages);
  if (body.foreign_messages) feed.SendForeign(*body.foreign_messages, wall);
  if (body.garbage_messages) feed.SendGarbage(*body.garbage_messages);
  if (body.hold_events) feed.SetHeld(*body.hold_events);
  if (body.cut_replays) feed.CutReplays(*body.cut_replays, body.cut_after.value_or(1));
  if (body.event_delay_ms) feed.SetDelay(Millis(*body.event_delay_ms));
  if (body.replay_silent) feed.SetReplaySilent(*body.replay_silent);
}

}  // namespace

Result<void, ApiError> MockFaults::Apply(std::string_view text, MockEngine& engine) {
  KVR_TRY(const FaultBody body, ReadFaultBody(text));
  if (body.rank && *body.rank >= engine.ranks()) {
    return Bad("rank", fmt::format("there are {} ranks", engine.ranks()));
  }
  const Nanos wall = SystemClock().WallTime();
  for (std::uint32_t rank = 0; rank < engine.ranks(); ++rank) {
    if (!body.rank || *body.rank == rank) ApplyToFeed(body, wall, engine.feed(rank));
  }
  engine.Wake();
  if (body.error_requests) {
    error_requests_ = *body.error_requests;
    error_status_ = static_cast<int>(body.error_status.value_or(503));
  }
  if (body.die_requests) {
    die_requests_ = *body.die_requests;
    die_after_tokens_ = static_cast<std::uint32_t>(body.die_after_tokens.value_or(1));
  }
  if (body.restart.value_or(false)) {
    if (const auto restarted = engine.Restart(body.keep_numbers.value_or(false)); !restarted) {
      return tl::unexpected<ApiError>(openai::FromError(restarted.error()));
    }
  }
  return {};
}

std::optional<int> MockFaults::TakeError() {
  if (error_requests_ == 0) return std::nullopt;
  --error_requests_;
  return error_status_;
}

std::optional<std::uint32_t> MockFaults::TakeDeath() {
  if (die_requests_ == 0) return std::nullopt;
  --die_requests_;
  return die_after_tokens_;
}

}  // namespace kvr::sim
