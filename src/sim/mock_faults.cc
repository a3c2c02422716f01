#include "sim/mock_faults.h"

#include <string>

#include <fmt/format.h>
#include <simdjson.h>

namespace kvr::sim {
namespace {

namespace json = simdjson::dom;
using openai::ApiError;

struct Body {
  std::optional<std::uint64_t> rank, drop_messages, event_delay_ms;
  std::optional<std::uint64_t> error_requests, error_status, die_requests, die_after_tokens;
  std::optional<bool> keep_for_replay, replay_silent, restart;
};

tl::unexpected<ApiError> Bad(std::string_view field, std::string message) {
  return tl::unexpected<ApiError>(openai::BadField(std::string(field), std::move(message)));
}

Result<Body, ApiError> Read(std::string_view text) {
  json::parser parser;
  json::object object;
  if (parser.parse(text.data(), text.size()).get(object) != simdjson::SUCCESS) {
    return Bad("", "the body is no JSON object");
  }
  Body body;
  const std::pair<std::string_view, std::optional<std::uint64_t>*> numbers[] = {
      {"rank", &body.rank},
      {"drop_messages", &body.drop_messages},
      {"event_delay_ms", &body.event_delay_ms},
      {"error_requests", &body.error_requests},
      {"error_status", &body.error_status},
      {"die_requests", &body.die_requests},
      {"die_after_tokens", &body.die_after_tokens}};
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"keep_for_replay", &body.keep_for_replay},
      {"replay_silent", &body.replay_silent},
      {"restart", &body.restart}};
  for (const json::key_value_pair field : object) {
    bool known = false;
    for (const auto& [name, out] : numbers) {
      if (field.key != name) continue;
      known = true;
      std::uint64_t number = 0;
      // The largest that is of any use, and safe to add up.
      if (field.value.get(number) != simdjson::SUCCESS || number > 1'000'000'000) {
        return Bad(name, fmt::format("`{}` must be an integer from 0 to 10^9", name));
      }
      *out = number;
    }
    for (const auto& [name, out] : flags) {
      if (field.key != name) continue;
      known = true;
      bool flag = false;
      if (field.value.get(flag) != simdjson::SUCCESS) {
        return Bad(name, fmt::format("`{}` must be true or false", name));
      }
      *out = flag;
    }
    if (!known) return Bad(field.key, fmt::format("there is no fault `{}`", field.key));
  }
  return body;
}

void ApplyToFeed(const Body& body, EventFeed& feed) {
  if (body.drop_messages) feed.LoseNext(*body.drop_messages, body.keep_for_replay.value_or(true));
  if (body.event_delay_ms) feed.SetDelay(Millis(*body.event_delay_ms));
  if (body.replay_silent) feed.SetReplaySilent(*body.replay_silent);
}

}  // namespace

Result<void, ApiError> MockFaults::Apply(std::string_view text, MockEngine& engine) {
  KVR_TRY(const Body body, Read(text));
  if (body.rank && *body.rank >= engine.ranks()) {
    return Bad("rank", fmt::format("there are {} ranks", engine.ranks()));
  }
  if (body.error_status && (*body.error_status < 400 || *body.error_status > 599)) {
    return Bad("error_status", "`error_status` must be from 400 to 599");
  }
  for (std::uint32_t rank = 0; rank < engine.ranks(); ++rank) {
    if (!body.rank || *body.rank == rank) ApplyToFeed(body, engine.feed(rank));
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
    if (const auto restarted = engine.Restart(); !restarted) {
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
