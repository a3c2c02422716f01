#include "index/remembered_blocks.h"

#include <algorithm>
#include <utility>

namespace kvr::index {
namespace {

// What of `whole` is before `cut`, in it, and after it.
struct Cut {
  Stretch before;
  Stretch in;
  Stretch after;

  Cut(Stretch whole, Stretch cut) {
    const std::uint32_t begin = std::clamp(cut.begin, whole.begin, whole.end);
    const std::uint32_t end = std::clamp(cut.end, begin, whole.end);
    before = {whole.begin, begin};
    in = {begin, end};
    after = {end, whole.end};
  }
};

}  // namespace

void RememberedBlocks::Add(const Dropped& dropped) {
  size_ += dropped.blocks.size();
  if (!list_.empty() && list_.back().run == dropped.run) {
    Dropped& last = list_.back();
    const bool either = last.blocks.size() == 1;  // a single block goes with both directions
    if ((last.tail_first || either) && (dropped.tail_first || dropped.blocks.size() == 1) &&
        dropped.blocks.end == last.blocks.begin) {
      last.blocks.begin = dropped.blocks.begin;
      last.tail_first = true;
      return;
    }
    if ((!last.tail_first || either) && (!dropped.tail_first || dropped.blocks.size() == 1) &&
        dropped.blocks.begin == last.blocks.end) {
      last.blocks.end = dropped.blocks.end;
      last.tail_first = false;
      return;
    }
  }
  list_.push_back(dropped);
}

RememberedBlocks::Dropped RememberedBlocks::TakeOldest(std::uint32_t count) {
  Dropped& oldest = list_.front();
  Dropped taken = oldest;
  if (taken.blocks.size() > count) {
    if (taken.tail_first) {
      taken.blocks.begin = taken.blocks.end - count;
      oldest.blocks.end = taken.blocks.begin;
    } else {
      taken.blocks.end = taken.blocks.begin + count;
      oldest.blocks.begin = taken.blocks.end;
    }
  } else {
    list_.pop_front();
  }
  size_ -= taken.blocks.size();
  return taken;
}

void RememberedBlocks::Recall(RunId run, Stretch blocks) {
  for (auto it = list_.begin(); it != list_.end();) {
    const Cut cut(it->blocks, blocks);
    if (it->run != run || cut.in.size() == 0) {
      ++it;
      continue;
    }
    size_ -= cut.in.size();
    Dropped first = *it;
    Dropped second = *it;
    first.blocks = first.tail_first ? cut.after : cut.before;
    second.blocks = second.tail_first ? cut.before : cut.after;
    if (first.blocks.size() == 0) std::swap(first, second);
    if (first.blocks.size() == 0) {
      it = list_.erase(it);
      continue;
    }
    *it = first;
    ++it;
    if (second.blocks.size() > 0) it = list_.insert(it, second) + 1;
  }
}

void RememberedBlocks::Move(RunId from, RunId to, Stretch blocks) {
  for (auto it = list_.begin(); it != list_.end(); ++it) {
    const Cut cut(it->blocks, blocks);
    if (it->run != from || cut.in.size() == 0) continue;
    Dropped parts[3] = {*it, *it, *it};
    parts[0].blocks = cut.before;
    parts[1].blocks = cut.in;
    parts[1].run = to;
    parts[2].blocks = cut.after;
    if (it->tail_first) std::swap(parts[0], parts[2]);
    it = list_.erase(it);
    for (const Dropped& part : parts) {
      if (part.blocks.size() > 0) it = list_.insert(it, part) + 1;
    }
    --it;
  }
}

}  // namespace kvr::index
