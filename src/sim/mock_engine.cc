#include "sim/mock_engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"

namespace kvr::sim {

Generation::~Generation() {
  engine_.Forget(*this);
}

net::Task<void> Generation::Changed() {
  while (!std::exchange(changed_, false)) {
    co_await signal_.Wait();
  }
}

std::vector<TokenId> Generation::TakeTokens() {
  return std::exchange(tokens_, {});
}

Result<std::unique_ptr<MockEngine>> MockEngine::Create(net::IoRuntime& runtime,
                                                       const Options& options) {
  KVR_CHECK(runtime.threads() == 1);
  KVR_TRY_VOID(options.core.Validate());
  if (options.ranks == 0) {
    return Fail(ErrorCode::kInvalidArgument, "mock engine: at least 1 rank is needed");
  }
  std::unique_ptr<MockEngine> engine(new MockEngine(runtime, options));
  KVR_TRY_VOID(engine->BindFeeds());
  engine->BuildCores();
  engine->running_ = true;
  runtime.SpawnOn(0, [self = engine.get()]() -> net::Task<void> { return self->Run(); });
  return engine;
}

MockEngine::MockEngine(net::IoRuntime& runtime, const Options& options)
    : runtime_(runtime), options_(options) {}

MockEngine::~MockEngine() = default;

void MockEngine::Stop() {
  runtime_.RunBlocking([this]() -> net::Task<void> {
    stopping_ = true;
    wake_.Notify();
    while (running_) {
      co_await ended_.Wait();
    }
  });
}

Result<void> MockEngine::BindFeeds() {
  EventFeed::Options feed;
  KVR_TRY(feed.dialect, FeedDialectByName(options_.dialect));
  if (options_.core.pool.host_blocks_max > 0 && feed.dialect.host_medium.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("dialect {} cannot tell a host tier from the device; choose a later one",
                    options_.dialect));
  }
  const std::uint32_t ports =
      std::max(options_.events_port, options_.replay_port) + (options_.ranks - 1);
  if (ports > 65'535) {
    return Fail(ErrorCode::kInvalidArgument, "mock engine: ports of the last rank exceed 65535");
  }
  const auto endpoint = [&](std::uint16_t port, std::uint32_t rank) {
    return port == 0 ? fmt::format("tcp://{}:*", options_.address)
                     : fmt::format("tcp://{}:{}", options_.address, port + rank);
  };
  feed.block_size = options_.core.pool.block_size;
  feed.blocks = options_.core.pool.blocks_max;
  feed.publisher.topic = options_.topic;
  feed.publisher.replay_messages_max = options_.replay_messages_max;
  feed.publisher.layout = options_.replay_layout.value_or(feed.dialect.layout);
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    feed.dp_rank = rank;
    feed.publisher.endpoint = endpoint(options_.events_port, rank);
    feed.publisher.replay_endpoint.reset();
    if (options_.replay) feed.publisher.replay_endpoint = endpoint(options_.replay_port, rank);
    KVR_TRY(EventFeed bound, EventFeed::Create(feed));
    event_endpoints_.push_back(bound.endpoint());
    replay_endpoints_.push_back(bound.replay_endpoint());
    feeds_.push_back(std::move(bound));
  }
  return {};
}

void MockEngine::BuildCores() {
  Rng seeds(options_.seed + 0x9E3779B97F4A7C15u * restarts_);
  timelines_.clear();
  cores_.clear();
  std::vector<EngineCore*> all;
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    EngineCore::Options core = options_.core;
    core.hash_seed = seeds();
    cores_.push_back(std::make_unique<EngineCore>(core));
    all.push_back(cores_.back().get());
  }
  context_tokens_max_ = cores_[0]->context_tokens_max();
  if (options_.ranks_in_step) {
    timelines_.emplace_back(all, [this](std::size_t rank, Nanos, PassResult& result) {
      OnPassEnd(static_cast<std::uint32_t>(rank), result);
    });
    return;
  }
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    timelines_.emplace_back(
        std::vector<EngineCore*>{all[rank]},
        [this, rank](std::size_t, Nanos, PassResult& result) { OnPassEnd(rank, result); });
  }
}

net::Task<void> MockEngine::Run() {
  Nanos last = clock_.Now();
  while (!stopping_) {
    const auto due = NextDue();
    if (!due) {
      co_await wake_.Wait();
      continue;
    }
    const Nanos at = std::max(*due, last + options_.tick);
    const Nanos now = clock_.Now();
    if (at > now) {
      co_await wake_.WaitFor(at - now);
      continue;
    }
    last = now;
    Advance();
    NotifyTouched();
  }
  running_ = false;
  ended_.Notify();
}

std::optional<Nanos> MockEngine::NextDue() const {
  std::optional<Nanos> next;
  const auto consider = [&](std::optional<Nanos> due) {
    if (due && (!next || *due < *next)) next = due;
  };
  for (const EngineTimeline& timeline : timelines_)
    consider(timeline.next());
  for (const EventFeed& feed : feeds_)
    consider(feed.next_due());
  // Passes that ended in Submit: their tokens wait for the next wake-up.
  if (!touched_.empty()) consider(Nanos{0});
  return next;
}

void MockEngine::Advance() {
  const Nanos now = clock_.Now();
  for (EngineTimeline& timeline : timelines_)
    timeline.Advance(now);
  for (EventFeed& feed : feeds_)
    feed.SendDue(now);
}

void MockEngine::OnPassEnd(std::uint32_t rank, PassResult& result) {
  // Events first: who has seen a token may rely on the blocks under it being announced.
  feeds_[rank].Publish(result.events, clock_.Now(), clock_.WallTime());
  for (const auto& admission : result.admitted) {
    const auto entry = generations_.find(admission.id);
    if (entry != generations_.end() && !admission.again) {
      entry->second->cached_tokens_ = admission.cached_tokens;
    }
  }
  for (const auto& output : result.outputs) {
    const auto entry = generations_.find(output.id);
    if (entry == generations_.end()) continue;
    Generation& generation = *entry->second;
    if (output.token) generation.tokens_.push_back(*output.token);
    generation.finished_ = output.finished;
    Touch(generation);
  }
}

void MockEngine::Touch(Generation& generation) {
  if (!std::exchange(generation.changed_, true)) touched_.push_back(generation.id_);
}

void MockEngine::NotifyTouched() {
  for (const RequestId id : std::exchange(touched_, {})) {
    const auto entry = generations_.find(id);
    if (entry != generations_.end()) entry->second->signal_.Notify();
  }
}

void MockEngine::Forget(Generation& generation) {
  generations_.erase(generation.id_);
  if (!generation.finished_ && !generation.lost_) cores_[generation.rank_]->Abort(generation.id_);
}

Result<std::unique_ptr<Generation>> MockEngine::Submit(std::vector<TokenId> prompt,
                                                       std::uint32_t max_tokens,
                                                       std::optional<std::uint32_t> rank) {
  // Passes that started before this moment start without the request.
  Advance();
  const std::uint32_t chosen = rank.value_or(LeastBusy());
  KVR_CHECK(chosen < options_.ranks);
  const RequestId id{next_id_++};
  const auto prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  EngineRequest request{.id = id, .prompt = std::move(prompt), .max_tokens = max_tokens};
  KVR_TRY_VOID(cores_[chosen]->Submit(std::move(request)));
  std::unique_ptr<Generation> generation(new Generation(*this, id, chosen, prompt_tokens));
  generations_.emplace(id, generation.get());
  Advance();
  wake_.Notify();
  return generation;
}

std::uint32_t MockEngine::LeastBusy() const {
  std::uint32_t best = 0;
  std::uint32_t least = ~std::uint32_t{0};
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    const EngineCore::Stats stats = cores_[rank]->stats();
    if (stats.running + stats.waiting >= least) continue;
    least = stats.running + stats.waiting;
    best = rank;
  }
  return best;
}

std::string MockEngine::DrainEvents() {
  std::string list = "[";
  for (EventFeed& feed : feeds_) {
    const std::string events = feed.Drain();
    if (!events.empty() && list.size() > 1) list += ',';
    list += events;
  }
  return list + "]";
}

bool MockEngine::ResetCache() {
  Advance();
  bool all = true;
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    // A pass under way may have released everything already, but its events are still to come.
    const bool busy = timelines_[options_.ranks_in_step ? 0 : rank].next().has_value();
    if (busy || !cores_[rank]->ResetCache()) {
      all = false;
      continue;
    }
    feeds_[rank].Publish(cores_[rank]->TakeEvents(), clock_.Now(), clock_.WallTime());
  }
  Wake();
  return all;
}

Result<void> MockEngine::Restart(bool keep_numbers) {
  for (auto& [id, generation] : generations_) {
    generation->lost_ = true;
    Touch(*generation);
  }
  ++restarts_;
  BuildCores();
  NotifyTouched();
  for (EventFeed& feed : feeds_)
    KVR_TRY_VOID(feed.Restart(keep_numbers));
  Wake();
  return {};
}

MockEngine::RankStatus MockEngine::status(std::uint32_t rank) const {
  const EngineCore& core = *cores_[rank];
  return {.stats = core.stats(),
          .active_blocks = core.pool().active(),
          .blocks_max = core.options().pool.blocks_max,
          .messages = feeds_[rank].published()};
}

}  // namespace kvr::sim
