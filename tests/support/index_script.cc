#include "support/index_script.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "support/naive_index.h"

namespace kvr::index::script {
namespace {

EngineHash ChainName(std::uint64_t before, std::uint64_t local) {
  std::uint64_t x = (before + 0x9E3779B97F4A7C15u) ^ (local * 0xBF58476D1CE4E5B9u);
  x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
  return static_cast<EngineHash>(x ^ (x >> 32));
}

// A position in the text.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  [[nodiscard]] bool done() const { return text_.empty(); }
  bool Eat(std::string_view token) {
    SkipSpace();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    SkipSpace();
    return true;
  }
  void Expect(std::string_view token) {
    if (Eat(token)) return;
    fmt::print(stderr, "expected '{}' at '{}'\n", token, text_);
    KVR_CHECK(false && "bad index script");
  }
  std::uint64_t Number() {
    SkipSpace();
    if (Eat("M")) return ~std::uint64_t{0} - (Eat("-") ? Number() : 0);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{}) fmt::print(stderr, "expected a number at '{}'\n", text_);
    KVR_CHECK(error == std::errc{});
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  std::string Word() {
    std::string word;
    while (!text_.empty() && text_[0] >= 'a' && text_[0] <= 'z') {
      word += text_[0];
      text_.remove_prefix(1);
    }
    SkipSpace();
    return word;
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n'))
      text_.remove_prefix(1);
  }

  std::string_view text_;
};

struct Local {
  std::uint64_t local = 0;
  std::optional<std::uint64_t> name;
};

std::vector<Local> ParseList(Cursor& in) {
  std::vector<Local> list;
  in.Expect("[");
  while (!in.Eat("]")) {
    const std::uint64_t first = in.Number();
    if (in.Eat("..")) {
      for (std::uint64_t last = in.Number(), l = first; l <= last; ++l)
        list.push_back({l, {}});
    } else if (in.Eat("/")) {
      list.push_back({first, in.Number()});
    } else {
      list.push_back({first, {}});
    }
    in.Eat(",");
  }
  return list;
}

std::vector<BlockHash> Locals(const std::vector<Local>& list) {
  std::vector<BlockHash> locals;
  locals.reserve(list.size());
  for (const Local& block : list)
    locals.push_back(static_cast<BlockHash>(block.local));
  return locals;
}

Rank ParseRank(Cursor& in) {
  Rank rank{static_cast<WorkerId>(in.Number()), 0};
  if (in.Eat(".")) rank.dp_rank = static_cast<std::uint32_t>(in.Number());
  return rank;
}

std::vector<Rank> ParseRanks(Cursor& in) {
  std::vector<Rank> ranks{ParseRank(in)};
  while (in.Eat(","))
    ranks.push_back(ParseRank(in));
  return ranks;
}

Tier ParseTier(Cursor& in) {
  if (!in.Eat("@")) return Tier::kDevice;
  if (in.Eat("host")) return Tier::kHostPinned;
  if (in.Eat("disk")) return Tier::kDisk;
  in.Expect("ext");
  return Tier::kExternal;
}

// Chains of one statement; a name depends on the rank where each has its own.
class Namer {
 public:
  Namer(Rank rank, bool own_names)
      : root_(own_names ? 0x1000 * (Raw(rank.worker) + 1) + rank.dp_rank + 1 : 0), at_(root_) {}

  void Behind(std::uint64_t name) { at_ = name; }
  std::vector<PlacedBlock> Name(const std::vector<Local>& list) {
    std::vector<PlacedBlock> blocks;
    blocks.reserve(list.size());
    for (const Local& block : list) {
      at_ = block.name ? *block.name : Raw(ChainName(at_, block.local));
      blocks.push_back({static_cast<EngineHash>(at_), static_cast<BlockHash>(block.local)});
    }
    return blocks;
  }

 private:
  std::uint64_t root_;
  std::uint64_t at_;
};

// "{4,0..2,^9}" over the names of a chain.
std::vector<EngineHash> ParsePicks(Cursor& in, const std::vector<PlacedBlock>& chain) {
  std::vector<EngineHash> picked;
  in.Expect("{");
  while (!in.Eat("}")) {
    if (in.Eat("^")) {
      picked.push_back(static_cast<EngineHash>(in.Number()));
    } else {
      const std::uint64_t first = in.Number();
      const std::uint64_t last = in.Eat("..") ? in.Number() : first;
      for (std::uint64_t i = first; i <= last; ++i)
        picked.push_back(chain.at(i).engine);
    }
    in.Eat(",");
  }
  return picked;
}

std::map<Rank, std::vector<Depths>> ParseExpected(Cursor& in) {
  std::map<Rank, std::vector<Depths>> expected;
  in.Expect("{");
  while (!in.Eat("}")) {
    std::vector<Depths>& depths = expected[ParseRank(in)];
    in.Expect(":");
    do {
      Depths one;
      std::size_t tier = 0;
      do {
        one.blocks.at(tier++) = static_cast<std::uint32_t>(in.Number());
      } while (in.Eat("/"));
      depths.push_back(one);
    } while (in.Eat("|"));
    in.Eat(",");
  }
  return expected;
}

void ParseStored(Cursor& in, Op& op, bool own_names) {
  Namer namer(op.rank, own_names);
  in.Expect(":");
  if (in.Eat("^")) {
    const std::uint64_t parent = in.Number();
    op.parent = static_cast<EngineHash>(parent);
    namer.Behind(parent);
    in.Expect("+");
  }
  op.blocks = namer.Name(ParseList(in));
  while (in.Eat("+")) {
    if (!op.blocks.empty()) op.parent = op.blocks.back().engine;
    op.blocks = namer.Name(ParseList(in));
  }
}

void ParseNamed(Cursor& in, Op& op, bool own_names) {
  in.Expect(":");
  const std::vector<PlacedBlock> chain = Namer(op.rank, own_names).Name(ParseList(in));
  op.removed = ParsePicks(in, chain);
  if (op.kind == Op::Kind::kRemove) return;
  for (const EngineHash name : op.removed)
    op.blocks.push_back({name, BlockHash{}});
}

Op ParseQuery(Cursor& in) {
  Op op;
  op.kind = Op::Kind::kQuery;
  op.query = Locals(ParseList(in));
  if (in.Eat("=")) op.expected = ParseExpected(in);
  return op;
}

void ParseUpdates(Cursor in, Op op, bool own_names, std::vector<Op>& ops) {
  const std::vector<Rank> ranks = ParseRanks(in);
  for (const Rank rank : ranks) {
    Cursor rest = in;
    op.rank = rank;
    op.tier = ParseTier(rest);
    switch (op.kind) {
      case Op::Kind::kStore:
        ParseStored(rest, op, own_names);
        break;
      case Op::Kind::kHashOnly:
      case Op::Kind::kRemove:
        ParseNamed(rest, op, own_names);
        break;
      default:
        break;
    }
    if (rest.Eat("!")) op.expected_status = rest.Word();
    KVR_CHECK(rest.done());
    ops.push_back(op);
  }
}

const char* StatusWord(const ApplyResult& result) {
  if (result.dropped_blocks > 0) return "full";
  switch (result.status) {
    case ApplyStatus::kOk:
      return result.duplicate_store ? "dup" : "ok";
    case ApplyStatus::kParentNotFound:
      return "pnf";
    case ApplyStatus::kBlockNotFound:
      return "bnf";
    case ApplyStatus::kInvalidSequence:
      return "inv";
    case ApplyStatus::kCapacity:
      return "cap";
  }
  return "?";
}

std::string RankText(Rank rank) {
  return fmt::format("{}.{}", Raw(rank.worker), rank.dp_rank);
}

}  // namespace

PlacementEvent Op::Event() const {
  PlacementEvent event;
  event.rank = rank;
  event.tier = tier;
  event.eligible = eligible;
  event.parent = parent;
  event.blocks = blocks;
  event.removed = removed;
  event.hash_only = kind == Kind::kHashOnly;
  if (kind == Kind::kRemove) event.kind = PlacementKind::kRemoved;
  if (kind == Kind::kClear) event.kind = PlacementKind::kCleared;
  if (kind == Kind::kHashOnly) event.removed = {};
  return event;
}

std::vector<Op> Parse(std::string_view text) {
  static constexpr std::pair<std::string_view, Op::Kind> kUpdates[] = {
      {"RW", Op::Kind::kRemoveWorker}, {"RR", Op::Kind::kRemoveRank}, {"R", Op::Kind::kRemove},
      {"S", Op::Kind::kStore},         {"E", Op::Kind::kStore},       {"HE", Op::Kind::kHashOnly},
      {"H", Op::Kind::kHashOnly},      {"C", Op::Kind::kClear}};
  std::vector<Op> ops;
  bool own_names = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view statement = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Cursor in(statement);
    in.Eat("");
    if (in.done()) continue;
    const std::size_t first = ops.size();
    if (in.Eat("V")) {
      own_names = true;
    } else if (in.Eat("Q")) {
      ops.push_back(ParseQuery(in));
    } else if (in.Eat("D")) {
      ops.emplace_back().kind = Op::Kind::kDump;
    } else if (in.Eat("n=")) {
      ops.emplace_back().kind = Op::Kind::kMemberships;
      ops.back().memberships = in.Number();
    } else if (in.Eat("e=")) {
      ops.emplace_back().kind = Op::Kind::kEligible;
      ops.back().memberships = in.Number();
    } else if (in.Eat("clean")) {
      ops.emplace_back().kind = Op::Kind::kClean;
    } else {
      for (const auto& [prefix, kind] : kUpdates) {
        if (!in.Eat(prefix)) continue;
        Op op;
        op.kind = kind;
        op.eligible = prefix.ends_with('E');
        ParseUpdates(in, op, own_names, ops);
        break;
      }
      if (ops.size() == first) fmt::print(stderr, "no statement: '{}'\n", statement);
      KVR_CHECK(ops.size() > first);
    }
    for (std::size_t i = first; i < ops.size(); ++i)
      ops[i].text = std::string(statement);
  }
  return ops;
}

std::string ToString(const Answers& answers) {
  std::string text = "{";
  for (const auto& [rank, answer] : answers) {
    const auto& b = answer.depths.blocks;
    text += fmt::format("{}{}:{}/{}/{}/{}^{}", text.size() > 1 ? " " : "", RankText(rank), b[0],
                        b[1], b[2], b[3], Raw(answer.last));
  }
  return text + "}";
}

RankSlot Player::SlotOf(Rank rank) {
  const auto known = slots_.find(rank);
  if (known != slots_.end()) return known->second;
  const Result<RankSlot> slot = index_->AddRank(rank);
  KVR_CHECK(slot.has_value());
  return slots_[rank] = *slot;
}

std::string Player::Apply(const PlacementEvent& event) {
  return StatusWord(index_->Apply(SlotOf(event.rank), event));
}

std::string Player::Update(const Op& op) {
  if (op.kind == Op::Kind::kRemoveRank) {
    slots_.erase(op.rank);
    return index_->RemoveRank(op.rank) ? "ok" : "bnf";
  }
  if (op.kind == Op::Kind::kRemoveWorker) {
    bool any = false;
    for (auto it = slots_.begin(); it != slots_.end();) {
      const Rank rank = it->first;
      it = rank.worker == op.rank.worker ? slots_.erase(it) : std::next(it);
      if (rank.worker == op.rank.worker) any |= index_->RemoveRank(rank);
    }
    return any ? "ok" : "bnf";
  }
  return Apply(op.Event());
}

namespace {

Answers AnswersIn(const OverlapScores& scores) {
  Answers answers;
  for (const RankSlot slot : scores.scored()) {
    const RankOverlap& overlap = scores.at(slot);
    const bool added = answers.emplace(overlap.rank, Answer{{overlap.blocks}, overlap.last}).second;
    KVR_CHECK(added && overlap.depth() > 0);
  }
  return answers;
}

}  // namespace

Answers Player::Query(const std::vector<BlockHash>& blocks) const {
  OverlapScores scores;
  index_->Match(blocks, {}, scores);
  const Answers answers = AnswersIn(scores);
  for (const RankSlot slot : scores.scored())
    KVR_CHECK(slots_.at(scores.at(slot).rank) == slot);

  // Asked together with others, or for the best alone, it answers the same: seen of some.
  if (++queries_ % 4 > 0) return answers;
  const std::span<const BlockHash> all(blocks);
  const std::array queries = {all.first(blocks.size() / 2), all, all.first(0)};
  std::array<OverlapScores, queries.size()> together;
  index_->MatchMany(queries, {}, together);
  KVR_CHECK(AnswersIn(together[1]) == answers && together[2].scored().empty());
  CheckBest(blocks, answers);
  return answers;
}

void Player::CheckBest(const std::vector<BlockHash>& blocks, const Answers& all) const {
  constexpr std::uint32_t kBest = 2;
  OverlapScores scores;
  index_->Match(blocks, {.best = kBest}, scores);
  const Answers best = AnswersIn(scores);
  KVR_CHECK(best.size() == std::min<std::size_t>(all.size(), kBest));
  const auto depth = [](const Answer& answer) {
    const auto& blocks_of = answer.depths.blocks;
    return std::accumulate(blocks_of.begin(), blocks_of.end(), 0u);
  };
  for (const auto& [rank, answer] : best) {
    KVR_CHECK(all.at(rank) == answer);
    for (const auto& [other, others] : all)
      KVR_CHECK(best.contains(other) || depth(others) <= depth(answer));
  }
}

std::vector<std::string> Player::SortedDump() const {
  std::vector<std::string> lines;
  index_->Dump([&lines](const PlacementEvent& event) {
    KVR_CHECK(event.kind == PlacementKind::kStored && !event.blocks.empty());
    std::string parent = event.parent ? fmt::format("^{}", Raw(*event.parent)) : "root";
    for (const PlacedBlock& block : event.blocks) {
      lines.push_back(fmt::format("{}@{} {}>{}/{}{}", RankText(event.rank), TierName(event.tier),
                                  parent, Raw(block.engine), Raw(block.local),
                                  event.eligible ? " eligible" : ""));
      parent = fmt::format("^{}", Raw(block.engine));
    }
  });
  std::sort(lines.begin(), lines.end());
  // Where names are shared, blocks are told again.
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return lines;
}

Player Player::Restored(std::unique_ptr<PrefixIndex> empty) const {
  Player copy(std::move(empty));
  index_->Dump([&copy](const PlacementEvent& event) { copy.Apply(event); });
  for (const auto& [rank, slot] : slots_)
    copy.SlotOf(rank);
  return copy;
}

Player Player::Copied(std::unique_ptr<PrefixIndex> empty) const {
  Player copy(std::move(empty));
  for (const auto& [rank, slot] : slots_) {
    RankCopy blocks;
    index_->CopyRank(rank, blocks);
    ApplyCopy(blocks, rank, *copy.index_, copy.SlotOf(rank));
  }
  return copy;
}

namespace {

class Checker {
 public:
  Checker(const Factory& make, const IndexOptions& options)
      : make_(make),
        options_(options),
        index_(make(options)),
        model_(std::make_unique<NaiveIndex>(options)) {}

  void Play(const Op& op) {
    if (op.updates()) {
      const std::string status = index_.Update(op);
      model_.Update(op);
      if (op.expected_status != "any" && status != op.expected_status) Fail(op, "status " + status);
    } else if (op.kind == Op::Kind::kQuery) {
      CheckQuery(op);
    } else if (op.kind == Op::Kind::kDump) {
      CheckDump(op);
    } else if (op.kind == Op::Kind::kEligible) {
      CheckEligible(op);
    } else {
      const IndexStats stats = index_.index().Stats();
      if (stats.memberships != op.memberships)
        Fail(op, fmt::format("memberships {}", stats.memberships));
      if (op.kind == Op::Kind::kClean && (stats.nodes != 0 || stats.pending_blocks != 0))
        Fail(op, fmt::format("nodes {}, pending {}", stats.nodes, stats.pending_blocks));
    }
  }

  std::vector<std::string> failures;

 private:
  void Fail(const Op& op, const std::string& what) { failures.push_back(op.text + " → " + what); }

  void CheckQuery(const Op& op) {
    const Answers answers = index_.Query(op.query);
    const auto& model = static_cast<const NaiveIndex&>(model_.index());
    for (const auto& [rank, slot] : index_.slots()) {
      const auto answer = answers.find(rank);
      const std::uint32_t device = answer == answers.end() ? 0 : answer->second.depths.blocks[0];
      const NaiveIndex::Bounds bounds = model.DeviceBounds(rank, op.query);
      if (device < bounds.lower || device > bounds.upper) {
        Fail(op, fmt::format("rank {} depth {}, outside {}..{}", RankText(rank), device,
                             bounds.lower, bounds.upper));
      }
    }
    if (!op.expected) return;
    bool equal = answers.size() == op.expected->size();
    for (const auto& [rank, permitted] : *op.expected) {
      const auto answer = answers.find(rank);
      equal = equal && answer != answers.end() &&
              std::count(permitted.begin(), permitted.end(), answer->second.depths) > 0;
    }
    if (!equal) Fail(op, ToString(answers));
  }

  void CheckEligible(const Op& op) {
    const auto dump = index_.SortedDump();
    const auto eligible = static_cast<std::uint64_t>(std::ranges::count_if(
        dump, [](const std::string& line) { return line.ends_with("eligible"); }));
    if (eligible != op.memberships) Fail(op, fmt::format("eligible {}", eligible));
    if (model_.SortedDump() != dump) Fail(op, "the model dumps differently");
  }

  void CheckDump(const Op& op) {
    Player copy = index_.Restored(make_(options_));
    const auto dump = index_.SortedDump();
    if (copy.SortedDump() != dump) Fail(op, "the copy dumps differently");
    if (index_.Copied(make_(options_)).SortedDump() != dump) {
      Fail(op, "the copy by ranks dumps differently");
    }
    model_ = index_.Restored(std::make_unique<NaiveIndex>(options_));
    index_ = std::move(copy);
  }

  const Factory& make_;
  const IndexOptions options_;
  Player index_;
  Player model_;
};

}  // namespace

std::vector<std::string> Run(std::string_view text, const Factory& make,
                             const IndexOptions& options) {
  Checker checker(make, options);
  for (const Op& op : Parse(text))
    checker.Play(op);
  return checker.failures;
}

}  // namespace kvr::index::script
