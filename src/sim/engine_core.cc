#include "sim/engine_core.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace kvr::sim {
namespace {

std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t HashTokens(std::uint64_t state, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens)
    state = Mix(state + 0x9E3779B97F4A7C15u + token);
  return state;
}

std::uint32_t ContextMax(const EngineCore::Options& options) {
  // The last token that is sampled needs no block.
  std::uint64_t tokens = std::uint64_t{options.pool.blocks_max} * options.pool.block_size + 1;
  if (options.context_tokens_max > 0) {
    tokens = std::min<std::uint64_t>(tokens, options.context_tokens_max);
  }
  // Without chunks a pre-empted request is computed again in one pass, output and all.
  if (!options.chunked_prefill) {
    tokens = std::min<std::uint64_t>(tokens, options.pass_tokens_max);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, ~std::uint32_t{0}));
}

}  // namespace

struct EngineCore::Sequence {
  RequestId id{};
  std::uint32_t prompt = 0;
  std::uint32_t max_tokens = 0;
  std::uint64_t content = 0;      // of the prompt, the same in every engine
  std::vector<TokenId> tokens;    // prompt and what was generated
  std::vector<EngineHash> chain;  // of the complete blocks of `tokens`
  std::vector<KvPool::Block> blocks;
  std::uint32_t computed = 0;   // leading tokens whose KV is there
  std::uint32_t committed = 0;  // leading blocks that are cached
  bool admitted_before = false;

  [[nodiscard]] std::uint32_t known() const { return static_cast<std::uint32_t>(tokens.size()); }
  [[nodiscard]] std::uint32_t generated() const { return known() - prompt; }
};

Result<void> EngineCore::Options::Validate() const {
  const auto bad = [](std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("mock engine: {}", what));
  };
  if (pool.block_size == 0) return bad("block size must be at least 1");
  if (pool.blocks_max == 0) return bad("the pool must have at least 1 block");
  if (requests_max == 0) return bad("at least 1 request must be able to run");
  if (waiting_max == 0) return bad("at least 1 request must be able to wait");
  if (pass_tokens_max == 0) return bad("a pass must have room for at least 1 token");
  if (vocabulary == 0) return bad("the vocabulary must not be empty");
  return time.Validate();
}

EngineCore::EngineCore(const Options& options)
    : options_(options), context_max_(ContextMax(options)), pool_(options.pool) {
  KVR_CHECK(options.Validate().has_value());
}

EngineCore::~EngineCore() = default;

Result<void> EngineCore::Submit(EngineRequest request) {
  if (request.prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  // Room for one output token is part of what a request needs, also when it asks for none.
  if (request.prompt.size() >= context_max_) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the prompt has {} tokens; at most {} tokens of prompt and output fit",
                            request.prompt.size(), context_max_));
  }
  if (waiting_.size() >= options_.waiting_max) {
    return Fail(ErrorCode::kOverloaded, fmt::format("{} requests are waiting", waiting_.size()));
  }
  if (sequences_.contains(request.id)) {
    return Fail(ErrorCode::kAlreadyExists, fmt::format("request {} exists", Raw(request.id)));
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id;
  sequence->prompt = static_cast<std::uint32_t>(request.prompt.size());
  sequence->max_tokens = std::min(request.max_tokens, context_max_ - sequence->prompt);
  sequence->content = HashTokens(0, request.prompt);
  sequence->tokens = std::move(request.prompt);
  ExtendChain(*sequence);
  waiting_.push_back(sequence.get());
  sequences_.emplace(request.id, std::move(sequence));
  return {};
}

bool EngineCore::Abort(RequestId id) {
  const auto entry = sequences_.find(id);
  if (entry == sequences_.end()) return false;
  Sequence* const sequence = entry->second.get();
  pool_.Release(sequence->blocks);
  std::erase(running_, sequence);
  std::erase(waiting_, sequence);
  sequences_.erase(entry);
  return true;
}

void EngineCore::Pass(PassResult& result) {
  result = PassResult{};
  plan_.clear();
  budget_ = options_.pass_tokens_max;
  const bool preempted = ScheduleRunning();
  // Nothing is looked up while the running requests are scheduled, so that committing them
  // afterwards, in the same order, differs in nothing but work that a pre-emption undid.
  for (const Scheduled& scheduled : plan_)
    CommitComputed(*scheduled.sequence);
  if (!preempted) AdmitWaiting(result);

  PassLoad load = PrefillLoad();
  Emit(result, load);
  result.duration = options_.time.PassTime(
      load, std::uint64_t{options_.pool.blocks_max} * options_.pool.block_size);
  result.events = pool_.TakeEvents();
  if (!plan_.empty()) ++stats_.passes;
  stats_.busy += result.duration;
}

bool EngineCore::ScheduleRunning() {
  const std::uint64_t preemptions = stats_.preemptions;
  std::size_t i = 0;
  while (i < running_.size() && budget_ > 0) {
    Sequence& sequence = *running_[i];
    const std::uint32_t tokens = std::min(sequence.known() - sequence.computed, budget_);
    if (MakeRoom(sequence, sequence.computed + tokens)) {
      plan_.push_back({.sequence = &sequence, .before = sequence.computed, .tokens = tokens});
      sequence.computed += tokens;
      budget_ -= tokens;
      // Pre-emption may have moved it forward.
      i = static_cast<std::size_t>(std::find(running_.begin(), running_.end(), &sequence) -
                                   running_.begin()) +
          1;
    } else {
      // It had to go itself: as the last of the list, or as the first with all before it gone.
      i = options_.preemption == Preemption::kLastAdmitted ? running_.size() : 0;
    }
  }
  return stats_.preemptions != preemptions;
}

bool EngineCore::MakeRoom(Sequence& sequence, std::uint32_t computed) {
  while (true) {
    const std::uint32_t wanted = BlocksFor(computed);
    const auto held = static_cast<std::uint32_t>(sequence.blocks.size());
    if (pool_.Reserve({}, wanted - held, sequence.blocks)) return true;
    Sequence* const victim =
        options_.preemption == Preemption::kLastAdmitted ? running_.back() : running_.front();
    Preempt(*victim);
    if (victim == &sequence) return false;
  }
}

void EngineCore::Preempt(Sequence& sequence) {
  const auto planned = std::find_if(plan_.begin(), plan_.end(), [&](const Scheduled& scheduled) {
    return scheduled.sequence == &sequence;
  });
  if (planned != plan_.end()) {
    budget_ += planned->tokens;
    plan_.erase(planned);
  }
  pool_.Release(sequence.blocks);
  sequence.computed = 0;
  sequence.committed = 0;
  std::erase(running_, &sequence);
  waiting_.push_front(&sequence);
  ++stats_.preemptions;
}

void EngineCore::AdmitWaiting(PassResult& result) {
  while (!waiting_.empty() && running_.size() < options_.requests_max && budget_ > 0) {
    Sequence& sequence = *waiting_.front();
    if (!TryAdmit(sequence, result)) return;
    waiting_.pop_front();
    running_.push_back(&sequence);
  }
}

bool EngineCore::TryAdmit(Sequence& sequence, PassResult& result) {
  const std::uint32_t block_size = options_.pool.block_size;
  const std::span<const EngineHash> chain(sequence.chain);
  // The last token is always computed: its output is what is wanted.
  const KvPool::Hit hit = pool_.Find(chain.first((sequence.known() - 1) / block_size));
  // Room for all of it, though a chunk takes less now. Idle hits count as well: holding them again
  // uses up what could have been evicted.
  const std::uint32_t wanted = BlocksFor(sequence.known()) - hit.device_active;
  if (wanted > options_.pool.blocks_max - pool_.active()) return false;
  const std::uint32_t cached = (hit.device + hit.host) * block_size;
  const std::uint32_t tokens = std::min(sequence.known() - cached, budget_);
  if (!options_.chunked_prefill && tokens < sequence.known() - cached) return false;

  const bool fits = pool_.Reserve(chain.first(hit.device), BlocksFor(cached + tokens) - hit.device,
                                  sequence.blocks);
  KVR_CHECK(fits);
  sequence.committed = hit.device;
  CommitUpTo(sequence, hit.device + hit.host);
  plan_.push_back(
      {.sequence = &sequence, .before = cached, .tokens = tokens, .loaded = hit.host * block_size});
  sequence.computed = cached + tokens;
  budget_ -= tokens;
  CommitComputed(sequence);

  result.admitted.push_back(
      {.id = sequence.id, .cached_tokens = cached, .again = sequence.admitted_before});
  if (!sequence.admitted_before) {
    stats_.prompt_tokens += sequence.prompt;
    stats_.cached_tokens += cached;
  }
  sequence.admitted_before = true;
  return true;
}

void EngineCore::CommitComputed(Sequence& sequence) {
  CommitUpTo(sequence, sequence.computed / options_.pool.block_size);
}

void EngineCore::CommitUpTo(Sequence& sequence, std::uint32_t blocks) {
  const std::size_t block_size = options_.pool.block_size;
  for (; sequence.committed < blocks; ++sequence.committed) {
    const std::size_t i = sequence.committed;
    const std::optional<EngineHash> parent =
        i == 0 ? std::nullopt : std::optional(sequence.chain[i - 1]);
    pool_.Commit(sequence.blocks[i], parent, sequence.chain[i],
                 std::span(sequence.tokens).subspan(i * block_size, block_size));
  }
}

PassLoad EngineCore::PrefillLoad() {
  PassLoad load;
  for (const Scheduled& scheduled : plan_) {
    load.host_tokens += scheduled.loaded;
    const Sequence& sequence = *scheduled.sequence;
    // Decoding: the one token that the last pass sampled.
    if (sequence.generated() > 0 && sequence.known() - scheduled.before == 1) continue;
    ++load.prefills;
    load.prefill_context += scheduled.before + scheduled.tokens;
    load.prefill_prefix += scheduled.before;
    stats_.prefilled_tokens += scheduled.tokens;
  }
  return load;
}

void EngineCore::Emit(PassResult& result, PassLoad& load) {
  std::vector<Sequence*> still_running;
  still_running.reserve(running_.size());
  std::vector<Sequence*> done;
  for (Sequence* const sequence : running_) {
    if (sequence->computed < sequence->known()) {
      still_running.push_back(sequence);
      continue;
    }
    PassResult::Output output{.id = sequence->id};
    if (sequence->max_tokens > 0) {
      ++load.decodes;
      load.decode_context += sequence->known();
      output.token = static_cast<TokenId>(Mix(sequence->content + sequence->generated()) %
                                          options_.vocabulary);
      AddToken(*sequence, *output.token);
    }
    output.finished = sequence->generated() == sequence->max_tokens;
    result.outputs.push_back(output);
    (output.finished ? done : still_running).push_back(sequence);
  }
  running_ = std::move(still_running);
  for (Sequence* const sequence : done) {
    pool_.Release(sequence->blocks);
    sequences_.erase(sequence->id);
    ++stats_.finished;
  }
}

void EngineCore::AddToken(Sequence& sequence, TokenId token) {
  sequence.tokens.push_back(token);
  ++stats_.generated_tokens;
  ExtendChain(sequence);
}

void EngineCore::ExtendChain(Sequence& sequence) {
  const std::size_t block_size = options_.pool.block_size;
  while ((sequence.chain.size() + 1) * block_size <= sequence.tokens.size()) {
    const std::size_t i = sequence.chain.size();
    const std::uint64_t parent = i == 0 ? Mix(options_.hash_seed) : Raw(sequence.chain[i - 1]);
    sequence.chain.push_back(EngineHash{
        HashTokens(parent, std::span(sequence.tokens).subspan(i * block_size, block_size))});
  }
}

EngineCore::Stats EngineCore::stats() const {
  Stats stats = stats_;
  stats.running = static_cast<std::uint32_t>(running_.size());
  stats.waiting = static_cast<std::uint32_t>(waiting_.size());
  return stats;
}

std::uint32_t EngineCore::BlocksFor(std::uint32_t tokens) const {
  const std::uint32_t block_size = options_.pool.block_size;
  return tokens / block_size + (tokens % block_size != 0 ? 1 : 0);
}

}  // namespace kvr::sim
