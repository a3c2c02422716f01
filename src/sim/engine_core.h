// The scheduler of one engine rank without clock, network or threads: requests in, passes out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/ids.h"
#include "sim/kv_event.h"
#include "sim/kv_pool.h"
#include "sim/time_model.h"

namespace kvr::sim {

enum class RequestId : std::uint64_t {};

struct EngineRequest {
  RequestId id{};
  std::vector<TokenId> prompt;
  std::uint32_t max_tokens = 0;  // exactly so many are generated, as far as pool and model allow
};

// Everything one pass did. Admissions are true from its start; tokens and events only from its end.
struct PassResult {
  struct Admission {
    RequestId id{};
    std::uint32_t cached_tokens = 0;  // found in the cache, both tiers
    bool again = false;               // was pre-empted before; `cached_tokens` is then of this time
  };
  struct Output {
    RequestId id{};
    std::optional<TokenId> token{};  // none: done after prefill because nothing was asked for
    bool finished = false;
  };

  Nanos duration{};
  std::vector<Admission> admitted;
  std::vector<Output> outputs;  // in order of admission
  std::vector<KvEvent> events;
};

// Schedules as vLLM does: running requests first, in order of admission, then waiting ones, first
// come first served without skipping, until the token budget of the pass is used up. A running
// request that finds no room evicts others (pre-emption): they lose their blocks, keep their tokens
// and wait at the front. Blocks become findable as soon as they are scheduled to be complete, so
// that a later request of the same pass hits them.
//
// Same requests in the same order, same options: same results. Not thread-safe.
class EngineCore {
 public:
  enum class Preemption { kLastAdmitted, kFirstAdmitted };

  struct Options {
    KvPool::Options pool;
    TimeModel time;
    std::uint32_t requests_max = 256;       // running at once
    std::uint32_t waiting_max = 10'000;     // beyond it Submit refuses
    std::uint32_t pass_tokens_max = 8'192;  // scheduled in one pass
    std::uint32_t context_tokens_max = 0;   // prompt and output of one request; 0: as the pool has
    bool chunked_prefill = true;            // off: a prompt is scheduled in one pass or not at all
    Preemption preemption = Preemption::kLastAdmitted;
    std::uint32_t vocabulary = 128'000;  // generated token ids are below
    std::uint64_t hash_seed = 0;  // engines with different seeds name equal blocks differently

    // kInvalidArgument names the option.
    [[nodiscard]] Result<void> Validate() const;
  };

  // Counts since construction, and gauges.
  struct Stats {
    std::uint32_t running = 0;
    std::uint32_t waiting = 0;
    std::uint64_t passes = 0;
    std::uint64_t prompt_tokens = 0;  // of admitted requests, counted at the first admission
    std::uint64_t cached_tokens = 0;  // of them: found in the cache
    std::uint64_t prefilled_tokens =
        0;  // computed; more than the rest when requests were pre-empted
    std::uint64_t generated_tokens = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t finished = 0;
    Nanos busy{};  // sum of pass durations
  };

  // `options` must be valid.
  explicit EngineCore(const Options& options);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Queues a request; the next pass may admit it. Output that pool or context cannot hold is cut
  // off beforehand. kInvalidArgument: an empty prompt, or one that could never run. kAlreadyExists:
  // the id is in use. kOverloaded: waiting_max.
  Result<void> Submit(EngineRequest request);

  // Drops a request wherever it is; its complete blocks stay cached. False when it is not there.
  bool Abort(RequestId id);

  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }

  // One pass. `result` is overwritten. With nothing to do its duration is zero.
  void Pass(PassResult& result);

  // See KvPool::Clear. The event comes with the next pass or TakeEvents.
  bool ResetCache() { return pool_.Clear(); }
  [[nodiscard]] std::vector<KvEvent> TakeEvents() { return pool_.TakeEvents(); }

  [[nodiscard]] Stats stats() const;
  [[nodiscard]] const KvPool& pool() const { return pool_; }
  [[nodiscard]] const Options& options() const { return options_; }
  // Prompt and output together of the largest request that can run.
  [[nodiscard]] std::uint32_t context_tokens_max() const { return context_max_; }

 private:
  struct Sequence;
  struct Scheduled {
    Sequence* sequence;
    std::uint32_t before;  // computed or cached before this pass
    std::uint32_t tokens;
    std::uint32_t loaded = 0;  // tokens that came back from the host tier
  };

  bool ScheduleRunning();  // true: something was pre-empted
  void AdmitWaiting(PassResult& result);
  bool TryAdmit(Sequence& sequence, PassResult& result);
  bool MakeRoom(Sequence& sequence, std::uint32_t computed);
  void Preempt(Sequence& sequence);
  void CommitComputed(Sequence& sequence);
  void CommitUpTo(Sequence& sequence, std::uint32_t blocks);
  void Emit(PassResult& result, PassLoad& load);
  void AddToken(Sequence& sequence, TokenId token);
  void ExtendChain(Sequence& sequence);
  [[nodiscard]] PassLoad PrefillLoad();
  [[nodiscard]] std::uint32_t BlocksFor(std::uint32_t tokens) const;

  const Options options_;
  const std::uint32_t context_max_;
  KvPool pool_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in order of admission

  // Of the pass under way.
  std::vector<Scheduled> plan_;
  std::uint32_t budget_ = 0;
  Stats stats_;
};

}  // namespace kvr::sim
