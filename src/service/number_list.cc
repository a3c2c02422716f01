#include "service/number_list.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "service/json_chars.h"

namespace kvr::service {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

// --- the way to the list ------------------------------------------------------------------------

std::size_t SkipSpace(std::string_view text, std::size_t at) {
  while (at < text.size() && IsSpace(text[at]))
    ++at;
  return at;
}

// `at` is behind an opening quote; the answer is the closing one.
std::size_t FindQuote(std::string_view text, std::size_t at) {
  for (;; at += 2) {  // behind a backslash and what it escapes
    at = text.find_first_of("\"\\", at);
    if (at == kNowhere || text[at] == '"') return at;
  }
}

// The place behind the value at `at`, if it is a well-formed one: what is inside is not looked at.
std::size_t SkipValue(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = FindQuote(text, at + 1);
      if (at == kNowhere) return kNowhere;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      --depth;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return kNowhere;
}

bool Take(std::string_view text, std::size_t& at, char c) {
  at = SkipSpace(text, at);
  if (at >= text.size() || text[at] != c) return false;
  at = SkipSpace(text, at + 1);
  return true;
}

struct ListPlace {
  std::string_view field;
  std::size_t begin;  // of its first number
};

// The first field of the object whose value begins like a list of numbers.
std::optional<ListPlace> FindList(std::string_view text) {
  std::size_t at = 0;
  if (!Take(text, at, '{')) return std::nullopt;
  do {
    at = SkipSpace(text, at);
    if (at >= text.size() || text[at] != '"') return std::nullopt;
    const std::size_t quote = FindQuote(text, at + 1);
    if (quote == kNowhere) return std::nullopt;
    const std::string_view field = text.substr(at + 1, quote - at - 1);
    at = quote + 1;
    if (!Take(text, at, ':')) return std::nullopt;
    std::size_t first = at;
    if (Take(text, first, '[') && first < text.size() && IsDigit(text[first])) {
      if (field.find('\\') != kNowhere) return std::nullopt;
      return ListPlace{field, first};
    }
    at = SkipValue(text, at);
  } while (at != kNowhere && Take(text, at, ','));
  return std::nullopt;
}

// --- the list -----------------------------------------------------------------------------------

constexpr std::size_t kStride = 64;

// Bit i says something of text[i]. kStride bytes are looked at.
struct Separators {
  std::uint64_t all = 0;  // no digits
  std::uint64_t commas = 0;
};

Separators Look(const char* text) {
  Separators found;
#if defined(__SSE2__)
  const auto bits = [](__m128i bytes, std::size_t at) {
    return static_cast<std::uint64_t>(_mm_movemask_epi8(bytes)) << at;
  };
  std::uint64_t digits = 0;
  for (std::size_t i = 0; i < kStride; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + i));
    const __m128i values = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
    digits |= bits(_mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values), i);
    found.commas |= bits(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(',')), i);
  }
  found.all = ~digits;
#else
  for (std::size_t i = 0; i < kStride; ++i) {
    found.all |= std::uint64_t{!IsDigit(text[i])} << i;
    found.commas |= std::uint64_t{text[i] == ','} << i;
  }
#endif
  return found;
}

// The number of `size` digits, 1 to 8, that ends before `end`; of another size, any number. 8 bytes
// before `end` are read.
std::uint64_t UpToEightDigits(const char* end, std::size_t size) {
  std::uint64_t digits = 0;
  std::memcpy(&digits, end - 8, 8);
  static_assert(std::endian::native == std::endian::little);
  digits &= ~std::uint64_t{0} << (8 * (8 - size) % 64);  // what stands before it counts as zeros
  // Neighbours are joined: digits to pairs, pairs to fours, fours to eight.
  digits = (digits & 0x0f0f0f0f0f0f0f0f) * (10 * 0x100 + 1) >> 8;
  digits = (digits & 0x00ff00ff00ff00ff) * (100 * 0x10000 + 1) >> 16;
  return (digits & 0x0000ffff0000ffff) * (10'000 * 0x100000000 + 1) >> 32;
}

// Reads numbers, commas and white space up to the closing bracket.
class ListReader {
 public:
  ListReader(std::string_view text, std::size_t begin, std::vector<std::uint32_t>& numbers)
      : text_(text), start_(begin), numbers_(numbers) {}

  // The place of the bracket, or kNowhere when the list is another.
  std::size_t Read() {
    const std::size_t end = ReadUpToEnd();
    numbers_.resize(count_);
    return end;
  }

 private:
  std::size_t ReadUpToEnd() {
    std::size_t at = start_;
    for (; at + kStride <= text_.size(); at += kStride) {
      const Separators found = Look(text_.data() + at);
      if (found.all == found.commas && TakeOrdinary(at, found.commas)) continue;
      for (std::uint64_t mask = found.all; mask != 0; mask &= mask - 1) {
        const std::size_t end = at + static_cast<std::size_t>(std::countr_zero(mask));
        if (!Step(end)) return end_;
      }
    }
    for (; at < text_.size(); ++at) {
      if (!IsDigit(text_[at]) && !Step(at)) return end_;
    }
    return kNowhere;
  }

  // Nearly all of a list of token ids: the numbers that end in a stride without white space. False,
  // and nothing done, where a number is long, missing or written oddly. No branch depends on what
  // the numbers are: they are judged together.
  bool TakeOrdinary(std::size_t stride, std::uint64_t commas) {
    if (number_ || start_ < 8) return false;
    MakeRoom(kStride);
    std::uint32_t* next = numbers_.data() + count_;
    std::size_t start = start_;
    bool odd = false;
    for (; commas != 0; commas &= commas - 1) {
      const std::size_t end = stride + static_cast<std::size_t>(std::countr_zero(commas));
      const std::size_t size = end - start;
      odd |= size - 1 > 7;
      odd |= text_[start] == '0' && size > 1;
      *next++ = static_cast<std::uint32_t>(UpToEightDigits(text_.data() + end, size));
      start = end + 1;
    }
    if (odd) return false;
    start_ = start;
    count_ = static_cast<std::size_t>(next - numbers_.data());
    return true;
  }

  void MakeRoom(std::size_t more) {
    if (numbers_.size() < count_ + more) numbers_.resize(numbers_.size() * 2 + kStride);
  }

  // `end` is the first character from start_ on that is no digit. False: the list ends, at end_.
  bool Step(std::size_t end) {
    if (end != start_ && !Number(end)) return false;
    start_ = end + 1;
    const char c = text_[end];
    if (c == ',') {
      const bool behind_number = number_;
      number_ = false;
      return behind_number;
    }
    if (c == ']' && number_) end_ = end;
    return IsSpace(c);
  }

  bool Number(std::size_t end) {
    const std::size_t size = end - start_;
    if (number_ || (text_[start_] == '0' && size > 1)) return false;
    number_ = true;
    std::uint64_t value = 0;
    if (size <= 8 && end >= 8) {
      value = UpToEightDigits(text_.data() + end, size);
    } else {
      if (size > 10) return false;
      for (std::size_t i = start_; i < end; ++i)
        value = value * 10 + static_cast<std::uint64_t>(text_[i] - '0');
      if (value > std::numeric_limits<std::uint32_t>::max()) return false;
    }
    MakeRoom(1);
    numbers_[count_++] = static_cast<std::uint32_t>(value);
    return true;
  }

  const std::string_view text_;
  std::size_t start_;    // of the number, if there is one before the next separator
  bool number_ = false;  // the last thing read was a number
  std::size_t end_ = kNowhere;
  std::vector<std::uint32_t>& numbers_;  // longer than what was read, until the end
  std::size_t count_ = 0;
};

}  // namespace

std::optional<NumberList> CutNumberList(std::string_view text, std::string& rest) {
  const auto place = FindList(text);
  if (!place) return std::nullopt;
  NumberList list{place->field, {}};
  // Most ids have five digits or more; a longer list grows the vector.
  list.numbers.resize((text.size() - place->begin) / 6 + 1);
  const std::size_t end = ListReader(text, place->begin, list.numbers).Read();
  if (end == kNowhere) return std::nullopt;
  rest.assign(text.substr(0, place->begin));
  rest.append(text.substr(end));
  return list;
}

}  // namespace kvr::service
