#include "service/gateway/gateway_options.h"

#include <string_view>

#include <fmt/format.h>

namespace kvr::service {

Result<void> GatewayOptions::Validate() const {
  const auto at_least_one = [](std::string_view name, std::size_t value) -> Result<void> {
    if (value > 0) return {};
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} must be at least 1", name));
  };
  KVR_TRY_VOID(at_least_one("in_flight_max", in_flight_max));
  KVR_TRY_VOID(at_least_one("body_bytes_max", body_bytes_max));
  KVR_TRY_VOID(at_least_one("attempts_max", attempts_max));
  KVR_TRY_VOID(at_least_one("stream_line_bytes_max", stream_line_bytes_max));
  if (engine_watch.probe_first < Millis{1} || engine_watch.probe_timeout < Millis{1}) {
    return Fail(ErrorCode::kInvalidArgument, "probe_first and probe_timeout must be at least 1 ms");
  }
  KVR_TRY_VOID(at_least_one("silent_max", engine_watch.silent_max));
  if (engine_watch.probe_first > engine_watch.probe_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("probe_first ({} ms) must not exceed probe_max ({} ms)",
                            engine_watch.probe_first.count(), engine_watch.probe_max.count()));
  }
  for (const auto& [adapter, model] : adapters) {
    if (adapter == model) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("adapter `{}` has the name of its model", adapter));
    }
  }
  return {};
}

}  // namespace kvr::service
