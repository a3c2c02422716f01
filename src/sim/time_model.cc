#include "sim/time_model.h"

#include <algorithm>
#include <cmath>

namespace kvr::sim {
namespace {

double Scale(double speedup) {
  return speedup > 0 ? speedup : 1;
}

}  // namespace

Result<void> TimeModel::Validate() const {
  for (const double cost :
       {decode_base_ms, decode_ms_per_request, decode_ms_per_token, host_load_ms_per_token}) {
    if (!std::isfinite(cost) || cost < 0) {
      return Fail(ErrorCode::kInvalidArgument, "time model: costs must be finite and not negative");
    }
  }
  if (!std::isfinite(speedup) || !std::isfinite(decode_speedup)) {
    return Fail(ErrorCode::kInvalidArgument, "time model: speed-ups must be finite");
  }
  return {};
}

double TimeModel::PrefillMs(std::uint64_t tokens) const {
  if (tokens == 0) return 0;
  const auto t = static_cast<double>(tokens);
  return 4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142;
}

double TimeModel::DecodeMs(std::uint32_t requests, std::uint64_t context,
                           std::uint64_t pool_tokens) const {
  if (requests == 0) return 0;
  if (decode == Decode::kPublishedCurve) {
    const double p = std::min(1.0, static_cast<double>(context) / static_cast<double>(pool_tokens));
    return std::max(1.0, -25.74 * p * p + 54.01 * p + 5.74);
  }
  return decode_base_ms + decode_ms_per_request * requests +
         decode_ms_per_token * static_cast<double>(context);
}

Nanos TimeModel::PassTime(const PassLoad& load, std::uint64_t pool_tokens) const {
  const std::uint64_t n = load.prefills;
  const std::uint64_t tokens =
      n == 0 ? 0 : n * (load.prefill_context / n - load.prefill_prefix / n);
  const double prefill_ms =
      PrefillMs(tokens) + host_load_ms_per_token * static_cast<double>(load.host_tokens);
  const double decode_ms = DecodeMs(load.decodes, load.decode_context, pool_tokens);
  const double ms =
      prefill_ms / Scale(speedup) + decode_ms / (Scale(speedup) * Scale(decode_speedup));
  return Nanos{std::llround(ms * 1e6)};
}

}  // namespace kvr::sim
