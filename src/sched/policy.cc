#include "sched/policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvr::sched {
namespace {

// The index with the least `value(i)`; ties are broken uniformly: the k-th of them takes over with
// probability 1/k.
template <typename Value>
std::size_t PickLeast(std::size_t count, const Value& value, Rng& rng) {
  KVR_CHECK(count > 0);
  std::size_t best = 0;
  std::uint64_t tied = 1;
  for (std::size_t i = 1; i < count; ++i) {
    if (value(i) < value(best)) {
      best = i;
      tied = 1;
    } else if (value(i) == value(best) && rng.Below(++tied) == 0) {
      best = i;
    }
  }
  return best;
}

class KvPolicy final : public Policy {
 public:
  [[nodiscard]] PolicyKind kind() const override { return PolicyKind::kKv; }
  [[nodiscard]] std::size_t Pick(const CostOptions& options,
                                 std::span<const Candidate> /*candidates*/,
                                 std::span<const CostTerms> costs, Rng& rng) override {
    if (options.temperature <= 0) return PickCheapest(costs, rng);
    return PickByTemperature(costs, options.temperature, options.temperature_scale, rng.Uniform());
  }
};

// The first candidate behind the rank that was booked last. Keeps its place when ranks come, go or
// are not eligible.
class RoundRobinPolicy final : public Policy {
 public:
  [[nodiscard]] PolicyKind kind() const override { return PolicyKind::kRoundRobin; }
  [[nodiscard]] std::size_t Pick(const CostOptions& /*options*/,
                                 std::span<const Candidate> candidates,
                                 std::span<const CostTerms> /*costs*/, Rng& /*rng*/) override {
    if (!last_) return 0;
    const auto next = std::ranges::upper_bound(candidates, *last_, {}, &Candidate::rank);
    return next == candidates.end() ? 0 : static_cast<std::size_t>(next - candidates.begin());
  }
  void Booked(Rank rank) override { last_ = rank; }

 private:
  std::optional<Rank> last_;
};

class RandomPolicy final : public Policy {
 public:
  [[nodiscard]] PolicyKind kind() const override { return PolicyKind::kRandom; }
  [[nodiscard]] std::size_t Pick(const CostOptions& /*options*/,
                                 std::span<const Candidate> candidates,
                                 std::span<const CostTerms> /*costs*/, Rng& rng) override {
    return static_cast<std::size_t>(rng.Below(candidates.size()));
  }
};

class LeastLoadedPolicy final : public Policy {
 public:
  [[nodiscard]] PolicyKind kind() const override { return PolicyKind::kLeastLoaded; }
  [[nodiscard]] std::size_t Pick(const CostOptions& /*options*/,
                                 std::span<const Candidate> candidates,
                                 std::span<const CostTerms> /*costs*/, Rng& rng) override {
    const auto requests = [&](std::size_t i) { return candidates[i].active_requests; };
    return PickLeast(candidates.size(), requests, rng);
  }
};

}  // namespace

std::optional<PolicyKind> PolicyFromName(std::string_view name) {
  for (std::size_t i = 0; i < kPolicyCount; ++i) {
    if (kPolicyNames[i] == name) return static_cast<PolicyKind>(i);
  }
  return std::nullopt;
}

std::unique_ptr<Policy> MakePolicy(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kKv:
      return std::make_unique<KvPolicy>();
    case PolicyKind::kRoundRobin:
      return std::make_unique<RoundRobinPolicy>();
    case PolicyKind::kRandom:
      return std::make_unique<RandomPolicy>();
    case PolicyKind::kLeastLoaded:
      break;
  }
  return std::make_unique<LeastLoadedPolicy>();
}

std::size_t PickCheapest(std::span<const CostTerms> costs, Rng& rng) {
  const auto total = [&](std::size_t i) { return costs[i].total; };
  return PickLeast(costs.size(), total, rng);
}

std::size_t PickByTemperature(std::span<const CostTerms> costs, double temperature,
                              TemperatureScale scale, double u) {
  KVR_CHECK(!costs.empty() && temperature > 0);
  const auto [low, high] = std::ranges::minmax_element(costs, {}, &CostTerms::total);
  const double least = low->total;
  const double most = high->total;
  // Costs whose spread is beyond a double are brought to within 1 of 0 first.
  const double shrink = std::isfinite(most - least) ? 1 : std::max(std::abs(least), std::abs(most));
  const double spread = most / shrink - least / shrink;
  const double unit = scale == TemperatureScale::kRange ? spread : 1 / shrink;
  const auto weight = [&](const CostTerms& cost) {
    const double above = cost.total / shrink - least / shrink;
    return above <= 0 ? 1.0 : std::exp(-above / unit / temperature);
  };
  double sum = 0;
  for (const CostTerms& cost : costs)
    sum += weight(cost);
  double reached = 0;
  for (std::size_t i = 0; i + 1 < costs.size(); ++i) {
    reached += weight(costs[i]) / sum;
    if (reached >= u) return i;
  }
  return costs.size() - 1;
}

}  // namespace kvr::sched
