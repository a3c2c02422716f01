#include "sim/mock_fault_body.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

namespace kvr::sim {
namespace {

namespace json = simdjson::dom;
using openai::ApiError;

tl::unexpected<ApiError> Bad(std::string_view field, std::string message) {
  return tl::unexpected<ApiError>(openai::BadField(std::string(field), std::move(message)));
}

}  // namespace

Result<FaultBody, ApiError> ReadFaultBody(std::string_view text) {
  json::parser parser;
  json::object object;
  if (parser.parse(text.data(), text.size()).get(object) != simdjson::SUCCESS) {
    return Bad("", "the body is no JSON object");
  }
  FaultBody body;
  const std::pair<std::string_view, std::optional<std::uint64_t>*> numbers[] = {
      {"rank", &body.rank},
      {"drop_messages", &body.drop_messages},
      {"repeat_messages", &body.repeat_messages},
      {"swap_messages", &body.swap_messages},
      {"foreign_messages", &body.foreign_messages},
      {"garbage_messages", &body.garbage_messages},
      {"event_delay_ms", &body.event_delay_ms},
      {"cut_replays", &body.cut_replays},
      {"cut_after", &body.cut_after},
      {"error_requests", &body.error_requests},
      {"error_status", &body.error_status},
      {"die_requests", &body.die_requests},
      {"die_after_tokens", &body.die_after_tokens}};
  const std::pair<std::string_view, std::optional<bool>*> flags[] = {
      {"keep_for_replay", &body.keep_for_replay},
      {"replay_silent", &body.replay_silent},
      {"hold_events", &body.hold_events},
      {"restart", &body.restart},
      {"keep_numbers", &body.keep_numbers}};
  for (const json::key_value_pair field : object) {
    bool known = false;
    for (const auto& [name, out] : numbers) {
      if (field.key != name) continue;
      known = true;
      std::uint64_t number = 0;
      if (field.value.get(number) != simdjson::SUCCESS || number > kFaultNumberMax) {
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
  if (body.error_status && (*body.error_status < 400 || *body.error_status > 599)) {
    return Bad("error_status", "`error_status` must be from 400 to 599");
  }
  for (const auto& [name, sent] : {std::pair("foreign_messages", body.foreign_messages),
                                   std::pair("garbage_messages", body.garbage_messages)}) {
    if (sent.value_or(0) > kFaultMessagesMax) {
      return Bad(name, fmt::format("`{}` must be at most {}", name, kFaultMessagesMax));
    }
  }
  return body;
}

}  // namespace kvr::sim
