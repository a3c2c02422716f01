#include "load/booking.h"

#include "load/load_book.h"

namespace kvr::load {

Booking& Booking::operator=(Booking&& other) noexcept {
  if (this == &other) return *this;
  Free();
  book_ = std::exchange(other.book_, nullptr);
  key_ = other.key_;
  generated_ = other.generated_;
  covered_ = other.covered_;
  return *this;
}

void Booking::PrefillDone() {
  if (book_ != nullptr) book_->PrefillDone(key_);
}

void Booking::AddOutput(std::uint64_t tokens) {
  generated_ += tokens;
  if (book_ != nullptr && generated_ > covered_) covered_ = book_->AddOutput(key_, generated_);
}

void Booking::Free() {
  if (LoadBook* book = std::exchange(book_, nullptr))
    book->Release(key_, LoadBook::AtRelease::kEnd);
}

void Booking::Detach() {
  if (LoadBook* book = std::exchange(book_, nullptr))
    book->Release(key_, LoadBook::AtRelease::kKeep);
}

}  // namespace kvr::load
