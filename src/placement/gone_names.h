// Where the device had blocks of which no copy is left. Private to the module.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ids.h"

namespace kvr::placement {

// The last names that went, and the place of each (see BlockRecord::place): copies off the device
// may be announced after the block left it, by somebody who does not know where it was. Knows the
// last kNotes names at least.
//
// Most ranks note much and ask nothing: a note is written to a ring, which is sorted into a table
// when somebody asks. The table has small buckets, of which the oldest name of a full one gives
// way; that is one in 100,000 of the last kNotes. Two names of a bucket that agree in 32 bits are
// one. Not thread-safe. Allocates with the first note and the first question.
class GoneNames {
 public:
  static constexpr std::size_t kNotes = 4'096;

  void Note(EngineHash name, std::uint32_t place) {
    if (noted_ < kNotes) [[unlikely]] {
      Append({name, place});
    } else {
      ring_.data()[noted_ % kNotes] = {name, place};
    }
    ++noted_;
  }
  // Its last place; 0 when that is not known.
  [[nodiscard]] std::uint32_t Find(EngineHash name) {
    if (noted_ == 0) return 0;
    Sort();
    const Bucket& bucket = buckets_[BucketOf(name)];
    const auto slot = std::find_if(bucket.begin(), bucket.end(), [&](const Slot& one) {
      return one.place != 0 && one.tag == TagOf(name);
    });
    return slot == bucket.end() ? 0 : slot->place;
  }
  void Clear() {
    std::fill(buckets_.begin(), buckets_.end(), Bucket{});
    ring_.clear();
    noted_ = 0;
    sorted_ = 0;
  }

 private:
  struct Gone {
    EngineHash name{};
    std::uint32_t place = 0;
  };
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t place = 0;  // 0: empty
  };
  using Bucket = std::array<Slot, 16>;  // the newest first
  static constexpr unsigned kBucketBits = 10;

  [[gnu::noinline]] void Append(Gone gone) {
    ring_.reserve(kNotes);
    ring_.push_back(gone);
  }

  void Sort() {
    if (buckets_.empty()) buckets_.resize(std::size_t{1} << kBucketBits);
    if (noted_ - sorted_ > kNotes) sorted_ = noted_ - kNotes;
    for (; sorted_ < noted_; ++sorted_) {
      const Gone& gone = ring_[sorted_ % kNotes];
      Bucket& bucket = buckets_[BucketOf(gone.name)];
      std::copy_backward(bucket.begin(), bucket.end() - 1, bucket.end());
      bucket.front() = {TagOf(gone.name), gone.place};
    }
  }

  static std::uint64_t Spread(EngineHash name) { return Raw(name) * 0x9E3779B97F4A7C15u; }
  // From other bits of the product, all of which depend on most of the name.
  static std::size_t BucketOf(EngineHash name) { return Spread(name) >> (64 - kBucketBits); }
  static std::uint32_t TagOf(EngineHash name) {
    return static_cast<std::uint32_t>(Spread(name) >> (32 - kBucketBits));
  }

  std::vector<Gone> ring_;    // what is noted n-th is at n % kNotes
  std::uint64_t noted_ = 0;   // so many, since the last Clear
  std::uint64_t sorted_ = 0;  // so many of them into buckets
  std::vector<Bucket> buckets_;
};

}  // namespace kvr::placement
