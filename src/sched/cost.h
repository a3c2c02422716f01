// The compatible cost of sending a request to a candidate, in KV blocks. Lower wins.
//
//   credit = overlap_score_credit · decay · device + host_w · host + disk_w · (disk + external)
//            + shared_mult · shared_beyond
//   cost   = (prefill_load_scale · max(0, raw_prefill − credit) + decode
//             + decode_active_request_weight · requests) · exp(−tanh(Σ preferred taints))
//
// Everything here is a pure function of its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace kvr::sched {

// How the temperature reads cost differences.
enum class TemperatureScale : std::uint8_t {
  kRange,   // relative to the spread of the costs: best to worst is always e^(1/T)
  kBlocks,  // in blocks: a candidate T blocks dearer is 1/e times as likely
};

struct CostOptions {
  double overlap_score_credit = 1;  // blocks saved per device block; 0 ignores the device cache
  double overlap_score_credit_decay = 0;    // 1 halves the credit at one request of excess backlog
  double prefill_load_scale = 1;            // prefill against decode
  double decode_active_request_weight = 0;  // blocks per active request
  double host_cache_hit_weight = 0.75;      // 0..1, blocks saved per host_pinned block
  double disk_cache_hit_weight = 0.25;      // 0..1, the same for disk and external
  double shared_cache_multiplier = 0;       // 0..1, the same for a shared pool
  double temperature = 0;                   // 0: always the cheapest
  TemperatureScale temperature_scale = TemperatureScale::kRange;

  // kInvalidArgument names the field, its value and its range.
  [[nodiscard]] Result<void> Validate() const;
};

// What a request may set for itself.
struct CostOverrides {
  std::optional<double> overlap_score_credit = {};
  std::optional<double> prefill_load_scale = {};
  std::optional<double> shared_cache_multiplier = {};
  std::optional<double> temperature = {};

  // `base` with what is set here; not validated.
  [[nodiscard]] CostOptions Over(CostOptions base) const;
};

// What a cost needs to know of the request.
struct RequestShape {
  std::uint64_t isl_tokens = 0;  // at least 1
  std::uint32_t block_size = 0;  // at least 1
  bool track_prefill = true;
  bool decode_pool = true;  // decode, aggregated and encode pools; false for prefill pools
  // No tier of any candidate matched, and the candidates carry `effective_overlap` instead.
  bool only_effective_overlap = false;

  [[nodiscard]] std::uint64_t blocks() const { return (isl_tokens + block_size - 1) / block_size; }
};

// One eligible rank when the request arrived: values, so that a policy can be tested and replayed
// with nothing else running.
struct Candidate {
  Rank rank;

  // Blocks of this request it holds; each tier beyond where the tier before it ended.
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t disk = 0;           // disk and external
  std::uint32_t shared_beyond = 0;  // shared pool hits beyond the device blocks
  double effective_overlap = 0;     // read only with RequestShape::only_effective_overlap

  bool has_load = true;              // false: nothing was ever booked there, the load fields are 0
  std::uint64_t active_prefill = 0;  // tokens booked and not yet prefilled
  std::uint64_t decode_blocks = 0;   // active blocks, with those this request would add
  std::uint32_t active_requests = 0;

  // Σ weights of the preferred taints it has; nothing when the request prefers none.
  std::optional<double> taint_weight = {};
};

// The terms of one candidate's cost, for explanations.
struct CostTerms {
  double raw_prefill_blocks = 0;
  double credit_blocks = 0;
  double credit_decay = 1;
  double decode_blocks = 0;
  double request_blocks = 0;  // decode_active_request_weight · active requests
  double taint_factor = 1;
  double total = 0;
};

// 1.0 · device + weighted lower tiers, in blocks. A tier of weight 0 does not count.
double EffectiveOverlap(const CostOptions& options, const Candidate& candidate);

// ⌊effective overlap · block size⌋, in tokens: what a booking takes off the prefill.
std::uint64_t CachedTokens(const CostOptions& options, const RequestShape& request,
                           const Candidate& candidate);

// The least active prefill among the candidates; 0 when there is none. The decay counts excess over
// it.
std::uint64_t PrefillFloor(std::span<const Candidate> candidates);

CostTerms Cost(const CostOptions& options, const RequestShape& request, const Candidate& candidate,
               std::uint64_t prefill_floor);

// Replaces `costs` by those of `candidates`, in their order, over their own prefill floor.
void CostAll(const CostOptions& options, const RequestShape& request,
             std::span<const Candidate> candidates, std::vector<CostTerms>& costs);

}  // namespace kvr::sched
