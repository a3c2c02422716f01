// Which slots hold a block in one tier.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvr::index {

// A bitmap over slots: one word inline, more on the heap only when a slot above 63 is in it. Not
// thread-safe.
class HolderSet {
 public:
  static constexpr std::size_t kWordBits = 64;

  // The word of slots 64*w to 64*w+63.
  [[nodiscard]] std::uint64_t Word(std::size_t w) const {
    if (w == 0) return first_;
    return w < words() ? more_[w] : 0;
  }
  [[nodiscard]] bool Has(std::uint32_t slot) const {
    return (Word(slot / kWordBits) >> (slot % kWordBits)) & 1u;
  }

  void Add(std::uint32_t slot) {
    const std::size_t w = slot / kWordBits;
    if (w >= words()) Grow(w + 1);
    MutableWord(w) |= std::uint64_t{1} << (slot % kWordBits);
  }

  void Remove(std::uint32_t slot) {
    const std::size_t w = slot / kWordBits;
    if (w >= words()) return;
    std::uint64_t& word = MutableWord(w);
    word &= ~(std::uint64_t{1} << (slot % kWordBits));
    if (w == 0 || word != 0) return;
    const std::uint64_t* const begin = more_.get() + 1;
    const std::uint64_t* const end = more_.get() + words();
    if (std::all_of(begin, end, [](std::uint64_t other) { return other == 0; })) more_.reset();
  }

  // Words in use, the inline one included.
  [[nodiscard]] std::size_t words() const { return more_ ? static_cast<std::size_t>(more_[0]) : 1; }

 private:
  std::uint64_t& MutableWord(std::size_t w) { return w == 0 ? first_ : more_[w]; }

  void Grow(std::size_t words_wanted) {
    auto grown = std::make_unique<std::uint64_t[]>(words_wanted);
    if (more_) std::copy_n(more_.get(), words(), grown.get());
    grown[0] = words_wanted;
    more_ = std::move(grown);
  }

  std::uint64_t first_ = 0;
  std::unique_ptr<std::uint64_t[]> more_;  // [0] its length, [w] the word w
};

}  // namespace kvr::index
