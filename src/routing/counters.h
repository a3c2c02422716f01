// What the router counts.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "metrics/registry.h"
#include "routing/router.h"

namespace kvr::routing {

// Thread-safe. The registry must outlive it.
class Counters {
 public:
  explicit Counters(metrics::Registry& registry);

  // `passed_over_blocks`: how many more blocks the best candidate held than the chosen one.
  void Decided(const Decision& decision, std::uint32_t passed_over_blocks);
  void Refused(ErrorCode code);
  void Took(Nanos duration);
  void Reported(std::uint64_t predicted, std::uint64_t actual);

 private:
  metrics::Registry& registry_;
  std::array<std::array<metrics::Counter*, kReasonNames.size()>, sched::kPolicyCount> decisions_{};
  std::array<metrics::Counter*, kCacheViewNames.size()> views_{};
  metrics::Counter& prompt_tokens_;
  metrics::Counter& predicted_tokens_;
  metrics::Counter& passed_over_blocks_;
  metrics::Counter& reports_;
  metrics::Counter& reported_predicted_tokens_;
  metrics::Counter& reported_actual_tokens_;
  metrics::Counter& overpredicted_tokens_;
  metrics::Counter& underpredicted_tokens_;
  metrics::Histogram& duration_;
};

// The load of one rank, for a scrape.
void EmitLoad(const Partition& partition, const RankLoad& load, metrics::SampleSink& sink);

// The bookings of one partition, for a scrape.
void EmitBook(const Partition& partition, const load::BookStats& stats, metrics::SampleSink& sink);
// What earlier decisions entered for ranks whose events do not tell.
void EmitGuesses(const Partition& partition, const index::DecisionIndex::Stats& stats,
                 metrics::SampleSink& sink);

}  // namespace kvr::routing
