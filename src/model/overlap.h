// The answer of an index: who holds how much of one request.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"

namespace kvr {

// Leading request blocks one rank holds. `blocks[tier]` counts the blocks matched in that tier
// beyond where the tier before it ended; their sum is the depth of the whole match.
struct RankOverlap {
  Rank rank;
  std::array<std::uint32_t, kTierCount> blocks{};
  EngineHash last{};  // the rank's own name of the deepest matched block; meaningless at depth 0

  // Makes the match end after `depth` blocks, if it is deeper; `last` is then meaningless.
  void CutTo(std::uint32_t depth) {
    for (std::uint32_t& held : blocks) {
      held = std::min(held, depth);
      depth -= held;
    }
  }

  [[nodiscard]] std::uint32_t device() const { return blocks[0]; }
  [[nodiscard]] std::uint32_t depth() const {
    return blocks[0] + blocks[1] + blocks[2] + blocks[3];
  }
};

// Slots as a bitmap, in ascending order.
class SlotSet {
 public:
  static constexpr std::size_t kWordBits = 64;

  class Iterator {
   public:
    using value_type = RankSlot;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    RankSlot operator*() const {
      return RankSlot{static_cast<std::uint32_t>(word_ * kWordBits +
                                                 static_cast<unsigned>(std::countr_zero(left_)))};
    }
    Iterator& operator++() {
      left_ &= left_ - 1;
      SkipEmpty();
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.word_ == b.word_ && a.left_ == b.left_;
    }

   private:
    friend class SlotSet;
    Iterator(std::span<const std::uint64_t> words, std::size_t word)
        : words_(words), word_(word), left_(word < words.size() ? words[word] : 0) {
      SkipEmpty();
    }
    void SkipEmpty() {
      while (left_ == 0 && word_ < words_.size())
        left_ = ++word_ < words_.size() ? words_[word_] : 0;
    }

    std::span<const std::uint64_t> words_;
    std::size_t word_ = 0;
    std::uint64_t left_ = 0;  // of the word
  };

  explicit SlotSet(std::span<const std::uint64_t> words) : words_(words) {}

  [[nodiscard]] Iterator begin() const { return {words_, 0}; }
  [[nodiscard]] Iterator end() const { return {words_, words_.size()}; }
  [[nodiscard]] bool empty() const { return begin() == end(); }
  [[nodiscard]] RankSlot front() const { return *begin(); }  // there must be one
  [[nodiscard]] std::size_t size() const {
    std::size_t count = 0;
    for (const std::uint64_t word : words_)
      count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }
  [[nodiscard]] bool Has(RankSlot slot) const {
    const std::size_t word = Raw(slot) / kWordBits;
    return word < words_.size() && (words_[word] >> Raw(slot) % kWordBits & 1) != 0;
  }

 private:
  std::span<const std::uint64_t> words_;
};

// Dense by slot and reusable: a second query into the same object allocates nothing once it has
// seen the largest slot. Not thread-safe: one object a thread. It remembers the ranks of the index
// it was asked of last, so an object for each index saves a look at each rank scored.
//
// Most ranks end where many others end. So an index names each end once, with a bitmap of the slots
// that it goes for, and what a rank matched is put together when it is asked for.
class OverlapScores {
 public:
  // Slots with a depth of at least 1. Valid until the next query.
  [[nodiscard]] SlotSet scored() const { return SlotSet(scored_); }
  // How many ranks hold the first i+1 blocks in the device tier. Empty unless asked for.
  [[nodiscard]] std::span<const std::uint32_t> device_holders() const { return device_holders_; }

  // The overlap at `slot`; all zero when the rank matched nothing or the slot is not in use.
  [[nodiscard]] RankOverlap at(RankSlot slot) const {
    if (!scored().Has(slot)) return {};
    const Ending& most = endings_[most_end_at_[Raw(slot) / SlotSet::kWordBits]];
    const Ending& own = most.Has(slot) ? most : endings_[ending_of_[Raw(slot)]];
    return {ranks_[Raw(slot)], own.blocks, own.last};
  }

  // Calls `read(slot, rank, blocks, last)` for all that is scored, in no order; the arguments are
  // those of RankOverlap. For who reads a whole answer, as what many ranks share is looked at once.
  template <typename Read>
  void ForEach(Read&& read) const {
    for (const Ending& ending : endings_) {
      const std::uint32_t first = ending.word * static_cast<std::uint32_t>(SlotSet::kWordBits);
      for (std::uint64_t left = ending.slots; left != 0; left &= left - 1) {
        const std::uint32_t slot = first + static_cast<std::uint32_t>(std::countr_zero(left));
        read(RankSlot{slot}, std::as_const(ranks_[slot]), ending.blocks, ending.last);
      }
    }
  }

  // The rest is for indexes only.

  // Where slots of one bitmap word end. `blocks` and `last` as in RankOverlap.
  struct Ending {
    std::uint32_t word = 0;
    std::uint64_t slots = 0;
    std::array<std::uint32_t, kTierCount> blocks{};
    EngineHash last{};

    [[nodiscard]] std::uint32_t depth() const {
      return blocks[0] + blocks[1] + blocks[2] + blocks[3];
    }
    [[nodiscard]] bool Has(RankSlot slot) const {
      return Raw(slot) / SlotSet::kWordBits == word &&
             (slots >> Raw(slot) % SlotSet::kWordBits & 1) != 0;
    }
  };

  // Empties the answer for a query over slots below `slots`.
  void Reset(std::size_t slots) {
    scored_.assign((slots + SlotSet::kWordBits - 1) / SlotSet::kWordBits, 0);
    if (ending_of_.size() < scored_.size() * SlotSet::kWordBits)
      ending_of_.resize(scored_.size() * SlotSet::kWordBits);
    endings_.clear();
    device_holders_.clear();
  }
  // Each slot may be in one ending; none has depth 0.
  std::vector<Ending>& endings() { return endings_; }
  std::vector<std::uint32_t>& mutable_device_holders() { return device_holders_; }
  // Room to work in that is kept between queries; its content is not.
  std::vector<std::uint64_t>& scratch() { return scratch_; }
  std::vector<std::array<std::uint32_t, kTierCount>>& scratch_blocks() { return scratch_blocks_; }

  // Drops endings until only the `most` deepest ranks are left; which among equals is not said.
  void KeepDeepest(std::size_t most) {
    std::sort(endings_.begin(), endings_.end(),
              [](const Ending& a, const Ending& b) { return a.depth() > b.depth(); });
    std::size_t kept = 0;
    for (; kept < endings_.size() && most > 0; ++kept) {
      std::uint64_t& slots = endings_[kept].slots;
      std::uint64_t dropped = slots;
      for (; dropped != 0 && most > 0; --most)
        dropped &= dropped - 1;
      slots ^= dropped;
    }
    endings_.resize(kept);
  }
  // No ending comes after it.
  void Seal() {
    std::fill(scored_.begin(), scored_.end(), 0);
    most_end_at_.resize(scored_.size());
    for (std::uint32_t i = 0; i < endings_.size(); ++i) {
      const Ending& ending = endings_[i];
      std::uint32_t& most = most_end_at_[ending.word];
      if (scored_[ending.word] == 0 ||
          std::popcount(ending.slots) > std::popcount(endings_[most].slots))
        most = i;
      scored_[ending.word] |= ending.slots;
    }
    // The others are noted one by one.
    for (std::uint32_t i = 0; i < endings_.size(); ++i) {
      const Ending& ending = endings_[i];
      if (most_end_at_[ending.word] == i) continue;
      std::uint32_t* const cells = ending_of_.data() + ending.word * SlotSet::kWordBits;
      for (std::uint64_t slots = ending.slots; slots != 0; slots &= slots - 1)
        cells[std::countr_zero(slots)] = i;
    }
  }
  // After Seal: what is scored has the ranks that `rank_of` says. It is asked of slots alone that
  // were not named under the same `key`, a number other than 0 that the index chooses to know its
  // ranks again by.
  template <typename RankOf>
  void NameRanks(std::uint64_t key, RankOf&& rank_of) {
    if (key != ranks_key_) named_.clear();
    ranks_key_ = key;
    if (named_.size() < scored_.size()) named_.resize(scored_.size(), 0);
    if (ranks_.size() < scored_.size() * SlotSet::kWordBits)
      ranks_.resize(scored_.size() * SlotSet::kWordBits);
    for (const Ending& ending : endings_) {
      std::uint64_t unnamed = ending.slots & ~named_[ending.word];
      if (unnamed == 0) continue;
      named_[ending.word] |= unnamed;
      for (; unnamed != 0; unnamed &= unnamed - 1) {
        const auto slot = static_cast<std::uint32_t>(ending.word * SlotSet::kWordBits) +
                          static_cast<std::uint32_t>(std::countr_zero(unnamed));
        ranks_[slot] = rank_of(RankSlot{slot});
      }
    }
  }
  // Makes an answer a slot at a time, its rank with it: after Reset, and before Seal.
  void Score(RankSlot slot, const RankOverlap& overlap) {
    if (ranks_.size() <= Raw(slot)) ranks_.resize(Raw(slot) + 1);
    ranks_[Raw(slot)] = overlap.rank;
    ranks_key_ = 0;
    endings_.push_back({static_cast<std::uint32_t>(Raw(slot) / SlotSet::kWordBits),
                        std::uint64_t{1} << Raw(slot) % SlotSet::kWordBits, overlap.blocks,
                        overlap.last});
  }

 private:
  std::vector<std::uint64_t> scored_;
  std::vector<std::uint32_t> most_end_at_;  // by word: an ending
  std::vector<std::uint32_t> ending_of_;    // by slot, unless it ends where most of its word do
  std::vector<Ending> endings_;
  std::vector<Rank> ranks_;           // by slot; they outlast a query
  std::vector<std::uint64_t> named_;  // slots whose ranks are right while the key is the same
  std::uint64_t ranks_key_ = 0;
  std::vector<std::uint32_t> device_holders_;
  std::vector<std::uint64_t> scratch_;
  std::vector<std::array<std::uint32_t, kTierCount>> scratch_blocks_;
};

}  // namespace kvr
