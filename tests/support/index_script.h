// A notation for what happens to an index, so that a test reads like a table and a failing random
// run can be pasted into one.
//
//   S0:[1..5]              worker 0 stores a chain from the root
//   S0.1,2:[1,2]+[3]       ranks 0.1 and 2.0 store block 3 behind the chain 1,2
//   S0@host:[1/100]        in a lower tier (host, disk, ext); block 1 under the name 100
//   S0:^777+[1]            behind whatever the name 777 is
//   E0:...                 as S, of eligible blocks
//   H0@host:[1,2]{1}       stores by name alone: position 1 of the chain, nothing else
//   HE0@host:...           as H, and the blocks are eligible whatever was said before
//   R0:[1..5]{4,0..2,^9}   removes the names at these positions of the chain, and the name 9
//   C0; RR0.1; RW0         clears a rank; removes a rank; removes all ranks of a worker
//   V                      from here on each rank has names of its own
//   Q[1..5]={0:2 0.1:1/0/3}  asks; depth by tier, device first; `2|3` permits either; `=` optional
//   D                      goes on with an index made from the dump of the one before
//   n=3; clean             memberships; no block, name or pending block is left
//   e=2                    memberships of eligible blocks, as the dump has them
//
// An update may end in the status it expects: !pnf !bnf !inv !cap !dup !full !any; none is plain
// success. A block without a name has one that is a hash of its chain.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index/options.h"
#include "index/prefix_index.h"

namespace kvr::index::script {

struct Depths {
  std::array<std::uint32_t, kTierCount> blocks{};

  friend auto operator<=>(const Depths&, const Depths&) = default;
};

struct Op {
  enum class Kind : std::uint8_t {
    kStore,
    kHashOnly,
    kRemove,
    kClear,
    kRemoveRank,
    kRemoveWorker,
    kQuery,
    kDump,
    kMemberships,
    kEligible,
    kClean,
  };

  Kind kind = Kind::kClean;
  std::string text;
  Rank rank;  // updates
  Tier tier = Tier::kDevice;
  bool eligible = false;
  std::optional<EngineHash> parent;
  std::vector<PlacedBlock> blocks;
  std::vector<EngineHash> removed;
  std::string expected_status = "ok";
  std::vector<BlockHash> query;
  std::optional<std::map<Rank, std::vector<Depths>>> expected;  // any one of them
  std::uint64_t memberships = 0;

  [[nodiscard]] bool updates() const { return kind < Kind::kQuery; }
  [[nodiscard]] PlacementEvent Event() const;  // borrows from this; kStore to kClear only
};

// Aborts on text that is not in the notation. One op a rank and statement.
std::vector<Op> Parse(std::string_view text);

struct Answer {
  Depths depths;
  EngineHash last{};

  friend auto operator<=>(const Answer&, const Answer&) = default;
};
using Answers = std::map<Rank, Answer>;
std::string ToString(const Answers& answers);

// Plays updates into an index and keeps its slots.
class Player {
 public:
  explicit Player(std::unique_ptr<PrefixIndex> index) : index_(std::move(index)) {}

  // Ranks get a slot with their first event. "ok", "dup", "pnf", ...
  std::string Update(const Op& op);
  std::string Apply(const PlacementEvent& event);
  [[nodiscard]] Answers Query(const std::vector<BlockHash>& blocks) const;
  // "rank@tier parent>name/local eligible", one a block, so that two dumps can be compared whatever
  // their cuts and order.
  [[nodiscard]] std::vector<std::string> SortedDump() const;
  // A copy by way of the dump.
  [[nodiscard]] Player Restored(std::unique_ptr<PrefixIndex> empty) const;
  // The same by way of a copy of each rank.
  [[nodiscard]] Player Copied(std::unique_ptr<PrefixIndex> empty) const;

  [[nodiscard]] PrefixIndex& index() const { return *index_; }
  [[nodiscard]] const std::map<Rank, RankSlot>& slots() const { return slots_; }

 private:
  void CheckBest(const std::vector<BlockHash>& blocks, const Answers& all) const;

  RankSlot SlotOf(Rank rank);

  std::unique_ptr<PrefixIndex> index_;
  std::map<Rank, RankSlot> slots_;
  mutable std::uint64_t queries_ = 0;
};

using Factory = std::function<std::unique_ptr<PrefixIndex>(const IndexOptions&)>;

// Plays the script and compares with what it expects, and with the bounds of the reference model
// for the device tier. One line for each difference.
std::vector<std::string> Run(std::string_view text, const Factory& make,
                             const IndexOptions& options = {});

}  // namespace kvr::index::script
