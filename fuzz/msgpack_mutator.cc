// Mutations that keep MessagePack well formed, so that the fuzzer spends its time on meaning: one
// value of the input is exchanged for another one of it or for one out of a list of awkward ones.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "value_mutator.h"
#include "wire/msgpack_reader.h"

namespace kvr::fuzz {
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

// Every value, containers and what is in them; empty when the input has no end.
std::vector<Part> ValuesOf(std::span<const std::byte> input) {
  std::vector<Part> values;
  struct Open {
    std::size_t value;
    std::uint64_t left;
  };
  std::vector<Open> open;
  wire::MsgpackReader in(input);
  while (in.left() > 0 || !open.empty()) {
    const std::size_t begin = in.offset();
    wire::MsgpackItem item;
    if (!in.Read(item)) return {};
    values.push_back({begin, in.offset()});
    std::uint64_t inside = 0;
    if (item.kind == wire::MsgpackItem::Kind::kArray) inside = item.number;
    if (item.kind == wire::MsgpackItem::Kind::kMap) inside = 2 * item.number;
    open.push_back({values.size() - 1, inside + 1});
    while (!open.empty() && --open.back().left == 0) {
      values[open.back().value].end = in.offset();
      open.pop_back();
    }
  }
  return values;
}

}  // namespace

std::vector<std::uint8_t> MutatedMsgpack(std::span<const std::byte> input, kvr::Rng& rng) {
  return WithOneExchanged(input, ValuesOf(input), kAwkward, rng);
}

}  // namespace kvr::fuzz
