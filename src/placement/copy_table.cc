#include "placement/copy_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kvr::placement {
namespace {

constexpr std::size_t kSmallest = 64;
constexpr std::size_t kKept = 1'024;  // places; what is not larger keeps its room, empty or not
// A table is halved when fewer than one place in so many is taken. Half of it is then a quarter
// full at most, far from growing again: a rank that stores and removes around one size allocates
// nothing.
constexpr std::size_t kSparse = 8;

}  // namespace

// Where the hash is, or the empty place where it belongs. There is one: the table is never full.
std::size_t CopyTable::PlaceOf(EngineHash hash) const {
  const EngineHash* const keys = keys_.data();
  const std::size_t mask = keys_.size() - 1;
  std::size_t place = HomeOf(hash);
  while (keys[place] != hash && keys[place] != kEmpty)
    place = (place + 1) & mask;
  return place;
}

BlockRecord* CopyTable::Find(EngineHash hash) {
  if (hash == kEmpty) return has_zero_ ? Current(&zero_) : nullptr;
  if (keys_.empty()) return nullptr;
  const std::size_t place = PlaceOf(hash);
  return keys_.data()[place] == hash ? Current(records_.data() + place) : nullptr;
}

BlockRecord* CopyTable::Add(EngineHash hash) {
  if (hash == kEmpty) {
    if (!has_zero_ && size_ >= records_max_) return nullptr;
    if (!has_zero_) ++size_;
    has_zero_ = true;
    return Current(&zero_);
  }
  if ((size_ + 1) * 4 > keys_.size() * 3) Rehash(std::max(kSmallest, keys_.size() * 2));
  const std::size_t place = PlaceOf(hash);
  EngineHash& key = keys_.data()[place];
  if (key == kEmpty) {
    if (size_ >= records_max_) return nullptr;
    ++size_;
    key = hash;
  }
  return Current(records_.data() + place);
}

void CopyTable::ForgetCounts() {
  complete_ = false;
  if (++epoch_ != 0) return;
  const auto forget = [](BlockRecord& record) {
    record.epoch = 0;
    record.copies = {};
  };
  std::for_each(records_.begin(), records_.end(), forget);
  forget(zero_);
}

// Closes the hole by moving up what would not be found across it.
void CopyTable::Erase(BlockRecord* record) {
  --size_;
  if (record == &zero_) {
    has_zero_ = false;
    zero_ = {};
    return;
  }
  EngineHash* const keys = keys_.data();
  BlockRecord* const records = records_.data();
  const std::size_t mask = keys_.size() - 1;
  auto hole = static_cast<std::size_t>(record - records);
  for (std::size_t next = (hole + 1) & mask; keys[next] != kEmpty; next = (next + 1) & mask) {
    const std::size_t home = HomeOf(keys[next]);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    keys[hole] = keys[next];
    records[hole] = records[next];
    hole = next;
  }
  keys[hole] = kEmpty;
  records[hole] = {};
  if (keys_.size() > kKept && size_ * kSparse < keys_.size()) Rehash(keys_.size() / 2);
}

void CopyTable::Clear() {
  if (keys_.size() > kKept) {
    keys_ = std::vector<EngineHash>();  // unlike `= {}`, which keeps the room
    records_ = std::vector<BlockRecord>();
  }
  std::fill(keys_.begin(), keys_.end(), kEmpty);
  std::fill(records_.begin(), records_.end(), BlockRecord{});
  size_ = 0;
  has_zero_ = false;
  zero_ = {};
  used_ = {};
  complete_ = true;
}

void CopyTable::Rehash(std::size_t capacity) {
  const std::vector<EngineHash> keys = std::exchange(keys_, std::vector<EngineHash>(capacity));
  const std::vector<BlockRecord> records =
      std::exchange(records_, std::vector<BlockRecord>(capacity));
  shift_ = static_cast<unsigned>(64 - std::countr_zero(capacity));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == kEmpty) continue;
    const std::size_t place = PlaceOf(keys[i]);
    keys_[place] = keys[i];
    records_[place] = records[i];
  }
}

}  // namespace kvr::placement
