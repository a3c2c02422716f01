// What the gateway counts, and the record of one request that counts it exactly once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "openai/request.h"
#include "openai/usage.h"
#include "tokens/token_provider.h"

namespace kvr::service {

// How a request ended. The names are the `outcome` label.
enum class Outcome : std::uint8_t {
  kOk,             // an answer below 400 was passed on to its end
  kRefused,        // the request itself is at fault: 4xx of ours
  kShed,           // a limit of ours: 429, or 503 when the system gives us no more
  kNoEngine,       // nobody could take it: 503
  kEngineError,    // the engine answered with an error, passed on as it is
  kEngineFailed,   // no engine gave an answer: 502
  kEngineTimeout,  // 504
  kEngineAborted,  // the engine broke off in the middle of its answer
  kClientGone,     // the client went away, or took nothing for too long
  kShutdown,       // we stopped and could not wait for it any longer
};
inline constexpr std::array<std::string_view, 10> kOutcomeNames = {
    "ok",           "refused",       "shed",           "no_engine",
    "engine_error", "engine_failed", "engine_timeout", "engine_aborted",
    "client_gone",  "shutdown"};

// The parts of the time to the first byte. The names are the `stage` label.
enum class Stage : std::uint8_t {
  kParse,
  kTokens,
  kRoute,
  kConnect,    // from the request to the engine to the head of its answer
  kFirstByte,  // from there to the first byte of the body
};
inline constexpr std::array<std::string_view, 5> kStageNames = {"parse", "tokens", "route",
                                                                "connect", "first_byte"};

// Why a request went to another engine. The names are the `reason` label.
enum class RetryReason : std::uint8_t {
  kUnreachable,
  kBroke,
  kStatus,
  kOutOfResources,  // ours, for a connection; to another engine there may be one left over
};
inline constexpr std::array<std::string_view, 4> kRetryReasonNames = {"unreachable", "broke",
                                                                      "status", "out_of_resources"};

inline constexpr std::size_t kApis = 2;

// Thread-safe. All series exist from the start.
struct GatewayMetrics {
  explicit GatewayMetrics(metrics::Registry& registry);

  std::array<std::array<metrics::Counter*, kOutcomeNames.size()>, kApis> requests;
  std::array<std::array<metrics::Counter*, tokens::kTokenSourceNames.size()>, kApis> token_source;
  std::array<std::array<metrics::Counter*, tokens::kNoTokensNames.size()>, kApis> without_tokens;
  std::array<metrics::Histogram*, kApis> first_token;
  std::array<metrics::Histogram*, kApis> duration;
  std::array<metrics::Histogram*, kStageNames.size()> stages;
  std::array<metrics::Counter*, kRetryReasonNames.size()> retries;
  metrics::Gauge& in_flight;
  metrics::Counter& upstream_aborted;
  metrics::Counter& prompt_tokens;
  metrics::Counter& output_tokens;
  // Over the requests whose engine reported the actual number, so that the two compare.
  metrics::Counter& predicted_cached_tokens;
  metrics::Counter& actual_cached_tokens;
  metrics::Counter& cached_tokens_unreported;
  metrics::Counter& usage_implausible;
  metrics::Counter& stream_lines_unread;
  metrics::Counter& stream_lines_malformed;
};

// One request in flight. Counts its outcome when destroyed: the one it was given, else why its
// handler was cancelled: the client went away, or the server stopped.
class RequestRecord {
 public:
  // All must outlive the record.
  RequestRecord(GatewayMetrics& metrics, openai::Api api, const Clock& clock,
                const net::HttpExchange& exchange);
  ~RequestRecord();
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  // The time since the stage before it.
  void EndStage(Stage stage);
  void Retry(RetryReason reason);
  void TokensFrom(const tokens::Tokens& tokens);
  void FirstToken();
  // `predicted` is nothing when the request was routed without tokens.
  void Used(const openai::Usage& usage, std::optional<std::uint64_t> predicted);
  void Unreported();
  void EndAs(Outcome outcome) { outcome_ = outcome; }

  [[nodiscard]] GatewayMetrics& metrics() { return metrics_; }

 private:
  GatewayMetrics& metrics_;
  const std::size_t api_;
  const Clock& clock_;
  const net::HttpExchange& exchange_;
  const Nanos begin_;
  Nanos stage_begin_;
  bool first_token_seen_ = false;
  std::optional<Outcome> outcome_;
};

}  // namespace kvr::service
