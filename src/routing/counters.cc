#include "routing/counters.h"

#include <algorithm>
#include <string>

namespace kvr::routing {
namespace {

metrics::Labels LabelsOf(const Partition& partition) {
  return {{"model", partition.model_name}, {"routing_group", partition.routing_group}};
}

}  // namespace

Counters::Counters(metrics::Registry& registry)
    : registry_(registry),
      prompt_tokens_(
          registry.AddCounter("kvr_routing_prompt_tokens_total", "Prompt tokens of all decisions")),
      predicted_tokens_(
          registry.AddCounter("kvr_routing_predicted_cached_tokens_total",
                              "Prompt tokens the chosen ranks were expected to reuse")),
      passed_over_blocks_(registry.AddCounter(
          "kvr_routing_passed_over_blocks_total",
          "Blocks of prefix that another candidate held beyond those of the chosen one")),
      reports_(registry.AddCounter("kvr_routing_reports_total",
                                   "Decisions whose engine reported what it reused")),
      reported_predicted_tokens_(
          registry.AddCounter("kvr_routing_reported_predicted_tokens_total",
                              "Predicted cached tokens of the decisions that were reported")),
      reported_actual_tokens_(registry.AddCounter("kvr_routing_reported_actual_tokens_total",
                                                  "Cached tokens that engines reported")),
      overpredicted_tokens_(registry.AddCounter("kvr_routing_overpredicted_tokens_total",
                                                "Tokens predicted but not reused, per decision")),
      underpredicted_tokens_(registry.AddCounter("kvr_routing_underpredicted_tokens_total",
                                                 "Tokens reused but not predicted, per decision")),
      duration_(registry.AddHistogram("kvr_routing_duration_seconds",
                                      "Time of one decision, refused ones included",
                                      metrics::ExponentialBounds(1e-6, 2, 18))) {
  for (std::size_t policy = 0; policy < decisions_.size(); ++policy) {
    for (std::size_t reason = 0; reason < kReasonNames.size(); ++reason) {
      decisions_[policy][reason] =
          &registry.AddCounter("kvr_routing_decisions_total",
                               "Decisions by the policy used and what became of the prefix",
                               {{"policy", std::string(sched::kPolicyNames[policy])},
                                {"reason", std::string(kReasonNames[reason])}});
    }
  }
  for (std::size_t view = 0; view < views_.size(); ++view) {
    views_[view] = &registry.AddCounter("kvr_routing_cache_views_total",
                                        "Decisions by how far the candidates' caches were known",
                                        {{"view", std::string(kCacheViewNames[view])}});
  }
}

void Counters::Decided(const Decision& decision, std::uint32_t passed_over_blocks) {
  decisions_[static_cast<std::size_t>(decision.policy)][static_cast<std::size_t>(decision.reason)]
      ->Add();
  views_[static_cast<std::size_t>(decision.cache_view)]->Add();
  prompt_tokens_.Add(decision.isl_tokens);
  predicted_tokens_.Add(decision.predicted_cached_tokens);
  passed_over_blocks_.Add(passed_over_blocks);
}

void Counters::Refused(ErrorCode code) {
  registry_
      .AddCounter("kvr_routing_refused_total",
                  "Attempts at a decision that got none, by error code: a request may make several",
                  {{"code", std::string(CodeName(code))}})
      .Add();
}

void Counters::Took(Nanos duration) {
  duration_.Observe(std::chrono::duration<double>(duration).count());
}

void Counters::Reported(std::uint64_t predicted, std::uint64_t actual) {
  reports_.Add();
  reported_predicted_tokens_.Add(predicted);
  reported_actual_tokens_.Add(actual);
  overpredicted_tokens_.Add(predicted - std::min(predicted, actual));
  underpredicted_tokens_.Add(actual - std::min(predicted, actual));
}

void EmitLoad(const Partition& partition, const RankLoad& load, metrics::SampleSink& sink) {
  metrics::Labels labels = LabelsOf(partition);
  labels.emplace_back("worker_id", std::to_string(Raw(load.rank.worker)));
  labels.emplace_back("dp_rank", std::to_string(load.rank.dp_rank));
  sink.AddGauge("kvr_routing_active_prefill_tokens", "Booked prompt tokens not prefilled yet",
                labels, static_cast<double>(load.active_prefill_tokens));
  sink.AddGauge("kvr_routing_active_blocks", "Blocks of the booked prompts and their answers",
                labels, static_cast<double>(load.active_blocks));
  sink.AddGauge("kvr_routing_active_requests", "Booked requests", labels, load.active_requests);
}

void EmitBook(const Partition& partition, const load::BookStats& stats, metrics::SampleSink& sink) {
  const metrics::Labels labels = LabelsOf(partition);
  sink.AddGauge("kvr_routing_bookings", "Live bookings", labels,
                static_cast<double>(stats.bookings));
  sink.AddCounter("kvr_routing_booked_total", "Bookings made", labels,
                  static_cast<double>(stats.booked));
  sink.AddCounter("kvr_routing_expired_total", "Bookings freed because nobody touched them", labels,
                  static_cast<double>(stats.expired));
  sink.AddCounter("kvr_routing_lost_bookings_total", "Bookings that ended with their rank", labels,
                  static_cast<double>(stats.lost_with_rank));
}

void EmitGuesses(const Partition& partition, const index::DecisionIndex::Stats& stats,
                 metrics::SampleSink& sink) {
  const metrics::Labels labels = LabelsOf(partition);
  sink.AddGauge("kvr_routing_guessed_blocks", "Blocks entered by decisions, not by events", labels,
                static_cast<double>(stats.blocks));
  sink.AddGauge("kvr_routing_guessed_bytes", "Estimated heap of those blocks", labels,
                static_cast<double>(stats.bytes));
  const std::pair<const char*, std::uint64_t> gone[] = {{"expired", stats.expired_blocks},
                                                        {"evicted", stats.evicted_blocks}};
  for (const auto& [why, blocks] : gone) {
    metrics::Labels labeled = labels;
    labeled.emplace_back("why", why);
    sink.AddCounter("kvr_routing_guessed_blocks_gone_total", "Blocks entered by decisions and gone",
                    labeled, static_cast<double>(blocks));
  }
  sink.AddCounter("kvr_routing_guesses_refused_total", "Decisions a limit kept from being entered",
                  labels, static_cast<double>(stats.refused));
}

}  // namespace kvr::routing
