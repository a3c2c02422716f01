// The right to a share of one rank's load, given back exactly once.
#pragma once

#include <cstdint>
#include <utility>

#include "model/ids.h"

namespace kvr::load {

class LoadBook;

// What one request costs its rank, from the decision to the end of the answer. Move-only; gives
// everything back when destroyed. The book must outlive it.
//
// Not thread-safe: one owner at a time, who may be on any thread. The book may drop a booking on
// its own (expiry, rank removed, free by request id); every call is then harmless and changes
// nothing.
class Booking {
 public:
  Booking() = default;
  Booking(Booking&& other) noexcept
      : book_(std::exchange(other.book_, nullptr)), key_(other.key_), output_(other.output_) {}
  Booking& operator=(Booking&& other) noexcept;
  ~Booking() { Free(); }

  // False when empty: never booked, moved from or freed.
  explicit operator bool() const { return book_ != nullptr; }

  // The first tokens of the answer are here: the rank no longer prefills for this request.
  // Repeating it changes nothing.
  void PrefillDone();

  // `tokens` more were generated. Takes the book's lock only when the answer grows into a new
  // block.
  void AddOutput(std::uint64_t tokens);

  // Gives the load back now. Repeating it changes nothing.
  void Free();

 private:
  friend class LoadBook;

  // Names one booking of a book for ever: an entry that was used again has another generation.
  struct Key {
    std::uint32_t entry = 0;
    std::uint32_t generation = 0;
  };
  // How far the answer is; the block in progress costs from its first token on.
  struct Output {
    std::uint64_t tokens = 0;     // prompt and answer so far
    std::uint64_t block_end = 0;  // in tokens: the booked blocks cover as much
  };

  Booking(LoadBook* book, Key key, Output output) : book_(book), key_(key), output_(output) {}

  LoadBook* book_ = nullptr;
  Key key_;
  Output output_;
};

}  // namespace kvr::load
