// What queries see of a run, and where they find it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "index/alias_column.h"
#include "index/child_table.h"
#include "index/heap_bytes.h"
#include "index/prefetch.h"
#include "index/run_planes.h"
#include "index/stable_array.h"
#include "model/ids.h"

namespace kvr::index {

// Names a run. Its number is used again once nobody can know it any more.
using RunId = std::uint32_t;
inline constexpr RunId kRootRun = 0;

// A stretch of one chain of blocks, at one moment: it never changes, a change of the run makes
// another. Blocks are counted from the root: a run that begins at depth d hangs on its parent's
// block d-1, in the middle or at the end of the parent.
//
// One allocation: the bitmaps and parts of the planes follow the struct.
class RunState {
 public:
  struct Fields {
    RunId parent = kRootRun;
    Stretch blocks;
    // Rises when blocks leave the run at its end, so that what replaces them is told apart.
    std::uint32_t generation = 0;
    std::uint32_t parent_generation = 0;     // of the parent when this run was hung there
    const std::uint64_t* locals = nullptr;   // block hashes, from blocks.begin on
    const std::uint64_t* engines = nullptr;  // the names most ranks use for them
    const AliasList* aliases = nullptr;      // the others'; null when there are none
  };
  struct Deleter {
    void operator()(const RunState* state) const {
      ::operator delete(const_cast<RunState*>(state));
    }
  };
  using Ptr = std::unique_ptr<const RunState, Deleter>;

  static Ptr Make(const Fields& fields, const std::array<PlaneDraft, kPlaneCount>& planes,
                  std::uint64_t used_at);

  const Fields fields;
  const std::uint64_t first_local;

  // When a query last ended in the run, or a store last reached it, by the clock of the index; the
  // one thing that changes, and only where the clock moved since.
  [[nodiscard]] std::uint64_t used_at() const { return used_at_.load(std::memory_order_relaxed); }
  void SetUsedAt(std::uint64_t now) const {
    if (used_at() != now) used_at_.store(now, std::memory_order_relaxed);
  }

  [[nodiscard]] PlaneView View(std::size_t plane) const {
    PlaneView view;
    const std::uint32_t bit = 1u << plane;
    if (bitmaps_ & bit) view.whole = {words() + CountBits(bitmaps_ & (bit - 1)) * words_, words_};
    const std::uint32_t begin = plane == 0 ? 0 : parts_end_[plane - 1];
    if (begin < parts_end_[plane]) {
      const auto* parts = reinterpret_cast<const Partial*>(words() + all_words());
      view.parts = {parts + begin, parts_end_[plane] - begin};
    }
    return view;
  }
  [[nodiscard]] EngineHash NameOf(std::uint32_t slot, std::uint32_t depth) const {
    if (fields.aliases) {
      if (const AliasColumn* own = fields.aliases->Find(slot)) {
        if (const auto name = own->At(depth)) return *name;
      }
    }
    return static_cast<EngineHash>(fields.engines[depth - fields.blocks.begin]);
  }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(BytesFor(all_words(), parts_end_.back()));
  }

 private:
  RunState(const Fields& fields_in, std::uint64_t used_at)
      : fields(fields_in), first_local(fields_in.locals[0]), used_at_(used_at) {}

  static std::size_t BytesFor(std::size_t words, std::size_t parts) {
    return sizeof(RunState) + words * sizeof(std::uint64_t) + parts * sizeof(Partial);
  }
  // Of a mask of planes: the instruction for it is not in every processor we build for.
  static std::size_t CountBits(std::uint32_t planes) {
    static_assert(kPlaneCount <= 6);
    constexpr std::uint64_t kCounts = 0x4332322132212110;  // of four bits, in four bits each
    return (kCounts >> (planes % 16 * 4) & 15) + (kCounts >> (planes / 16 * 4) & 15);
  }
  [[nodiscard]] std::size_t all_words() const { return words_ * CountBits(bitmaps_); }
  [[nodiscard]] const std::uint64_t* words() const {
    return reinterpret_cast<const std::uint64_t*>(this + 1);
  }

  mutable std::atomic<std::uint64_t> used_at_;
  std::uint32_t words_ = 0;    // in each bitmap
  std::uint32_t bitmaps_ = 0;  // planes that have one, a bit each
  std::array<std::uint32_t, kPlaneCount> parts_end_{};
};

// A run as queries find it.
struct RunCell {
  std::atomic<const RunState*> state{nullptr};  // null: not in use
  // Where its block hashes are, likely: queries fetch them together with the state.
  std::atomic<const std::uint64_t*> locals{nullptr};
  // The runs that hang on it, as a list. One that was taken off still leads to those behind it, for
  // its number is not used again while a query may stand there.
  std::atomic<RunId> first_child{kRootRun};
  std::atomic<RunId> next_sibling{kRootRun};

  // The state that was there is out of reach then.
  RunState::Ptr Exchange(RunState::Ptr next) {
    if (next != nullptr) locals.store(next->fields.locals, std::memory_order_relaxed);
    return RunState::Ptr(state.exchange(next.release(), std::memory_order_seq_cst));
  }
};

// Counts how often runs passed blocks and children on to others. A query that misses its next run
// meanwhile may have looked for it where it no longer hangs, or does not hang yet.
class Reshapes {
 public:
  // For as long as it lives, runs are between two shapes.
  class Under {
   public:
    explicit Under(Reshapes& reshapes) : count_(reshapes.count_) { count_.fetch_add(1); }
    ~Under() { count_.fetch_add(1); }
    Under(const Under&) = delete;
    Under& operator=(const Under&) = delete;

   private:
    std::atomic<std::uint64_t>& count_;
  };

  // Before the first look. Whoever sees a change of the writer's sees the count from before it.
  [[nodiscard]] std::uint64_t Seen() const { return count_.load(std::memory_order_acquire); }
  [[nodiscard]] bool SawOneShape(std::uint64_t seen) const {
    return seen % 2 == 0 && Seen() == seen;
  }

 private:
  std::atomic<std::uint64_t> count_{0};  // odd: under way
};

// All runs.
struct RunDirectory {
  explicit RunDirectory(std::uint64_t seed) : children(seed) { runs.Reserve(kRootRun + 1); }

  // Brings what a query reads of the run on its way, if it is there.
  void Fetch(RunId id) const {
    constexpr std::size_t kFetched = 24;  // blocks; the processor sees the others come
    constexpr std::size_t kLine = 8;
    const std::uint64_t* const locals = runs[id].locals.load(std::memory_order_relaxed);
    index::Prefetch(runs[id].state.load(std::memory_order_relaxed));
    for (std::size_t i = 0; i < kFetched; i += kLine)
      index::PrefetchAt(locals, i);
  }
  [[nodiscard]] const RunState* StateOf(RunId id) const {
    // Pairs with the writer's store: who sees the pointer sees the state.
    return runs[id].state.load(std::memory_order_seq_cst);
  }
  // The run that begins with block `local` at `depth` on a parent that had `generation` when the
  // query read it. Null when there is none. `id` is its number.
  [[nodiscard]] const RunState* FindChild(RunId parent, std::uint32_t generation,
                                          std::uint32_t depth, BlockHash local, RunId& id) const;
  // The same of a block of which only `wanted` is known. Looks at no more than `most` of the runs
  // that hang on the parent, and takes them off `most`.
  template <typename Wanted>
  [[nodiscard]] const RunState* FindChildIf(RunId parent, std::uint32_t generation,
                                            std::uint32_t depth, std::size_t& most,
                                            const Wanted& wanted, RunId& id) const {
    for (RunId child = FirstChild(parent); child != kRootRun && most > 0; child = NextOf(child)) {
      --most;
      const RunState* const state = StateOf(child);
      if (state == nullptr) continue;
      const RunState::Fields& fields = state->fields;
      if (fields.parent != parent || fields.blocks.begin != depth ||
          fields.parent_generation > generation || !wanted(BlockHash{state->first_local}))
        continue;
      id = child;
      return state;
    }
    return nullptr;
  }
  // Pair with the writer's stores: who sees the number sees the cell. Sequentially consistent as a
  // number of an older list may be another run's by now, whose siblings are others'; see Epoch.
  [[nodiscard]] RunId FirstChild(RunId run) const {
    return runs[run].first_child.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] RunId NextOf(RunId run) const {
    return runs[run].next_sibling.load(std::memory_order_seq_cst);
  }

  StableArray<RunCell> runs;
  ChildTable children;
  Reshapes reshapes;
};

}  // namespace kvr::index
