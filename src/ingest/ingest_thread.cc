#include "ingest/ingest_thread.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/latch.h"
#include "base/thread_name.h"
#include "net/event_endpoint.h"

namespace kvr::ingest {
namespace {

// A thread without a deadline still looks around: link reports need no message to matter.
constexpr Nanos kWaitMax = std::chrono::seconds(1);

auto HasSource(Rank rank) {
  return Fail(ErrorCode::kAlreadyExists, fmt::format("instance {} dp_rank {} already has an event "
                                                     "source",
                                                     Raw(rank.worker), rank.dp_rank));
}

}  // namespace

IngestThread::IngestThread(std::size_t number, net::EventTransport& transport, const Clock& clock,
                           IngestMetrics& metrics, const Ingest::Options& options)
    : clock_(clock),
      metrics_(metrics),
      options_(options),
      poller_(transport.MakePoller()),
      work_(options.commands_max) {
  thread_ = std::thread([this, number] {
    SetThreadName(fmt::format("ingest-{}", number));
    Run();
  });
}

IngestThread::~IngestThread() {
  Stop();
}

void IngestThread::Stop() {
  refusing_.store(true, std::memory_order_relaxed);
  work_.Close();
  // After Close: work accepted until then is found by the thread's last look. Seen at the latest
  // after the wait that Wake ends.
  stopping_.store(true, std::memory_order_relaxed);
  called_.store(true, std::memory_order_relaxed);
  poller_->Wake();
  if (thread_.joinable()) thread_.join();
}

Result<void> IngestThread::Do(Work work) {
  Latch done;
  if (!work_.TryPush([&work, &done] {
        work();
        done.Set();
      })) {
    if (refusing_.load(std::memory_order_relaxed)) {
      return Fail(ErrorCode::kCancelled, "event ingest is stopped");
    }
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} changes of event sources are waiting, which is the limit",
                            options_.commands_max));
  }
  called_.store(true, std::memory_order_relaxed);
  poller_->Wake();
  done.Wait();
  return {};
}

Result<void> IngestThread::Add(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                               std::shared_ptr<fleet::RankHealth> health) {
  Result<void> added;
  KVR_TRY_VOID(Do([&] { added = AddHere(std::move(spec), std::move(index), std::move(health)); }));
  return added;
}

Result<void> IngestThread::Join(Rank of, SourceSpec::Sharer sharer,
                                std::optional<std::uint64_t> known_to) {
  Result<void> joined;
  KVR_TRY_VOID(Do([&] { joined = JoinHere(of, std::move(sharer), known_to); }));
  return joined;
}

bool IngestThread::Remove(Rank rank) {
  bool removed = false;
  return Do([&] { removed = RemoveHere(rank); }) && removed;
}

void IngestThread::Run() {
  bool more = false;
  while (!stopping_.load(std::memory_order_relaxed)) {
    poller_->Wait(more ? Nanos{0} : TimeToNextDeadline());
    RunWork();
    more = TurnSources();
  }
  // Closed, so what is queued is all there will be; its callers are waiting.
  RunWork();
  Drain();
  sources_.clear();
}

void IngestThread::RunWork() {
  // Before the first look: what is pushed after the last one calls again.
  called_.store(false, std::memory_order_relaxed);
  for (std::size_t waiting = work_.size(); waiting > 0; --waiting) {
    if (auto work = work_.TryPop()) (*work)();
  }
}

bool IngestThread::TurnSources() {
  const TurnLimits limits{options_.messages_per_turn, options_.turn_max, &called_};
  bool more = false;
  auto next = sources_.upper_bound(last_turn_);
  for (std::size_t left = sources_.size(); left > 0; --left, ++next) {
    if (next == sources_.end()) next = sources_.begin();
    last_turn_ = next->first;
    // Before the turn, so that a state which it changes has its reason.
    PassNoteOn(*next->second);
    more |= next->second->Turn(limits);
    // After a turn: however often somebody calls, the sources get on.
    if (called_.load(std::memory_order_relaxed)) return true;
  }
  return more;
}

void IngestThread::Drain() {
  const Nanos end = clock_.Now() + options_.drain_max;
  for (bool more = true; more;) {
    more = false;
    for (const auto& [rank, source] : sources_) {
      const Nanos left = end - clock_.Now();
      if (left <= Nanos{0}) return;
      more |= source->Turn({options_.messages_per_turn, std::min<Nanos>(options_.turn_max, left)});
    }
  }
}

void IngestThread::PassNoteOn(const Source& source) {
  const std::string& endpoint = source.spec().source.endpoint;
  if (!net::IsPolled(endpoint)) return;
  const std::string note = poller_->NoteOf(endpoint);
  for (const Rank rank : source.ranks()) {
    if (const auto target = targets_.find(rank); target != targets_.end()) {
      target->second.health->SetFeedNote(note);
    }
  }
}

Nanos IngestThread::TimeToNextDeadline() const {
  Nanos wait = kWaitMax;
  const Nanos now = clock_.Now();
  for (const auto& source : sources_) {
    if (const auto due = source.second->deadline()) wait = std::min(wait, *due - now);
  }
  return std::max(wait, Nanos{0});
}

Result<void> IngestThread::AddHere(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                                   std::shared_ptr<fleet::RankHealth> health) {
  const Rank rank = spec.rank;
  if (SourceOf(rank) != sources_.end()) return HasSource(rank);
  std::vector<std::pair<Rank, std::shared_ptr<fleet::RankHealth>>> wanted{{rank, health}};
  for (const SourceSpec::Sharer& sharer : spec.sharers)
    wanted.emplace_back(Rank{rank.worker, sharer.dp_rank}, sharer.health);
  Result<void> added;
  for (const auto& [each, its_health] : wanted) {
    if (targets_.contains(each)) continue;
    const auto slot = index->index->AddRank(each);
    if (!slot) {
      added = tl::make_unexpected(slot.error());
      break;
    }
    targets_.emplace(each, Target{index, *slot, its_health});
  }
  if (added) {
    auto source = Source::Open(std::move(spec), std::move(health), options_, *poller_, targets_,
                               metrics_, clock_);
    if (source) {
      sources_.emplace(rank, std::move(*source));
      source_count_.fetch_add(1, std::memory_order_relaxed);
    } else {
      added = tl::make_unexpected(std::move(source).error());
    }
  }
  if (!added) DropOrphanTargets(rank.worker);
  PublishTargets();
  return added;
}

Result<void> IngestThread::JoinHere(Rank of, SourceSpec::Sharer sharer,
                                    std::optional<std::uint64_t> known_to) {
  const auto source = SourceOf(of);
  if (source == sources_.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("instance {} dp_rank {} has no event source",
                                                  Raw(of.worker), of.dp_rank));
  }
  const Rank rank{of.worker, sharer.dp_rank};
  if (SourceOf(rank) != sources_.end()) return HasSource(rank);
  const std::shared_ptr<index::PartitionIndex> index = targets_.at(of).index;
  const bool adopted = known_to && source->second->GoesOnFrom(rank, *known_to);
  if (known_to && !adopted) {
    index->index->RemoveRank(rank);
    index->hybrid->Drop(rank);
  }
  KVR_TRY(const RankSlot slot, index->index->AddRank(rank));
  targets_.insert_or_assign(rank, Target{index, slot, sharer.health});
  auto joined = source->second->Join(rank, std::move(sharer.health), adopted);
  if (!joined) DropOrphanTargets(rank.worker);
  PublishTargets();
  return joined;
}

IngestThread::Sources::iterator IngestThread::SourceOf(Rank rank) {
  auto source = sources_.lower_bound(Rank{rank.worker, 0});
  for (; source != sources_.end() && source->first.worker == rank.worker; ++source) {
    const std::vector<Rank> ranks = source->second->ranks();
    if (std::ranges::find(ranks, rank) != ranks.end()) return source;
  }
  return sources_.end();
}

bool IngestThread::RemoveHere(Rank rank) {
  const auto source = SourceOf(rank);
  if (source == sources_.end()) return false;
  if (source->second->ranks().size() > 1) {
    auto node = sources_.extract(source);
    node.mapped()->Leave(rank);
    node.key() = node.mapped()->ranks().front();
    sources_.insert(std::move(node));
  } else {
    sources_.erase(source);
    source_count_.fetch_sub(1, std::memory_order_relaxed);
  }
  DropOrphanTargets(rank.worker);
  PublishTargets();
  return true;
}

void IngestThread::DropOrphanTargets(WorkerId worker) {
  std::set<Rank> named;
  for (auto source = sources_.lower_bound(Rank{worker, 0});
       source != sources_.end() && source->first.worker == worker; ++source) {
    const std::vector<Rank> ranks = source->second->ranks();
    named.insert(ranks.begin(), ranks.end());
  }
  for (auto target = targets_.lower_bound(Rank{worker, 0});
       target != targets_.end() && target->first.worker == worker;) {
    if (named.contains(target->first)) {
      ++target;
      continue;
    }
    target->second.index->index->RemoveRank(target->first);
    target->second.index->hybrid->Drop(target->first);
    target = targets_.erase(target);
  }
}

void IngestThread::PublishTargets() {
  std::vector<std::pair<Rank, Target>> all(targets_.begin(), targets_.end());
  const Lock lock(targets_mutex_);
  published_ = std::move(all);
}

std::vector<std::pair<Rank, Target>> IngestThread::targets() const {
  const Lock lock(targets_mutex_);
  return published_;
}

}  // namespace kvr::ingest
