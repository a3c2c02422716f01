#include "wire/u32_run.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvr::wire {
namespace {

// How an integer is laid out, by its first byte. The widths of neighbours differ without a pattern,
// so nothing here branches on them.
struct Layout {
  std::uint32_t mask = 0;   // the bits of the value, of the last four bytes
  std::uint32_t bytes = 0;  // 0: no unsigned integer of at most 32 bits
};

constexpr auto kLayoutTable = [] {
  std::array<Layout, 256> layouts{};
  for (std::size_t head = 0; head < 0x80; ++head)
    layouts[head] = {0xff, 1};
  layouts[0xcc] = {0xff, 2};
  layouts[0xcd] = {0xffff, 3};
  layouts[0xce] = {0xffffffff, 5};
  return layouts;
}();
constexpr const Layout* kLayouts = kLayoutTable.data();  // indexed by a byte: nothing to check

// The integer from `at` to `end`. Reads the four bytes before `end`, be it that some are before
// `at`.
std::uint32_t ValueAt(const unsigned char* at, const unsigned char* end) {
  std::uint32_t word = 0;
  std::memcpy(&word, end - sizeof word, sizeof word);
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap32(word);
  return word & kLayouts[*at].mask;
}

std::size_t DecodeOneByOne(const unsigned char*& at, const unsigned char* end,
                           std::span<std::uint32_t> out) {
  std::size_t done = 0;
  while (done < out.size() && end - at >= 5) {
    const std::size_t bytes = kLayouts[*at].bytes;
    if (bytes == 0) break;
    out[done++] = ValueAt(at, at + bytes);
    at += bytes;
  }
  return done;
}

#if defined(__x86_64__)

// Four a step. Where an integer starts is only known once the one before it is, and that chain is
// what takes the time. Here each of 16 bytes is taken for a first byte: `next` says where the
// integer after it would start, and `next` of `next` leaps over two. So the chain of a step is two
// shuffles long.
[[gnu::target("ssse3")]] std::size_t DecodeByFours(const unsigned char*& at,
                                                   const unsigned char* end,
                                                   std::span<std::uint32_t> out) {
  const __m128i index = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m128i lengths = _mm_setr_epi8(2, 3, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  constexpr std::ptrdiff_t kReach = 15 + 5;  // the fourth starts at 15 at the latest
  const unsigned char* place = at;
  std::uint32_t* value = out.data();
  std::uint32_t* const last = value + out.size();
  while (last - value >= 4 && end - place >= kReach) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
    // cc, cd and ce become 0, 1 and 2, and all else, once 0x70 is added, 0x73 or more; from 0x80 on
    // a shuffle gives 0.
    const __m128i wide =
        _mm_adds_epu8(_mm_xor_si128(bytes, _mm_set1_epi8('\xcc')), _mm_set1_epi8(0x70));
    const __m128i small = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(-1));  // -1 for 00 to 7f
    const __m128i length = _mm_sub_epi8(_mm_shuffle_epi8(lengths, wide), small);
    const __m128i next = _mm_add_epi8(index, length);
    const __m128i next2 = _mm_shuffle_epi8(next, next);
    const __m128i next4 = _mm_shuffle_epi8(next2, next2);
    const auto first = [](__m128i values) {
      return static_cast<std::size_t>(_mm_cvtsi128_si32(values) & 0xff);
    };
    const unsigned char* const second = place + first(next);
    const unsigned char* const third = place + first(next2);
    const unsigned char* const fourth = third + kLayouts[*third].bytes;
    const unsigned char* const fifth = place + first(next4);
    if (fourth == fifth) break;  // what has no length stays where it is, and so do all after it
    value[0] = ValueAt(place, second);
    value[1] = ValueAt(second, third);
    value[2] = ValueAt(third, fourth);
    value[3] = ValueAt(fourth, fifth);
    value += 4;
    place = fifth;
  }
  at = place;
  return static_cast<std::size_t>(value - out.data());
}

const bool kByFours = __builtin_cpu_supports("ssse3") != 0;

#endif

}  // namespace

std::size_t DecodeU32Run(const unsigned char* begin, const unsigned char*& at,
                         const unsigned char* end, std::span<std::uint32_t> out) {
  if (at - begin < 3) return 0;  // see ValueAt
  std::size_t done = 0;
#if defined(__x86_64__)
  if (kByFours) done = DecodeByFours(at, end, out);
#endif
  return done + DecodeOneByOne(at, end, out.subspan(done));
}

}  // namespace kvr::wire
