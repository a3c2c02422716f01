// An engine without a GPU: requests in, tokens and cache events out, in real time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_publisher.h"
#include "net/io_runtime.h"
#include "sim/engine_core.h"
#include "sim/engine_timeline.h"
#include "sim/event_feed.h"

namespace kvr::sim {

class MockEngine;

// One request under way. It belongs to the handler that answers it; destroying it before it has
// finished aborts the request. Must not outlive its engine.
class Generation {
 public:
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Waits until there is something new, or the engine was restarted (lost).
  net::Task<void> Changed();
  // The tokens since the last call.
  [[nodiscard]] std::vector<TokenId> TakeTokens();
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] bool lost() const { return lost_; }

  [[nodiscard]] std::uint32_t prompt_tokens() const { return prompt_tokens_; }
  // Of the prompt, found in the cache at the first admission; 0 before it.
  [[nodiscard]] std::uint32_t cached_tokens() const { return cached_tokens_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }

 private:
  friend class MockEngine;
  Generation(MockEngine& engine, RequestId id, std::uint32_t rank, std::uint32_t prompt_tokens)
      : engine_(engine), id_(id), rank_(rank), prompt_tokens_(prompt_tokens) {}

  MockEngine& engine_;
  const RequestId id_;
  const std::uint32_t rank_;
  const std::uint32_t prompt_tokens_;
  std::uint32_t cached_tokens_ = 0;
  std::vector<TokenId> tokens_;
  bool finished_ = false;
  bool lost_ = false;
  bool changed_ = false;  // since the last wait
  net::Signal signal_;
};

// Ranks on the clock, with a feed each. Everything but Create and Stop runs on the one I/O thread
// of its runtime, so nothing is locked.
//
// Time does not drift: passes follow each other on the engine's own time line, and a wake-up that
// comes late delays what is seen, not what happens next. Whatever came up in the passes since the
// last wake-up is handed over together.
class MockEngine {
 public:
  struct Options {
    EngineCore::Options core;  // of each rank; the hash seed is derived from `seed`
    std::uint32_t ranks = 1;
    bool ranks_in_step = true;  // see EngineTimeline
    // Shortest time between two wake-ups. Passes are shorter than that once they are sped up a lot,
    // and a write for each token and pass would cost more than the whole engine.
    Nanos tick{std::chrono::milliseconds(1)};
    std::uint64_t seed = 1;

    std::string dialect = "vllm-0.24";
    std::string address = "127.0.0.1";
    // The first rank's; the others follow, one port each. 0: free ones.
    std::uint16_t events_port = 0;
    std::uint16_t replay_port = 0;
    bool replay = true;
    std::optional<net::ReplayLayout> replay_layout{};  // none: as the dialect's release has it
    std::string topic{};
    std::size_t replay_messages_max = 10'000;
  };

  struct RankStatus {
    EngineCore::Stats stats;
    std::uint32_t active_blocks = 0;
    std::uint32_t blocks_max = 0;
    std::uint64_t messages = 0;
  };

  // `runtime` must have one thread and outlive the engine. kInvalidArgument, kIo.
  static Result<std::unique_ptr<MockEngine>> Create(net::IoRuntime& runtime,
                                                    const Options& options);
  // Stop must have returned, or the runtime have ended.
  ~MockEngine();
  MockEngine(const MockEngine&) = delete;
  MockEngine& operator=(const MockEngine&) = delete;

  // Ends the clock; requests under way get no more tokens. Blocks; not from the I/O thread.
  void Stop();

  // Thread-safe.
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const std::vector<std::string>& event_endpoints() const { return event_endpoints_; }
  [[nodiscard]] const std::vector<std::string>& replay_endpoints() const {
    return replay_endpoints_;
  }
  [[nodiscard]] std::uint32_t context_tokens_max() const { return context_tokens_max_; }

  // Without `rank` the least busy one takes it. Errors as EngineCore::Submit has them.
  Result<std::unique_ptr<Generation>> Submit(std::vector<TokenId> prompt, std::uint32_t max_tokens,
                                             std::optional<std::uint32_t> rank);

  // Empties the caches of all ranks that are idle; false when one was not and stays as it is.
  bool ResetCache();
  // As a new process: empty caches, other hashes, event streams from 0, or with `keep_numbers` from
  // where they were. All requests are lost.
  // kIo: an endpoint could not be bound again; ranks from there on are then silent.
  Result<void> Restart(bool keep_numbers);

  [[nodiscard]] std::uint32_t ranks() const { return options_.ranks; }
  [[nodiscard]] RankStatus status(std::uint32_t rank) const;
  [[nodiscard]] const KvPool& pool(std::uint32_t rank) const { return cores_[rank]->pool(); }
  [[nodiscard]] EventFeed& feed(std::uint32_t rank) { return feeds_[rank]; }
  // Whether readers ask for the events, which DrainEvents then answers with a JSON list of all
  // ranks.
  [[nodiscard]] bool pulled() const { return !feeds_.empty() && feeds_[0].pulled(); }
  [[nodiscard]] std::string DrainEvents();
  // The clock looks again at once; call it after a feed was told to delay.
  void Wake() { wake_.Notify(); }

 private:
  friend class Generation;
  MockEngine(net::IoRuntime& runtime, const Options& options);

  Result<void> BindFeeds();
  void BuildCores();
  net::Task<void> Run();
  void Advance();
  void OnPassEnd(std::uint32_t rank, PassResult& result);
  void Touch(Generation& generation);
  void NotifyTouched();
  void Forget(Generation& generation);
  [[nodiscard]] std::optional<Nanos> NextDue() const;
  [[nodiscard]] std::uint32_t LeastBusy() const;

  net::IoRuntime& runtime_;
  const Options options_;
  const SystemClock clock_;
  std::uint32_t context_tokens_max_ = 0;
  std::vector<std::string> event_endpoints_;
  std::vector<std::string> replay_endpoints_;

  std::vector<EventFeed> feeds_;
  std::vector<std::unique_ptr<EngineCore>> cores_;
  std::vector<EngineTimeline> timelines_;
  std::uint64_t restarts_ = 0;
  std::uint64_t next_id_ = 1;
  std::unordered_map<RequestId, Generation*> generations_;
  std::vector<RequestId> touched_;
  net::Signal wake_;
  net::Signal ended_;
  bool stopping_ = false;
  bool running_ = false;
};

}  // namespace kvr::sim
