// Eight words looked at together.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace kvr::index {

struct WordGroup {
  static constexpr std::uint32_t kWords = 8;

  // Some of them.
  class Set {
   public:
    explicit Set(std::uint32_t bits) : bits_(bits) {}

    [[nodiscard]] bool empty() const { return bits_ == 0; }
    [[nodiscard]] std::size_t first() const {
      return static_cast<std::size_t>(std::countr_zero(bits_)) / 2;
    }
    void DropFirst() { bits_ &= bits_ - 1; }

   private:
    std::uint32_t bits_;  // every other bit, as that is what SSE2 gives
  };

  // Those of `words`, 16-byte aligned, whose low `bits` are `wanted`; `bits` is at most 32.
  static Set WithLowBits(const std::uint64_t* words, unsigned bits, std::uint64_t wanted) {
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
#ifdef __SSE2__
    const __m128i masks = _mm_set1_epi64x(static_cast<long long>(mask));
    const __m128i all = _mm_set1_epi64x(static_cast<long long>(wanted));
    const auto same = [&](std::size_t i) {
      const __m128i pair = _mm_load_si128(reinterpret_cast<const __m128i*>(words + i));
      return _mm_cmpeq_epi32(_mm_and_si128(pair, masks), all);
    };
    const __m128i packed =
        _mm_packs_epi16(_mm_packs_epi32(same(0), same(2)), _mm_packs_epi32(same(4), same(6)));
    constexpr unsigned kLowHalves = 0x5555;
    return Set(static_cast<unsigned>(_mm_movemask_epi8(packed)) & kLowHalves);
#else
    std::uint32_t set = 0;
    for (std::uint32_t i = 0; i < kWords; ++i)
      set |= ((words[i] & mask) == wanted ? 1u : 0u) << (2 * i);
    return Set(set);
#endif
  }
};

}  // namespace kvr::index
