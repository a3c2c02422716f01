#include "index/run_state.h"

#include <algorithm>
#include <new>

namespace kvr::index {

RunState::Ptr RunState::Make(const Fields& fields,
                             const std::array<PlaneDraft, kPlaneCount>& planes,
                             std::uint64_t used_at) {
  std::uint32_t bitmaps = 0;
  std::size_t words = 0;
  std::size_t parts = 0;
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    const PlaneView view = planes[plane].view();
    std::size_t used = view.whole.size();
    while (used > 0 && view.whole[used - 1] == 0)
      --used;
    if (used > 0) bitmaps |= 1u << plane;
    words = std::max(words, used);
    parts += view.parts.size();
  }
  const auto bitmap_count = RunState::CountBits(bitmaps);
  void* const memory = ::operator new(BytesFor(words * bitmap_count, parts));
  auto* const state = new (memory) RunState(fields, used_at);
  state->words_ = static_cast<std::uint32_t>(words);
  state->bitmaps_ = bitmaps;
  auto* word = new (state + 1) std::uint64_t[std::max<std::size_t>(words * bitmap_count, 1)];
  auto* part = reinterpret_cast<Partial*>(word + words * bitmap_count);
  std::uint32_t parts_so_far = 0;
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    const PlaneView view = planes[plane].view();
    if ((bitmaps >> plane) & 1u) {
      const std::size_t used = std::min(words, view.whole.size());
      std::copy_n(view.whole.data(), used, word);
      std::fill(word + used, word + words, 0);
      word += words;
    }
    part = std::uninitialized_copy(view.parts.begin(), view.parts.end(), part);
    parts_so_far += static_cast<std::uint32_t>(view.parts.size());
    state->parts_end_[plane] = parts_so_far;
  }
  return Ptr(state);
}

const RunState* RunDirectory::FindChild(RunId parent, std::uint32_t generation, std::uint32_t depth,
                                        BlockHash local, RunId& id) const {
  const RunState* found = nullptr;
  children.Probe(children.Hash(parent, depth, local), [&](RunId candidate) {
    Fetch(candidate);
    const RunState* const state = StateOf(candidate);
    if (state == nullptr || state->first_local != Raw(local)) return false;
    const RunState::Fields& fields = state->fields;
    if (fields.parent != parent || fields.blocks.begin != depth) return false;
    // A run hung on what the parent became later belongs to another chain.
    if (fields.parent_generation > generation) return false;
    found = state;
    id = candidate;
    return true;
  });
  return found;
}

}  // namespace kvr::index
