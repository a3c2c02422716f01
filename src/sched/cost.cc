#include "sched/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/core.h>

#include "base/check.h"

namespace kvr::sched {
namespace {

struct Range {
  std::string_view name;
  double value;
  double most;
};

double Blocks(std::uint64_t tokens, const RequestShape& request) {
  return static_cast<double>(tokens) / request.block_size;
}

std::uint64_t AddSaturating(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// Everything the rank would have to prefill with this request, its cached part included.
double RawPrefillBlocks(const CostOptions& options, const RequestShape& request,
                        const Candidate& candidate) {
  if (!request.track_prefill) return 0;
  if (!candidate.has_load) return Blocks(request.isl_tokens, request);
  const std::uint64_t own = std::max(request.isl_tokens, CachedTokens(options, request, candidate));
  return Blocks(AddSaturating(candidate.active_prefill, own), request);
}

double CreditDecay(const CostOptions& options, const RequestShape& request,
                   const Candidate& candidate, std::uint64_t prefill_floor) {
  if (!request.track_prefill || options.overlap_score_credit_decay <= 0) return 1;
  const std::uint64_t over =
      candidate.active_prefill - std::min(candidate.active_prefill, prefill_floor);
  const double excess = Blocks(over, request) / static_cast<double>(request.blocks());
  return 1 / (1 + options.overlap_score_credit_decay * excess);
}

// Every field is set where it stands: to copy what was just written field by field would stall.
void SetTerms(const CostOptions& options, const RequestShape& request, const Candidate& candidate,
              std::uint64_t prefill_floor, CostTerms& terms) {
  const double device =
      request.only_effective_overlap ? candidate.effective_overlap : candidate.device;
  terms.raw_prefill_blocks = RawPrefillBlocks(options, request, candidate);
  terms.credit_decay = CreditDecay(options, request, candidate, prefill_floor);
  terms.credit_blocks = options.overlap_score_credit * terms.credit_decay * device +
                        options.host_cache_hit_weight * candidate.host +
                        options.disk_cache_hit_weight * candidate.disk +
                        options.shared_cache_multiplier * candidate.shared_beyond;
  terms.decode_blocks = static_cast<double>(candidate.decode_blocks);
  terms.request_blocks = options.decode_active_request_weight * candidate.active_requests;
  terms.taint_factor = candidate.taint_weight ? std::exp(-std::tanh(*candidate.taint_weight)) : 1;

  // Where the prompt costs nothing, what is cached there makes decoding cheaper instead.
  const bool credit_decode =
      request.decode_pool && !request.track_prefill && options.overlap_score_credit > 0;
  const double base = credit_decode
                          ? std::max(0.0, terms.decode_blocks - terms.credit_blocks)
                          : options.prefill_load_scale *
                                    std::max(0.0, terms.raw_prefill_blocks - terms.credit_blocks) +
                                terms.decode_blocks;
  terms.total = (base + terms.request_blocks) * terms.taint_factor;
}

}  // namespace

Result<void> CostOptions::Validate() const {
  constexpr double kAny = std::numeric_limits<double>::max();
  const std::array ranges = {
      Range{"overlap_score_credit", overlap_score_credit, kAny},
      Range{"overlap_score_credit_decay", overlap_score_credit_decay, kAny},
      Range{"prefill_load_scale", prefill_load_scale, kAny},
      Range{"decode_active_request_weight", decode_active_request_weight, kAny},
      Range{"host_cache_hit_weight", host_cache_hit_weight, 1},
      Range{"disk_cache_hit_weight", disk_cache_hit_weight, 1},
      Range{"shared_cache_multiplier", shared_cache_multiplier, 1},
      Range{"temperature", temperature, kAny},
  };
  for (const Range& range : ranges) {
    // Written so that NaN fails too.
    if (range.value >= 0 && range.value <= range.most) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        range.most == kAny
            ? fmt::format("{} is {}: must be finite and at least 0", range.name, range.value)
            : fmt::format("{} is {}: must be in 0..{}", range.name, range.value, range.most));
  }
  return {};
}

CostOptions CostOverrides::Over(CostOptions base) const {
  base.overlap_score_credit = overlap_score_credit.value_or(base.overlap_score_credit);
  base.prefill_load_scale = prefill_load_scale.value_or(base.prefill_load_scale);
  base.shared_cache_multiplier = shared_cache_multiplier.value_or(base.shared_cache_multiplier);
  base.temperature = temperature.value_or(base.temperature);
  return base;
}

double EffectiveOverlap(const CostOptions& options, const Candidate& candidate) {
  return candidate.device + options.host_cache_hit_weight * candidate.host +
         options.disk_cache_hit_weight * candidate.disk;
}

std::uint64_t CachedTokens(const CostOptions& options, const RequestShape& request,
                           const Candidate& candidate) {
  const double blocks = request.only_effective_overlap ? candidate.effective_overlap
                                                       : EffectiveOverlap(options, candidate);
  const double tokens = std::max(0.0, blocks * request.block_size);
  // The cast rounds down. Signed, because that is one instruction.
  return tokens < 0x1p63 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(tokens))
                         : std::uint64_t{1} << 63;
}

std::uint64_t PrefillFloor(std::span<const Candidate> candidates) {
  if (candidates.empty()) return 0;
  return std::ranges::min_element(candidates, {}, &Candidate::active_prefill)->active_prefill;
}

CostTerms Cost(const CostOptions& options, const RequestShape& request, const Candidate& candidate,
               std::uint64_t prefill_floor) {
  KVR_CHECK(request.isl_tokens > 0 && request.block_size > 0);
  CostTerms terms;
  SetTerms(options, request, candidate, prefill_floor, terms);
  return terms;
}

void CostAll(const CostOptions& options, const RequestShape& request,
             std::span<const Candidate> candidates, std::vector<CostTerms>& costs) {
  KVR_CHECK(request.isl_tokens > 0 && request.block_size > 0);
  const std::uint64_t floor = PrefillFloor(candidates);
  costs.resize(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    SetTerms(options, request, candidates[i], floor, costs[i]);
}

}  // namespace kvr::sched
