#include "index/run_planes.h"

#include <algorithm>

namespace kvr::index {
namespace {

bool BySlot(const Partial& part, std::uint32_t slot) {
  return part.slot < slot;
}

Stretch Common(Stretch a, Stretch b) {
  const std::uint32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

template <typename F>
void ForEachSlot(std::uint64_t word, std::size_t w, F&& f) {
  for (; word != 0; word &= word - 1) {
    f(static_cast<std::uint32_t>(w * PlaneView::kWordBits) +
      static_cast<std::uint32_t>(std::countr_zero(word)));
  }
}

}  // namespace

void PlaneView::AppendSlots(std::vector<std::uint32_t>& slots) const {
  for (std::size_t w = 0; w < whole.size(); ++w)
    ForEachSlot(whole[w], w, [&slots](std::uint32_t slot) { slots.push_back(slot); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == 0 || parts[i].slot != parts[i - 1].slot) slots.push_back(parts[i].slot);
  }
}

std::span<const Partial> PlaneView::PartsOf(std::uint32_t slot) const {
  const auto first = std::lower_bound(parts.begin(), parts.end(), slot, BySlot);
  auto last = first;
  while (last != parts.end() && last->slot == slot)
    ++last;
  return {first, last};
}

Stretch PlaneView::Around(std::uint32_t slot, std::uint32_t depth, Stretch run) const {
  if (HasWhole(slot)) return run;
  for (const Partial& part : PartsOf(slot)) {
    if (part.held.Has(depth)) return part.held;
  }
  return {depth, depth};
}

std::uint32_t PlaneView::Count(std::uint32_t slot, Stretch asked) const {
  if (HasWhole(slot)) return asked.size();
  std::uint32_t count = 0;
  for (const Partial& part : PartsOf(slot))
    count += Common(part.held, asked).size();
  return count;
}

void PlaneDraft::Assign(const PlaneView& from) {
  whole_.assign(from.whole.begin(), from.whole.end());
  parts_.assign(from.parts.begin(), from.parts.end());
}

void PlaneDraft::Clear() {
  whole_.clear();
  parts_.clear();
}

PlaneDraft::Parts::iterator PlaneDraft::FirstOf(std::uint32_t slot) {
  return std::lower_bound(parts_.begin(), parts_.end(), slot, BySlot);
}

void PlaneDraft::SetWhole(std::uint32_t slot) {
  const std::size_t w = slot / PlaneView::kWordBits;
  if (w >= whole_.size()) whole_.resize(w + 1);
  whole_[w] |= std::uint64_t{1} << (slot % PlaneView::kWordBits);
}

std::uint32_t PlaneDraft::Add(std::uint32_t slot, Stretch held, Stretch run) {
  if (held.size() == 0 || view().HasWhole(slot)) return 0;
  std::uint32_t added = held.size();
  auto first = FirstOf(slot);
  while (first != parts_.end() && first->slot == slot && first->held.end < held.begin)
    ++first;
  Stretch merged = held;
  auto last = first;
  for (; last != parts_.end() && last->slot == slot && last->held.begin <= held.end; ++last) {
    added -= Common(last->held, held).size();
    merged = {std::min(merged.begin, last->held.begin), std::max(merged.end, last->held.end)};
  }
  if (merged == run) {
    parts_.erase(first, last);
    SetWhole(slot);
  } else if (first != last) {
    first->held = merged;
    parts_.erase(first + 1, last);
  } else {
    parts_.insert(first, Partial{slot, merged});
  }
  return added;
}

std::uint32_t PlaneDraft::Remove(std::uint32_t slot, Stretch held, Stretch run) {
  if (held.size() == 0) return 0;
  auto at = FirstOf(slot);
  if (view().HasWhole(slot)) {
    ClearWhole(slot);
    at = parts_.insert(at, Partial{slot, run});
  }
  std::uint32_t removed = 0;
  while (at != parts_.end() && at->slot == slot) {
    const Stretch part = at->held;
    const Stretch cut = Common(part, held);
    if (cut.size() == 0) {
      ++at;
      continue;
    }
    removed += cut.size();
    const Stretch before{part.begin, cut.begin};
    const Stretch after{cut.end, part.end};
    if (before.size() == 0 && after.size() == 0) {
      at = parts_.erase(at);
      continue;
    }
    at->held = before.size() > 0 ? before : after;
    ++at;
    if (before.size() > 0 && after.size() > 0) at = parts_.insert(at, Partial{slot, after}) + 1;
  }
  return removed;
}

void PlaneDraft::Drop(std::uint32_t slot) {
  if (view().HasWhole(slot)) ClearWhole(slot);
  const auto first = FirstOf(slot);
  auto last = first;
  while (last != parts_.end() && last->slot == slot)
    ++last;
  parts_.erase(first, last);
}

void PlaneDraft::Lengthen(Stretch run) {
  for (std::size_t w = 0; w < whole_.size(); ++w) {
    const std::uint64_t word = whole_[w];
    whole_[w] = 0;
    ForEachSlot(word, w, [&](std::uint32_t slot) {
      parts_.insert(FirstOf(slot), Partial{slot, run});
    });
  }
}

void PlaneDraft::Shorten(Stretch run) {
  Parts kept;
  for (Partial& part : parts_) {
    part.held = Common(part.held, run);
    if (part.held == run) {
      SetWhole(part.slot);
    } else if (part.held.size() > 0) {
      kept.push_back(part);
    }
  }
  parts_.swap(kept);
}

void PlaneDraft::CopyStretch(Stretch run, PlaneDraft& part) const {
  part = *this;
  part.Shorten(run);
}

void PlaneDraft::Join(const PlaneView& tail, std::uint32_t middle, Stretch run) {
  const std::size_t words = std::max(whole_.size(), tail.whole.size());
  whole_.resize(words);
  Parts joined = parts_;
  joined.insert(joined.end(), tail.parts.begin(), tail.parts.end());
  for (std::size_t w = 0; w < words; ++w) {
    const std::uint64_t head_only = whole_[w] & ~tail.Word(w);
    const std::uint64_t tail_only = tail.Word(w) & ~whole_[w];
    whole_[w] &= tail.Word(w);
    ForEachSlot(head_only, w, [&](std::uint32_t slot) {
      joined.push_back({slot, {run.begin, middle}});
    });
    ForEachSlot(tail_only, w, [&](std::uint32_t slot) {
      joined.push_back({slot, {middle, run.end}});
    });
  }
  std::sort(joined.begin(), joined.end(), [](const Partial& a, const Partial& b) {
    return a.slot != b.slot ? a.slot < b.slot : a.held.begin < b.held.begin;
  });
  parts_.clear();
  for (const Partial& part : joined)
    Add(part.slot, part.held, run);
}

std::size_t PlaneDraft::PartsOfJoin(const PlaneView& head, const PlaneView& tail) {
  std::size_t parts = head.parts.size() + tail.parts.size();
  for (std::size_t w = 0; w < std::max(head.whole.size(), tail.whole.size()); ++w)
    parts += static_cast<std::size_t>(std::popcount(head.Word(w) ^ tail.Word(w)));
  return parts;
}

}  // namespace kvr::index
