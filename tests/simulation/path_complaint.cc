// What is wrong when all is well again.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "simulation/path.h"

namespace kvr::simulation {
namespace {

std::string Difference(const Held& known, const Held& truth) {
  Held extra;
  Held missing;
  std::ranges::set_difference(known, truth, std::inserter(extra, extra.end()));
  std::ranges::set_difference(truth, known, std::inserter(missing, missing.end()));
  return fmt::format("{} blocks known, {} held, {} of them unknown, {} known in error",
                     known.size(), truth.size(), missing.size(), extra.size());
}

std::string Says(std::string_view who, Rank rank, RankState state, StateReason reason,
                 std::string_view detail) {
  return fmt::format("{} of worker {} rank {} is {} {} ({})", who, Raw(rank.worker), rank.dp_rank,
                     RankStateName(state), StateReasonName(reason), detail);
}

// What the engine holds, by what it means. In `known`, of several engines, blocks whose place in a
// sequence nobody told keep the engine's name; they get their meaning, too.
Held Meant(const Engine& engine, Held& known) {
  Held meant;
  for (const auto& [tier, name] : engine.held()) {
    const Held::value_type block(tier, engine.MeaningOf(name));
    meant.insert(block);
    if (known.erase({tier, name}) > 0) known.insert(block);
  }
  return meant;
}

// Counts that do not agree.
class Differing {
 public:
  void Same(std::string_view what, std::uint64_t counted, std::uint64_t told) {
    if (counted != told) text_ += fmt::format("{}: {} counted, {} told; ", what, counted, told);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

bool Path::WasTold(std::size_t engine) const {
  // What the agent had of an earlier life it gives up with the first message of this one.
  const Publisher* const publisher = engines_[engine]->publisher();
  return publisher != nullptr && publisher->next_sequence() > 0 && network_.ToldAll(*publisher) &&
         !engines_[engine]->told_undecodable();
}

// That the engine is not known exactly has a reason.
std::string Path::SourceComplaint(std::size_t number) const {
  const Engine& engine = *engines_[number];
  const Followed& source = agent_->followed()[number];
  const auto [state, reason] = source.status();
  if (state == RankState::kExact) return {};
  const std::string says = Says("the agent", engine.rank(), state, reason, source.detail());
  // Who asks for what may be missing may be answered late, by a ring that has moved on.
  if (!plan_.engine_replay && WasTold(number)) return says + ", although it was told everything";
  const bool waits = state == RankState::kWarming && !plan_.engine_replay &&
                     reason == StateReason::kNoReplayEndpoint;  // for a message
  if (waits) return {};
  if (state != RankState::kDegraded) return says;
  const bool may = (reason == StateReason::kUndecodable && engine.told_undecodable()) ||
                   (plan_.engine_replay ? reason == StateReason::kHistoryGone && !engine.tells_all()
                                        : reason == StateReason::kGapUnrepaired ||
                                              reason == StateReason::kNoReplayEndpoint);
  return may ? std::string() : says + ", although everything could be had";
}

// The agent knows what the rank's engines hold together; of those it does not know exactly, not too
// much. It says so of the rank, too, as of one of them.
std::string Path::AgentComplaint(std::size_t number) const {
  const Rank rank{kEngine, static_cast<std::uint32_t>(number)};
  const auto head = agent_->head(number);
  Held known = agent_->Read(number).held;
  Held truth;
  Held sure;  // of those that are known exactly
  bool exact = true;
  bool one_says_so = false;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i]->rank().dp_rank != rank.dp_rank) continue;
    Held held = engines_[i]->held();
    if (plan_.manager) held = Meant(*engines_[i], known);
    truth.insert(held.begin(), held.end());
    const auto [state, reason] = agent_->followed()[i].status();
    one_says_so |= state == head.state && reason == head.reason;
    if (state == RankState::kExact) {
      sure.insert(held.begin(), held.end());
    } else {
      exact = false;
    }
  }
  const bool says_so = one_says_so && exact == (head.state == RankState::kExact);
  // A restart that keeps its numbers is told by the bytes of a replay, or by nothing.
  const bool unseen = plan_.keeps_numbers && !plan_.engine_replay && !exact;
  if (says_so && Within(sure, known) && (unseen || Within(known, truth))) return {};
  return fmt::format("{}, {}, {}", Says("the agent", rank, head.state, head.reason, {}),
                     exact ? "its sources exact" : "some source not exact",
                     Difference(known, truth));
}

std::string Path::RouterComplaint(std::size_t i, std::size_t number) const {
  const Router& router = *routers_[i];
  const Rank rank{kEngine, static_cast<std::uint32_t>(number)};
  const Followed& followed = router.followed()[number];
  const auto status = followed.status();
  const Held held = router.held(rank);
  // The agent may know less than the engine, but nobody less than his agent: what messages no
  // longer tell its snapshot does.
  const Agent::Known told = agent_->Read(number);
  const std::string says = fmt::format(
      "{}, {}",
      Says(fmt::format("router {}", i), rank, status.state, status.reason, followed.detail()),
      Difference(held, told.reachable));
  if (held != told.reachable) return says;
  if (router.eligible(rank) != told.eligible) {
    return fmt::format("{}; of those that are eligible {}", says,
                       Difference(router.eligible(rank), told.eligible));
  }
  const auto agent = agent_->head(number);
  const bool alike = status.state == agent.state && status.reason == agent.reason;
  return alike ? std::string()
               : fmt::format("{}, and the agent {} {}", says, RankStateName(agent.state),
                             StateReasonName(agent.reason));
}

// Events have no numbers, so that those of a message that was not read, or was read twice, are not
// to be told apart. Neither are those of an earlier engine, where a message that is no more to be
// had would tell whose the ones before were: they stay counted, and the agent says that it is not
// sure of them.
bool Path::EventsCompare(std::size_t engine) const {
  const Followed& source = agent_->followed()[engine];
  const fleet::RankLedger& ledger = source.ledger();
  const bool one_engine =
      engines_[engine]->histories() == 1 || source.status().state == RankState::kExact;
  return one_engine && ledger.messages_taken_back() == 0 &&
         ledger.messages() == ledger.count(fleet::MessageFate::kApplied) +
                                  ledger.count(fleet::MessageFate::kReplayed);
}

std::string Path::SourceCounters(std::size_t number) const {
  Differing differing;
  const Engine& engine = *engines_[number];
  const Followed& source = agent_->followed()[number];
  const fleet::RankLedger& ledger = source.ledger();
  // Of an engine that nobody can be asked about, what it told last may be lost, or all, and no
  // newer message shows it.
  if (plan_.engine_replay || (source.watermark() && !plan_.quiet)) {
    differing.Same("messages of the engine", ledger.messages() - ledger.messages_taken_back(),
                   engine.publisher()->next_sequence());
  }
  if (EventsCompare(number) && source.watermark()) {
    differing.Same("events of the engine", ledger.events(), engine.told_events());
  }
  return differing.text();
}

std::string Path::RankCounters(std::size_t rank) const {
  Differing differing;
  const auto published = agent_->stats(rank);
  std::uint64_t placements = 0;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i]->rank().dp_rank != rank) continue;
    const fleet::RankLedger& ledger = agent_->followed()[i].ledger();
    placements += ledger.count(fleet::Placement::kEvent) + ledger.count(fleet::Placement::kClear);
  }
  differing.Same("placements of the agent", placements,
                 published.publisher.received_events + published.refused_events);
  for (const auto& router : routers_) {
    const fleet::RankLedger& ledger = router->followed()[rank].ledger();
    differing.Same("messages of the agent", ledger.messages() - ledger.messages_taken_back(),
                   published.publisher.messages);
    // An agent's numbers begin anew with its first event.
    if (published.publisher.messages == 0) continue;
    differing.Same("events of the agent", ledger.events() - ledger.events_taken_back(),
                   published.publisher.published_events);
  }
  return differing.text();
}

std::string Path::Complaint() const {
  std::string complaint;
  const auto is = [&complaint](std::string found) {
    complaint = std::move(found);
    return !complaint.empty();
  };
  for (std::size_t engine = 0; engine < engines_.size(); ++engine) {
    if (is(SourceComplaint(engine))) return complaint;
  }
  for (std::size_t rank = 0; rank < plan_.ranks; ++rank) {
    if (is(AgentComplaint(rank))) return complaint;
    for (std::size_t i = 0; i < kRouters; ++i) {
      if (is(RouterComplaint(i, rank))) return complaint;
    }
  }
  for (std::size_t engine = 0; engine < engines_.size(); ++engine) {
    if (is(SourceCounters(engine))) return complaint;
  }
  for (std::size_t rank = 0; rank < plan_.ranks; ++rank) {
    if (is(RankCounters(rank))) return complaint;
  }
  return {};
}

}  // namespace kvr::simulation
