#include "index/run_set.h"

#include <utility>

namespace kvr::index {

void RunSet::Resize(std::size_t size) {
  std::vector<RunId> old(size, kRootRun);
  old.swap(slots_);
  hand_ = 0;
  for (const RunId run : old) {
    if (run == kRootRun) continue;
    std::size_t i = Home(run);
    while (slots_[i] != kRootRun)
      i = (i + 1) & (slots_.size() - 1);
    slots_[i] = run;
  }
}

void RunSet::Add(RunId run) {
  constexpr std::size_t kSmallest = 8;
  if (slots_.empty()) slots_.resize(kSmallest, kRootRun);
  std::size_t i = Home(run);
  for (; slots_[i] != kRootRun; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i] == run) return;
  }
  slots_[i] = run;
  if (++size_ * 4 > slots_.size() * 3) Resize(slots_.size() * 2);
}

void RunSet::Erase(RunId run) {
  if (slots_.empty()) return;
  std::size_t i = Home(run);
  for (; slots_[i] != run; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i] == kRootRun) return;
  }
  EraseAt(i);
}

RunId RunSet::Next() {
  do {
    hand_ = (hand_ + 1) & (slots_.size() - 1);
  } while (slots_[hand_] == kRootRun);
  return slots_[hand_];
}

RunId RunSet::Take() {
  while (slots_[hand_] == kRootRun)
    hand_ = (hand_ + 1) & (slots_.size() - 1);
  const RunId run = slots_[hand_];
  EraseAt(hand_);
  return run;
}

void RunSet::EraseAt(std::size_t i) {
  const std::size_t mask = slots_.size() - 1;
  // What follows moves up unless that would put it before its home.
  for (std::size_t next = (i + 1) & mask; slots_[next] != kRootRun; next = (next + 1) & mask) {
    if (((next - Home(slots_[next])) & mask) < ((next - i) & mask)) continue;
    slots_[i] = slots_[next];
    i = next;
  }
  slots_[i] = kRootRun;
  if (--size_ == 0) {
    std::vector<RunId>().swap(slots_);
    hand_ = 0;
  } else if (slots_.size() > 16 && size_ * 8 < slots_.size()) {
    Resize(slots_.size() / 4);
  }
}

}  // namespace kvr::index
