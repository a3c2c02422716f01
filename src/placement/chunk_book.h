// Host copies that are announced in chunks of several blocks, under names of their own. Private to
// the module.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"
#include "placement/translator_options.h"

namespace kvr::placement {

// LMCache stores whole chunks, names each by a hash that no engine knows, says tokens and the chunk
// before, and never says that one is gone. So its blocks are looked for among those that the engine
// stored on the device, by their tokens and what is before them; the copies go by the engine's
// names, and expire. Tokens that the engine has under two names (of an adapter, a salt or an image
// beside plain text) name nobody: a chunk does not say whose it is.
//
// Costs nothing until it is begun. Not thread-safe.
class ChunkBook {
 public:
  explicit ChunkBook(const MemoryLimits& limits)
      : blocks_max_(limits.chunk_blocks_max),
        chunks_max_(limits.chunks_max),
        ttl_seconds_(std::chrono::duration<double>(limits.chunk_ttl).count()) {}

  struct Chunk {
    SequenceHash end{};             // of its last block
    bool whole = true;              // its tokens end where that block does
    std::vector<EngineHash> names;  // of its blocks, as far as the engine's are known
    Tier tier = Tier::kHostPinned;
    double expires = 0;
  };

  [[nodiscard]] bool begun() const { return begun_; }
  void Begin() { begun_ = true; }

  // A store on the device: blocks by their tokens alone, under `parent`. Returns for how many of
  // them there is no room.
  std::size_t Learn(std::optional<EngineHash> parent, std::span<const BlockHash> blocks,
                    std::span<const EngineHash> names);
  // No copy of the block is left.
  void Forget(EngineHash name);

  // A chunk of these blocks under the chunk `parent`; null when its place is not known. One that is
  // known already lives longer and is `repeated`.
  const Chunk* Store(EngineHash name, std::optional<EngineHash> parent,
                     std::span<const BlockHash> blocks, bool whole, Tier tier, double now,
                     bool& repeated);
  // Takes out a chunk whose time is over, or that would be over first where there is no room for so
  // many chunks or names; null when there is none.
  std::optional<Chunk> Expire(double now);
  [[nodiscard]] bool expires() const { return !queue_.empty(); }

  void Clear();

  // Names, places, chunks and turns together: when Expire has nothing more to take out, no more
  // than two for each name and three for each chunk that there is room for.
  [[nodiscard]] std::size_t entries() const {
    return by_place_.size() + place_of_.size() + chunks_.size() + queue_.size();
  }
  // Of all chunks together: when Expire has nothing more to take out, no more than there is room
  // for device blocks.
  [[nodiscard]] std::size_t chunk_names() const { return chunk_names_; }
  // Heap in use, without the allocator's own.
  [[nodiscard]] std::size_t bytes() const;

 private:
  // What the engine has in one place.
  struct Place {
    EngineHash name{};
    bool ambiguous = false;   // it had several names
    std::uint32_t names = 0;  // so many have this place; it is kept while there is one
  };
  struct Turn {
    EngineHash chunk{};
    double expires = 0;
  };

  // False when there is no room for a further name.
  bool Put(EngineHash name, SequenceHash at);
  [[nodiscard]] bool IsCrowded() const {
    // A queue of twice the chunks is mostly out of date.
    return chunks_.size() > chunks_max_ || queue_.size() > 2 * chunks_max_ ||
           chunk_names_ > blocks_max_;
  }
  // A name has the place no more.
  void Leave(SequenceHash at);

  std::size_t blocks_max_;
  std::size_t chunks_max_;
  double ttl_seconds_;
  bool begun_ = false;
  std::unordered_map<std::uint64_t, Place> by_place_;         // sequence hash → the engine's name
  std::unordered_map<std::uint64_t, SequenceHash> place_of_;  // the engine's name → sequence hash
  std::unordered_map<std::uint64_t, Chunk> chunks_;           // by their own names
  std::deque<Turn> queue_;                                    // some out of date
  std::size_t chunk_names_ = 0;                               // in all of chunks_
};

}  // namespace kvr::placement
