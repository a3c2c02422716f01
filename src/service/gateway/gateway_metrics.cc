#include "service/gateway/gateway_metrics.h"

#include <chrono>
#include <string>

namespace kvr::service {
namespace {

double Seconds(Nanos duration) {
  return std::chrono::duration<double>(duration).count();
}

// One counter a name, labelled with it.
template <std::size_t N>
std::array<metrics::Counter*, N> CountersBy(metrics::Registry& registry, std::string_view name,
                                            std::string_view help, std::string_view label,
                                            const std::array<std::string_view, N>& names,
                                            metrics::Labels labels = {}) {
  std::array<metrics::Counter*, N> counters{};
  labels.emplace_back(std::string(label), "");
  for (std::size_t i = 0; i < N; ++i) {
    labels.back().second = names[i];
    counters[i] = &registry.AddCounter(name, help, labels);
  }
  return counters;
}

metrics::Labels RouteLabel(std::size_t api) {
  return {{"route", std::string(openai::ApiName(static_cast<openai::Api>(api)))}};
}

}  // namespace

GatewayMetrics::GatewayMetrics(metrics::Registry& registry)
    : retries(CountersBy(registry, "kvr_gateway_retries_total",
                         "Requests sent to another engine before the first byte", "reason",
                         kRetryReasonNames)),
      in_flight(registry.AddGauge("kvr_gateway_requests_in_flight", "Requests being answered")),
      upstream_aborted(registry.AddCounter("kvr_gateway_upstream_aborted_total",
                                           "Answers that an engine broke off")),
      prompt_tokens(registry.AddCounter("kvr_gateway_prompt_tokens_total",
                                        "Prompt tokens as engines reported them")),
      output_tokens(registry.AddCounter("kvr_gateway_output_tokens_total",
                                        "Output tokens, reported or counted in the stream")),
      predicted_cached_tokens(registry.AddCounter(
          "kvr_gateway_predicted_cached_tokens_total",
          "Cached tokens predicted for the requests whose engine reported the actual number")),
      actual_cached_tokens(registry.AddCounter("kvr_gateway_actual_cached_tokens_total",
                                               "Cached tokens as engines reported them")),
      cached_tokens_unreported(
          registry.AddCounter("kvr_gateway_cached_tokens_unreported_total",
                              "Answers that did not say how many prompt tokens were cached")),
      usage_implausible(
          registry.AddCounter("kvr_gateway_usage_implausible_total",
                              "Reports of usage that cannot be true and were not counted")),
      stream_lines_unread(registry.AddCounter("kvr_gateway_stream_lines_unread_total",
                                              "Stream lines too long to be read, passed on")),
      stream_lines_malformed(registry.AddCounter("kvr_gateway_stream_lines_malformed_total",
                                                 "Stream lines that are no JSON, passed on")) {
  const auto first_token_bounds = metrics::ExponentialBounds(0.001, 2, 18);
  const auto stage_bounds = metrics::ExponentialBounds(0.000'01, 2.5, 16);
  for (std::size_t api = 0; api < kApis; ++api) {
    requests[api] = CountersBy(registry, "kvr_gateway_requests_total", "Requests by how they ended",
                               "outcome", kOutcomeNames, RouteLabel(api));
    token_source[api] = CountersBy(registry, "kvr_gateway_token_source_total",
                                   "Requests by where their token ids came from", "source",
                                   tokens::kTokenSourceNames, RouteLabel(api));
    without_tokens[api] =
        CountersBy(registry, "kvr_gateway_requests_without_tokens_total",
                   "Requests routed by load alone because their token ids are not known", "reason",
                   tokens::kNoTokensNames, RouteLabel(api));
    first_token[api] = &registry.AddHistogram("kvr_gateway_time_to_first_token_seconds",
                                              "From the request to the first output passed on",
                                              first_token_bounds, RouteLabel(api));
    duration[api] = &registry.AddHistogram("kvr_gateway_request_duration_seconds",
                                           "From the request to the end of its answer",
                                           first_token_bounds, RouteLabel(api));
  }
  for (std::size_t i = 0; i < kStageNames.size(); ++i) {
    stages[i] =
        &registry.AddHistogram("kvr_gateway_stage_seconds", "Parts of the time to the first byte",
                               stage_bounds, {{"stage", std::string(kStageNames[i])}});
  }
}

RequestRecord::RequestRecord(GatewayMetrics& metrics, openai::Api api, const Clock& clock,
                             const net::HttpExchange& exchange)
    : metrics_(metrics),
      api_(static_cast<std::size_t>(api)),
      clock_(clock),
      exchange_(exchange),
      begin_(clock.Now()),
      stage_begin_(begin_) {
  metrics_.in_flight.Add(1);
}

RequestRecord::~RequestRecord() {
  const Outcome cancelled = exchange_.stopped() ? Outcome::kShutdown : Outcome::kClientGone;
  metrics_.requests[api_][static_cast<std::size_t>(outcome_.value_or(cancelled))]->Add();
  metrics_.duration[api_]->Observe(Seconds(clock_.Now() - begin_));
  // Last, so that whoever sees nothing in flight sees everything counted.
  metrics_.in_flight.Add(-1);
}

void RequestRecord::EndStage(Stage stage) {
  const Nanos now = clock_.Now();
  metrics_.stages[static_cast<std::size_t>(stage)]->Observe(Seconds(now - stage_begin_));
  stage_begin_ = now;
}

void RequestRecord::Retry(RetryReason reason) {
  metrics_.retries[static_cast<std::size_t>(reason)]->Add();
}

void RequestRecord::TokensFrom(const tokens::Tokens& tokens) {
  metrics_.token_source[api_][static_cast<std::size_t>(tokens.source)]->Add();
  if (tokens.source == tokens::TokenSource::kNone) {
    metrics_.without_tokens[api_][static_cast<std::size_t>(tokens.missing)]->Add();
  }
}

void RequestRecord::FirstToken() {
  if (first_token_seen_) return;
  first_token_seen_ = true;
  metrics_.first_token[api_]->Observe(Seconds(clock_.Now() - begin_));
}

void RequestRecord::Used(const openai::Usage& usage, std::optional<std::uint64_t> predicted) {
  metrics_.prompt_tokens.Add(usage.prompt_tokens);
  if (!usage.cached_tokens) {
    Unreported();
    return;
  }
  metrics_.actual_cached_tokens.Add(*usage.cached_tokens);
  metrics_.predicted_cached_tokens.Add(predicted.value_or(0));
}

void RequestRecord::Unreported() {
  metrics_.cached_tokens_unreported.Add();
}

}  // namespace kvr::service
