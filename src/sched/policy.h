// Chooses one of the eligible candidates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/rng.h"
#include "model/ids.h"
#include "sched/cost.h"

namespace kvr::sched {

enum class PolicyKind : std::uint8_t { kKv, kRoundRobin, kRandom, kLeastLoaded };

inline constexpr std::size_t kPolicyCount = 4;
inline constexpr std::array<std::string_view, kPolicyCount> kPolicyNames = {
    "kv", "round_robin", "random", "least_loaded"};
constexpr std::string_view PolicyName(PolicyKind kind) {
  return kPolicyNames[static_cast<std::size_t>(kind)];
}
std::optional<PolicyKind> PolicyFromName(std::string_view name);

// Reserves nothing, takes no lock, never blocks. Randomness comes only from the caller's generator,
// so the same seed and candidates give the same choice. Not thread-safe.
class Policy {
 public:
  virtual ~Policy() = default;

  [[nodiscard]] virtual PolicyKind kind() const = 0;

  // An index into `candidates`, which is not empty and ascending by rank. `costs` has one entry a
  // candidate: what Cost() says of it.
  [[nodiscard]] virtual std::size_t Pick(const CostOptions& options,
                                         std::span<const Candidate> candidates,
                                         std::span<const CostTerms> costs, Rng& rng) = 0;

  // The choice was booked on `rank`. Advisory picks are not reported, so they move no cursor.
  virtual void Booked(Rank rank) { static_cast<void>(rank); }
};

std::unique_ptr<Policy> MakePolicy(PolicyKind kind);

// The cheapest; exact ties are broken uniformly. `costs` is not empty.
std::size_t PickCheapest(std::span<const CostTerms> costs, Rng& rng);

// One by weight exp(−(cost − least) / scale), where `u` in [0, 1] is the draw. Equal costs are
// equally likely. `temperature` is above 0, `costs` is not empty.
std::size_t PickByTemperature(std::span<const CostTerms> costs, double temperature,
                              TemperatureScale scale, double u);

}  // namespace kvr::sched
