#include "publish/event_ring.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvr::publish {

Result<void> EventRing::Options::Validate() const {
  if (events_max == 0 || bytes_max == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "the ring of published events needs room for at least one event and one byte");
  }
  return {};
}

EventRing::EventRing(const Options& options) : options_(options) {
  records_.resize(options_.events_max);
}

void EventRing::Append(std::uint64_t id, std::string_view bytes, Clears clears) {
  KVR_CHECK(id > last_ && !bytes.empty());
  if (last_ != 0 && id != last_ + 1) ++holes_;
  last_ = id;
  if (bytes.size() > options_.bytes_max) {
    while (count_ > 0)
      DropOldest();
    return;
  }
  if (count_ == options_.events_max) DropOldest();
  std::optional<std::size_t> offset = Room(bytes.size());
  while (!offset) {
    if (!Grow(bytes.size())) DropOldest();
    offset = Room(bytes.size());
  }
  std::copy(bytes.begin(), bytes.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(*offset));
  records_[(oldest_ + count_) % records_.size()] = {id, *offset, bytes.size(), clears};
  ++count_;
  bytes_ += bytes.size();
}

EventRing::Range EventRing::Query(std::optional<std::uint64_t> start,
                                  std::optional<std::uint64_t> end) const {
  Range range;
  range.last = last_;
  if (start && end && *end < *start) {
    range.answer = RangeAnswer::kInvalidRange;
    return range;
  }
  if (!start || count_ == 0) return range;
  if (*start > last_) {
    range.answer = RangeAnswer::kTooNew;
    return range;
  }
  if (*start < first()) return range;
  range.answer = RangeAnswer::kEvents;
  std::size_t begin = PlaceOf(*start);
  for (std::size_t i = count_; i-- > begin + 1;) {
    if (At(i).clears != Clears::kAll) continue;
    begin = i;
    break;
  }
  range.first = At(begin).id;
  range.count = count_ - begin;
  return range;
}

void EventRing::Copy(const Range& range, std::string& out) const {
  const std::size_t begin = PlaceOf(range.first);
  KVR_CHECK(begin + range.count <= count_);
  for (std::size_t i = begin; i < begin + range.count; ++i)
    out.append(buffer_, At(i).offset, At(i).size);
}

std::uint64_t EventRing::first() const {
  return count_ == 0 ? 0 : At(0).id;
}

bool EventRing::IsPlainTail(std::uint64_t cursor) const {
  if (cursor == last_) return true;
  if (cursor > last_ || count_ == 0 || cursor + 1 < first()) return false;
  const std::size_t begin = PlaceOf(cursor + 1);
  if (count_ - begin != last_ - cursor) return false;  // a hole
  for (std::size_t i = begin; i < count_; ++i) {
    if (At(i).clears != Clears::kNothing) return false;
  }
  return true;
}

const EventRing::Record& EventRing::At(std::size_t i) const {
  return records_[(oldest_ + i) % records_.size()];
}

std::size_t EventRing::PlaceOf(std::uint64_t id) const {
  std::size_t low = 0;
  std::size_t high = count_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (At(middle).id < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::optional<std::size_t> EventRing::Room(std::size_t size) const {
  const auto fits = [size](std::size_t begin, std::size_t end) {
    return begin <= end && size <= end - begin;
  };
  if (count_ == 0) return fits(0, buffer_.size()) ? std::optional<std::size_t>(0) : std::nullopt;
  const std::size_t begin = At(0).offset;
  const Record& newest = At(count_ - 1);
  const std::size_t end = newest.offset + newest.size;
  const bool wrapped = newest.offset < begin;
  if (fits(end, wrapped ? begin : buffer_.size())) return end;
  if (!wrapped && fits(0, begin)) return 0;
  return std::nullopt;
}

bool EventRing::Grow(std::size_t size) {
  constexpr std::size_t kFirstBytes = 64u << 10;
  if (buffer_.size() >= options_.bytes_max) return false;
  const std::size_t wanted = std::max({kFirstBytes, buffer_.size() * 2, bytes_ + size});
  std::string bigger(std::min(wanted, options_.bytes_max), '\0');
  std::size_t at = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    Record& record = records_[(oldest_ + i) % records_.size()];
    buffer_.copy(bigger.data() + at, record.size, record.offset);
    record.offset = at;
    at += record.size;
  }
  buffer_ = std::move(bigger);
  return true;
}

void EventRing::DropOldest() {
  bytes_ -= At(0).size;
  oldest_ = (oldest_ + 1) % records_.size();
  --count_;
}

}  // namespace kvr::publish
