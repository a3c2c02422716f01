#include "bench/op_generator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"
#include "hashing/block_hash.h"
#include "sim/kv_pool.h"

namespace kvr::bench {
namespace {

constexpr double kNanosPerMs = 1e6;
constexpr std::uint64_t kDecoded = std::uint64_t{1} << 63;  // marks blocks no prompt has

// One to one, so that different blocks have different hashes.
std::uint64_t Mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
std::uint64_t BlockHashOf(std::uint64_t block) {
  return Mixed(block + 0x9E3779B97F4A7C15u);
}
// What engines call the blocks of a chain: its sequence hashes, because one of the peer's indexes
// finds no block that goes by another name.
class ChainNames {
 public:
  std::uint64_t Next(std::uint64_t local) {
    name_ = first_ ? hashing::FirstSequenceHash(BlockHash{local})
                   : hashing::NextSequenceHash(name_, BlockHash{local});
    first_ = false;
    return Raw(name_);
  }

 private:
  SequenceHash name_{};
  bool first_ = true;
};

// One session of the expanded trace.
struct Session {
  std::uint64_t time_ns = 0;
  std::uint64_t number = 0;
  std::uint32_t prompt_blocks = 0;
  std::vector<std::uint64_t> locals;  // of the prompt, then of what decoding fills
  std::vector<EngineHash> names;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;

  // When so many tokens are decoded, after the prefill.
  [[nodiscard]] std::uint64_t DecodedBlocksEnd(std::size_t block, std::uint32_t tokens) const {
    return (block + 1) * tokens - prompt_tokens;
  }
};

// Makes the sessions of one trace.
class Expansion {
 public:
  Expansion(const sim::Trace& trace, const GeneratorOptions& options)
      : trace_(trace),
        options_(options),
        rows_(std::min(options.requests_max, trace.requests.size())),
        blocks_per_id_(std::uint64_t{options.length_factor} *
                       (trace.block_tokens / options.block_tokens)) {
    for (std::size_t row = 0; row < rows_; ++row) {
      for (const std::uint64_t id : trace.requests[row].blocks)
        ids_end_ = std::max(ids_end_, id + 1);
    }
  }

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::uint64_t ids() const { return ids_end_ * blocks_per_id_ * options_.copies; }

  [[nodiscard]] Session Make(std::size_t copy, std::size_t row) const {
    const sim::TraceRequest& request = trace_.requests[row];
    Session session;
    session.time_ns = static_cast<std::uint64_t>(std::llround(request.timestamp_ms * kNanosPerMs));
    session.number = copy * rows_ + row;
    session.prompt_tokens =
        std::min(std::uint64_t{request.input_tokens} * options_.length_factor,
                 request.blocks.size() * blocks_per_id_ * options_.block_tokens);
    session.output_tokens = request.output_tokens;
    const std::uint32_t tokens = options_.block_tokens;
    session.prompt_blocks = static_cast<std::uint32_t>(session.prompt_tokens / tokens);
    const std::uint64_t blocks = (session.prompt_tokens + session.output_tokens) / tokens;
    ChainNames chain;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      // Nobody asks for what was decoded, so it only has to differ from all else.
      const std::uint64_t block =
          i < session.prompt_blocks
              ? (request.blocks[i / blocks_per_id_] + copy * ids_end_) * blocks_per_id_ +
                    i % blocks_per_id_
              : kDecoded | (session.number << 24) | i;
      session.locals.push_back(BlockHashOf(block));
      session.names.push_back(EngineHash{chain.Next(session.locals.back())});
    }
    return session;
  }

 private:
  const sim::Trace& trace_;
  const GeneratorOptions& options_;
  const std::size_t rows_;
  const std::uint64_t blocks_per_id_;
  std::uint64_t ids_end_ = 0;
};

// One rank: what happens to its sessions, in order of time, becomes operations.
class Engine {
 public:
  Engine(std::uint32_t rank, const GeneratorOptions& options, OpTrace& out)
      : rank_(rank),
        options_(options),
        out_(out),
        pool_({.block_size = 1, .blocks_max = options.engine_blocks}) {}

  // Sessions come in order of time.
  void Add(Session session) {
    RunUntil(session.time_ns);
    const std::span<const std::uint64_t> prompt(session.locals.data(), session.prompt_blocks);
    out_.Add({.time_ns = session.time_ns,
              .rank = rank_,
              .blocks = session.prompt_blocks,
              .kind = OpKind::kQuery},
             prompt);
    waiting_.push_back(std::move(session));
    Admit(waiting_.back().time_ns);
  }

  void Finish() {
    while (!steps_.empty())
      RunUntil(steps_.top().time_ns);
    KVR_CHECK(waiting_.empty());
  }

 private:
  struct Running {
    Session session;
    std::vector<sim::KvPool::Block> blocks;
    std::size_t committed = 0;
  };
  struct Step {
    std::uint64_t time_ns = 0;
    std::uint64_t order = 0;
    std::size_t running = 0;
    std::size_t blocks = 0;  // to have committed
    bool last = false;

    friend bool operator>(const Step& a, const Step& b) {
      return std::pair(a.time_ns, a.order) > std::pair(b.time_ns, b.order);
    }
  };

  void RunUntil(std::uint64_t time_ns) {
    while (!steps_.empty() && steps_.top().time_ns <= time_ns) {
      const Step step = steps_.top();
      steps_.pop();
      Commit(step.running, step.blocks, step.time_ns);
      if (!step.last) continue;
      pool_.Release(running_[step.running].blocks);
      running_[step.running] = {};
      free_.push_back(step.running);
      Admit(step.time_ns);
    }
  }

  // Starts those that wait for as long as there is room.
  void Admit(std::uint64_t now_ns) {
    while (!waiting_.empty()) {
      const Session& session = waiting_.front();
      const std::span<const EngineHash> prompt(session.names.data(), session.prompt_blocks);
      const std::size_t hit = pool_.Find(prompt).device;
      Running running;
      const auto fresh = static_cast<std::uint32_t>(session.names.size() - hit);
      if (!pool_.Reserve(prompt.first(hit), fresh, running.blocks)) return;
      TakeRemoved(now_ns);
      running.committed = hit;
      running.session = std::move(waiting_.front());
      waiting_.pop_front();
      Start(std::move(running), now_ns);
    }
  }

  void Start(Running running, std::uint64_t now_ns) {
    std::size_t at = running_.size();
    if (free_.empty()) {
      running_.emplace_back();
    } else {
      at = free_.back();
      free_.pop_back();
    }
    const Session& session = running.session;
    const std::uint64_t cached = running.committed * std::uint64_t{options_.block_tokens};
    const std::uint64_t prefill_ns =
        After(now_ns,
              static_cast<double>(session.prompt_tokens - cached) / options_.prefill_tokens_per_ms);
    Push(prefill_ns, at, session.prompt_blocks);
    for (std::size_t block = session.prompt_blocks; block < session.names.size(); ++block) {
      const std::uint64_t decoded = session.DecodedBlocksEnd(block, options_.block_tokens);
      Push(After(prefill_ns, static_cast<double>(decoded) * options_.decode_ms_per_token), at,
           block + 1);
    }
    const double decode_ms =
        static_cast<double>(session.output_tokens) * options_.decode_ms_per_token;
    Push(After(prefill_ns, decode_ms), at, session.names.size(), true);
    running_[at] = std::move(running);
  }

  static std::uint64_t After(std::uint64_t from_ns, double ms) {
    return from_ns + static_cast<std::uint64_t>(std::llround(ms * kNanosPerMs));
  }
  void Push(std::uint64_t time_ns, std::size_t running, std::size_t blocks, bool last = false) {
    steps_.push({time_ns, order_++, running, blocks, last});
  }

  void Commit(std::size_t at, std::size_t blocks, std::uint64_t now_ns) {
    Running& running = running_[at];
    const std::vector<EngineHash>& names = running.session.names;
    static constexpr TokenId kToken = 0;  // the pool wants some; nobody reads it
    for (std::size_t& i = running.committed; i < blocks; ++i) {
      const auto parent = i == 0 ? std::nullopt : std::optional(names[i - 1]);
      pool_.Commit(running.blocks[i], parent, names[i], {&kToken, 1});
    }
    std::size_t i = 0;
    for (const sim::KvEvent& event : pool_.TakeEvents()) {
      KVR_CHECK(event.kind == PlacementKind::kStored);
      while (names[i] != event.hashes.front())
        ++i;
      words_.clear();
      for (const EngineHash name : event.hashes) {
        words_.push_back(Raw(name));
        words_.push_back(running.session.locals[i++]);
      }
      out_.Add({.time_ns = now_ns,
                .parent = event.parent ? Raw(*event.parent) : 0,
                .rank = rank_,
                .blocks = static_cast<std::uint32_t>(event.hashes.size()),
                .kind = OpKind::kStored,
                .has_parent = event.parent.has_value()},
               words_);
    }
  }

  void TakeRemoved(std::uint64_t now_ns) {
    words_.clear();
    for (const sim::KvEvent& event : pool_.TakeEvents()) {
      KVR_CHECK(event.kind == PlacementKind::kRemoved);
      for (const EngineHash name : event.hashes)
        words_.push_back(Raw(name));
    }
    if (words_.empty()) return;
    out_.Add({.time_ns = now_ns,
              .rank = rank_,
              .blocks = static_cast<std::uint32_t>(words_.size()),
              .kind = OpKind::kRemoved},
             words_);
  }

  const std::uint32_t rank_;
  const GeneratorOptions& options_;
  OpTrace& out_;
  sim::KvPool pool_;
  std::deque<Session> waiting_;
  std::vector<Running> running_;
  std::vector<std::size_t> free_;  // in running_
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps_;
  std::uint64_t order_ = 0;
  std::vector<std::uint64_t> words_;  // to work in
};

// Into the order of the file: by time, queries first, then by rank; what one rank did in its order.
OpTrace InOrder(const OpTrace& by_rank) {
  std::vector<std::size_t> order(by_rank.ops.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const Op& op = by_rank.ops[i];
    return std::pair(op.time_ns, op.kind != OpKind::kQuery);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  OpTrace out{.seed = by_rank.seed, .ranks = by_rank.ranks, .block_tokens = by_rank.block_tokens};
  out.ops.reserve(by_rank.ops.size());
  out.words.reserve(by_rank.words.size());
  for (const std::size_t i : order)
    out.Add(by_rank.ops[i], by_rank.WordsOf(by_rank.ops[i]));
  return out;
}

Result<void> Check(const sim::Trace& trace, const GeneratorOptions& options) {
  const auto fail = [](std::string what) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what));
  };
  if (options.block_tokens == 0 || trace.block_tokens % options.block_tokens != 0) {
    return fail(fmt::format("block_tokens {} does not divide the trace's {}", options.block_tokens,
                            trace.block_tokens));
  }
  if (options.length_factor == 0 || options.copies == 0 || options.ranks == 0 ||
      options.requests_max == 0 || options.engine_blocks == 0) {
    return fail("length factor, copies, ranks, requests and engine blocks must be at least 1");
  }
  if (!(options.prefill_tokens_per_ms > 0) || !(options.decode_ms_per_token >= 0))
    return fail("prefill speed must be above 0 tokens/ms, decode time at least 0 ms");
  return {};
}

}  // namespace

std::optional<GeneratorOptions> GeneratorPreset(std::string_view name) {
  GeneratorOptions options;
  if (name == "small") return options;
  if (name == "big") {
    options.copies = 60;
    options.engine_blocks = 16'384;
    return options;
  }
  if (name == "huge") {
    options.copies = 300;
    options.engine_blocks = 65'536;
    return options;
  }
  return std::nullopt;
}

Result<OpTrace> GenerateOps(const sim::Trace& trace, const GeneratorOptions& options) {
  KVR_TRY_VOID(Check(trace, options));
  const Expansion expansion(trace, options);
  if (expansion.ids() >= kDecoded) {
    return Fail(ErrorCode::kInvalidArgument,
                "the ids of the trace, times length factor and copies, exceed 63 bits");
  }

  // Of each rank, its sessions by time: copies of one row are neighbours.
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> sessions(options.ranks);
  std::vector<std::uint32_t> rank_of(options.copies * expansion.rows());
  Rng rng(options.seed);
  for (std::uint32_t& rank : rank_of)  // copy by copy
    rank = static_cast<std::uint32_t>(rng.Below(options.ranks));
  for (std::size_t row = 0; row < expansion.rows(); ++row) {
    for (std::size_t copy = 0; copy < options.copies; ++copy)
      sessions[rank_of[copy * expansion.rows() + row]].emplace_back(copy, row);
  }

  OpTrace by_rank{
      .seed = options.seed, .ranks = options.ranks, .block_tokens = options.block_tokens};
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    Engine engine(rank, options, by_rank);
    for (const auto& [copy, row] : sessions[rank]) {
      Session session = expansion.Make(copy, row);
      if (session.names.size() > options.engine_blocks) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("request {} of the trace fills {} blocks, an engine has {}", row,
                                session.names.size(), options.engine_blocks));
      }
      engine.Add(std::move(session));
    }
    engine.Finish();
  }
  return InOrder(by_rank);
}

Result<OpTrace> GenerateShape(const ShapeOptions& options) {
  if (options.ranks == 0 || options.depth == 0 || options.chains == 0 || options.holders == 0 ||
      options.holders > options.ranks) {
    return Fail(ErrorCode::kInvalidArgument,
                "a shape has at least 1 rank, block and chain, and 1 to `ranks` holders");
  }
  OpTrace out{.seed = options.seed, .ranks = options.ranks, .block_tokens = 0};
  std::vector<std::uint64_t> stored(std::size_t{2} * options.depth);
  std::vector<std::uint64_t> asked(options.depth);
  std::vector<std::uint32_t> order;
  std::uint64_t time_ns = 0;
  const auto fill = [&](std::uint64_t chain) {
    ChainNames names;
    for (std::uint64_t i = 0; i < options.depth; ++i) {
      asked[i] = BlockHashOf(options.seed + chain * options.depth + i);
      stored[2 * i] = names.Next(asked[i]);
      stored[2 * i + 1] = asked[i];
    }
  };
  for (std::uint32_t chain = 0; chain < options.chains; ++chain) {
    fill(chain);
    for (std::uint32_t holder = 0; holder < options.holders; ++holder) {
      const std::uint64_t rank = (std::uint64_t{chain} * options.holders + holder) % options.ranks;
      out.Add({.time_ns = time_ns++,
               .rank = static_cast<std::uint32_t>(rank),
               .blocks = options.depth,
               .kind = OpKind::kStored},
              stored);
    }
    for (std::uint32_t i = 0; i < options.queries_each; ++i)
      order.push_back(chain);
  }
  Rng rng(options.seed);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[rng.Below(i)]);
  for (const std::uint32_t chain : order) {
    fill(chain);
    out.Add({.time_ns = time_ns++, .blocks = options.depth, .kind = OpKind::kQuery}, asked);
  }
  return out;
}

}  // namespace kvr::bench
