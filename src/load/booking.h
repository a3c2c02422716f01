// The right to a share of one rank's load, given back exactly once.
#pragma once

#include <cstdint>
#include <utility>

namespace kvr::load {

class LoadBook;

// Names one booking of a book for ever: an entry that is used again has another generation.
struct BookingKey {
  std::uint32_t entry = 0;
  std::uint32_t generation = 0;
};

// What one request costs its rank, from the decision to the end of the answer. Move-only; gives
// everything back when destroyed. The book must outlive it.
//
// Not thread-safe: one owner at a time, who may be on any thread. The book may drop a booking on
// its own (expiry, rank removed, freed by request id); every call is then harmless and changes
// nothing.
class Booking {
 public:
  Booking() = default;
  Booking(Booking&& other) noexcept
      : book_(std::exchange(other.book_, nullptr)),
        key_(other.key_),
        generated_(other.generated_),
        covered_(other.covered_) {}
  Booking& operator=(Booking&& other) noexcept;
  ~Booking() { Free(); }

  // False when empty: never booked, moved from, freed or detached.
  explicit operator bool() const { return book_ != nullptr; }

  // The first tokens of the answer are here: the rank no longer prefills for this request.
  // Repeating it changes nothing.
  void PrefillDone();

  // `tokens` more were generated. Takes the book's lock only when the answer grows into a new
  // block.
  void AddOutput(std::uint64_t tokens);

  // Gives the load back now. Repeating it changes nothing.
  void Free();

  // Leaves the booking in the book, to be reached by its request id and in the end by expiry.
  void Detach();

 private:
  friend class LoadBook;

  Booking(LoadBook& book, BookingKey key, std::uint64_t covered)
      : book_(&book), key_(key), covered_(covered) {}

  LoadBook* book_ = nullptr;
  BookingKey key_;
  std::uint64_t generated_ = 0;  // tokens
  std::uint64_t covered_ = 0;    // generated tokens that the booked blocks have room for
};

}  // namespace kvr::load
