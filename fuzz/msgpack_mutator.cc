// Mutations that keep MessagePack well formed, so that the fuzzer spends its time on meaning: one
// value of the input is exchanged for another one of it or for one out of a list of awkward ones.
// One time in four, and where the input is no MessagePack, the fuzzer's own mutation is taken.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "wire/msgpack_reader.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed);

namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kAwkward = {
    "\xc0"sv,                                  // nil
    "\xc3"sv,                                  // true
    "\x00"sv,                                  // 0
    "\xff"sv,                                  // -1
    "\xcc\xff"sv,                              // 255
    "\xcd\xff\xff"sv,                          // 65,535
    "\xce\xff\xff\xff\xff"sv,                  // 2^32 - 1
    "\xcf\x00\x00\x00\x01\x00\x00\x00\x00"sv,  // 2^32
    "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"sv,  // 2^64 - 1
    "\xd3\x80\x00\x00\x00\x00\x00\x00\x00"sv,  // -2^63
    "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"sv,  // not a number
    "\xa0"sv,                                  // ""
    "\xa1\xff"sv,                              // no UTF-8
    "\xa3GPU"sv,
    "\xaa"
    "CPU_PINNED"sv,
    "\xae"
    "full_attention"sv,
    "\xae"
    "sliding_window"sv,
    "\xc4\x00"sv,                                  // empty bin
    "\xc4\x08\x01\x02\x03\x04\x05\x06\x07\x08"sv,  // 8 bytes
    "\x90"sv,                                      // []
    "\x91\xc0"sv,                                  // [nil]
    "\x92\x01\x02"sv,                              // [1, 2]
    "\x80"sv,                                      // {}
    "\x81\xa4type\xab"
    "BlockStored"sv,
    "\xd4\x01\x02"sv,  // an extension
};

struct Value {
  std::size_t begin;
  std::size_t end;
};

// Every value, containers and what is in them; empty when the input has no end.
std::vector<Value> ValuesOf(std::span<const std::byte> input) {
  std::vector<Value> values;
  struct Open {
    std::size_t value;
    std::uint64_t left;
  };
  std::vector<Open> open;
  kvr::wire::MsgpackReader in(input);
  while (in.left() > 0 || !open.empty()) {
    const std::size_t begin = in.offset();
    kvr::wire::MsgpackItem item;
    if (!in.Read(item)) return {};
    values.push_back({begin, in.offset()});
    std::uint64_t inside = 0;
    if (item.kind == kvr::wire::MsgpackItem::Kind::kArray) inside = item.number;
    if (item.kind == kvr::wire::MsgpackItem::Kind::kMap) inside = 2 * item.number;
    open.push_back({values.size() - 1, inside + 1});
    while (!open.empty() && --open.back().left == 0) {
      values[open.back().value].end = in.offset();
      open.pop_back();
    }
  }
  return values;
}

}  // namespace

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                    unsigned seed) {
  kvr::Rng rng(seed);
  const auto input = std::as_bytes(std::span(data, size));
  const std::vector<Value> values = ValuesOf(input);
  if (values.empty() || rng.Below(4) == 0) return LLVMFuzzerMutate(data, size, size_max);
  const Value out = values[rng.Below(values.size())];
  std::vector<std::uint8_t> with;
  if (rng.Below(2) == 0) {
    const Value in = values[rng.Below(values.size())];
    with.assign(data + in.begin, data + in.end);
  } else {
    const std::string_view awkward = kAwkward[rng.Below(kAwkward.size())];
    with.assign(awkward.begin(), awkward.end());
  }
  const std::size_t changed = size - (out.end - out.begin) + with.size();
  if (changed > size_max) return LLVMFuzzerMutate(data, size, size_max);
  const std::vector<std::uint8_t> tail(data + out.end, data + size);
  std::copy(with.begin(), with.end(), data + out.begin);
  std::copy(tail.begin(), tail.end(), data + out.begin + with.size());
  return changed;
}
