#include "simulation/plan.h"

#include <fmt/format.h>

namespace kvr::simulation {
namespace {

constexpr std::array<const char*, 8> kDialects = {"vllm-0.9.1", "vllm-0.14", "vllm-0.22",
                                                  "vllm-0.24",  "vllm-0.29", "vllm-map-batch",
                                                  "sglang",     "sglang-map"};

// Those that have a word for a farther tier.
constexpr std::array<const char*, 5> kManagers = {"vllm-0.14", "vllm-0.24", "vllm-0.29",
                                                  "vllm-map-batch", "sglang"};

// Who is there beside one rank's engine.
std::string Company(const Plan& plan) {
  std::string company;
  if (plan.ranks > 1) company += fmt::format("; {} ranks", plan.ranks);
  if (!plan.manager) return company;
  return company + fmt::format("; a manager that speaks {}{} of {} {} blocks",
                               plan.manager->dialect, plan.manager->copies ? " with copies" : "",
                               plan.manager->host_blocks, TierName(plan.manager->far_tier));
}

}  // namespace

std::string Plan::ToString() const {
  return fmt::format(
      "seed {}: {}{}, {} + {} blocks, engine ring {}{}, queue mark {}; agent ring {}, queue {}, "
      "mark {}, coalesce {} ms; clear_on_loss {}; drop {} dup {} reorder {} slow {} "
      "no_answer {} cut {} hole {}{}{}{}",
      seed, engine.dialect, engine.copies ? " with copies" : "", engine.blocks, engine.host_blocks,
      engine.publisher.replay_messages_max, engine_replay ? "" : " (no replay)",
      engine.publisher.unread_max, agent.socket.replay_messages_max, agent.socket.queue_max,
      agent.socket.unread_max, agent.publisher.coalescer.timeout.count(),
      router.stream.clear_on_loss, faults.drop, faults.duplicate, faults.reorder, faults.slow,
      faults.no_answer, faults.cut_answer, faults.hole_in_answer,
      keeps_numbers ? ", numbers kept" : "", long_outages ? ", long outages" : "", Company(*this));
}

Plan PlanOf(std::uint64_t seed) {
  Rng rng(seed * 2 + 1);
  const auto one_in = [&rng](std::uint64_t n) { return rng.Below(n) == 0; };
  // Each fault is in half of the plans.
  const auto maybe = [&](std::uint64_t most) { return one_in(2) ? 0 : 1 + rng.Below(most); };
  Plan plan;
  plan.seed = seed;
  plan.engine.dialect = kDialects[rng.Below(kDialects.size())];
  plan.engine.blocks = static_cast<std::uint32_t>(8 + rng.Below(40));
  plan.engine.host_blocks = static_cast<std::uint32_t>(one_in(3) ? 0 : 4 + rng.Below(40));
  plan.engine.copies = one_in(3);
  plan.engine.same_names = one_in(2);
  plan.engine.publisher.layout =
      one_in(2) ? net::ReplayLayout::kSeqPayload : net::ReplayLayout::kTopicSeqPayload;
  plan.engine.publisher.repeats = one_in(2);
  if (one_in(3)) plan.engine.publisher.replay_messages_max = 3 + rng.Below(60);
  if (one_in(3)) plan.engine.publisher.unread_max = 2 + rng.Below(20);
  plan.engine_replay = !one_in(10);
  if (one_in(3)) plan.agent.socket.replay_messages_max = 3 + rng.Below(60);
  if (one_in(3)) plan.agent.socket.queue_max = 1 + rng.Below(12);
  if (one_in(3)) plan.agent.socket.unread_max = 2 + rng.Below(20);
  plan.agent.stream.clear_on_loss = true;
  if (one_in(3)) plan.agent.publisher.coalescer.timeout = Millis(1 + rng.Below(200));
  if (one_in(4)) plan.agent.publisher.message_events_max = 1 + rng.Below(3);
  if (one_in(3)) plan.agent.publisher.snapshot_tail_max = rng.Below(20);
  if (one_in(4)) plan.agent.publisher.ring.events_max = 1 + rng.Below(40);
  plan.router.stream.clear_on_loss = one_in(2);
  for (auto* const stream : {&plan.agent.stream, &plan.router.stream}) {
    if (one_in(3)) stream->parked_messages_max = 2 + rng.Below(12);
  }
  plan.faults.drop = maybe(150);
  plan.faults.duplicate = maybe(150);
  plan.faults.reorder = maybe(150);
  plan.faults.slow = maybe(40);
  plan.faults.no_answer = maybe(300);
  plan.faults.cut_answer = maybe(400);
  plan.faults.slow_answer = maybe(300);
  plan.faults.hole_in_answer = one_in(4) ? maybe(60) : 0;
  Plan::Weights& weights = plan.weights;
  for (const auto weight : Plan::Weights::kAll)
    weights.*weight = maybe(20);
  plan.weights.undecodable = one_in(6) ? maybe(6) : 0;
  plan.keeps_numbers = one_in(4);
  plan.long_outages = one_in(4);
  plan.quiet = one_in(4);
  return plan;
}

Plan PlanOfSeveral(std::uint64_t seed) {
  Plan plan = PlanOf(seed);
  Rng rng(seed * 2);
  const std::uint64_t who = rng.Below(3);
  if (who != 0) plan.ranks = 2;
  if (who == 1) return plan;
  Engine::Options& manager = plan.manager.emplace(plan.engine);
  manager.manager = true;
  manager.dialect = kManagers[rng.Below(kManagers.size())];
  manager.far_tier = rng.Below(2) == 0 ? Tier::kHostPinned : Tier::kDisk;
  manager.host_blocks = static_cast<std::uint32_t>(4 + rng.Below(60));
  manager.copies = rng.Below(3) == 0;
  manager.namer = rng.Below(2);
  return plan;
}

}  // namespace kvr::simulation
