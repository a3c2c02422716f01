// What queries see of a run, and where they find it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "index/alias_column.h"
#include "index/child_table.h"
#include "index/heap_bytes.h"
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

  [[nodiscard]] PlaneView View(std::size_t plane) const;
  [[nodiscard]] EngineHash NameOf(std::uint32_t slot, std::uint32_t depth) const {
    if (fields.aliases) {
      if (const AliasColumn* own = fields.aliases->Find(slot)) {
        if (const auto name = own->At(depth)) return *name;
      }
    }
    return static_cast<EngineHash>(fields.engines[depth - fields.blocks.begin]);
  }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(
        BytesFor(std::size_t{words_} * static_cast<std::size_t>(std::popcount(bitmaps_)),
                 parts_end_.back()));
  }

 private:
  RunState(const Fields& fields_in, std::uint64_t used_at)
      : fields(fields_in), first_local(fields_in.locals[0]), used_at_(used_at) {}

  static std::size_t BytesFor(std::size_t words, std::size_t parts) {
    return sizeof(RunState) + words * sizeof(std::uint64_t) + parts * sizeof(Partial);
  }
  [[nodiscard]] const std::uint64_t* words() const {
    return reinterpret_cast<const std::uint64_t*>(this + 1);
  }

  mutable std::atomic<std::uint64_t> used_at_;
  std::uint32_t words_ = 0;    // in each bitmap
  std::uint32_t bitmaps_ = 0;  // planes that have one, a bit each
  std::array<std::uint32_t, kPlaneCount> parts_end_{};
};

// All runs as queries find them.
struct RunDirectory {
  explicit RunDirectory(std::uint64_t seed) : children(seed) {}

  [[nodiscard]] const RunState* StateOf(RunId id) const {
    // Pairs with the writer's store: who sees the pointer sees the state.
    return states[id].load(std::memory_order_seq_cst);
  }
  // The run that begins with block `local` at `depth` on a parent that had `generation` when the
  // query read it. Null when there is none. `id` is its number.
  [[nodiscard]] const RunState* FindChild(RunId parent, std::uint32_t generation,
                                          std::uint32_t depth, BlockHash local, RunId& id) const;

  StableArray<std::atomic<const RunState*>> states;  // null: not in use
  ChildTable children;
};

}  // namespace kvr::index
