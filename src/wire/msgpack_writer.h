// Writes MessagePack, each value in its shortest form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvr::wire {

// Appends to `out`, which must outlive the writer. The caller balances containers: after
// Array(n) come n values, after Map(n) n keys and values. Not thread-safe.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void Nil() { Byte(0xc0); }
  void Bool(bool value) { Byte(value ? 0xc3 : 0xc2); }
  void Uint(std::uint64_t value);
  void Int(std::int64_t value);
  void Double(double value);
  void Text(std::string_view text);
  void Bin(std::string_view bytes);
  void Array(std::size_t count);
  void Map(std::size_t pairs);
  // One value that is encoded already.
  void Raw(std::string_view encoded) { out_.append(encoded); }

 private:
  void Byte(unsigned value) { out_.push_back(static_cast<char>(value)); }
  void Big(std::uint64_t value, std::size_t width);

  std::string& out_;
};

}  // namespace kvr::wire
