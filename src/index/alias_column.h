// What single ranks call the blocks of a run, where they do not use the common name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "index/heap_bytes.h"
#include "index/run_planes.h"
#include "model/ids.h"

namespace kvr::index {

// One rank's own names in one run, in chunks that a column and its copies share. A name that a
// query may read does not change any more, in no column that has its chunk: see
// RunStore::EditAliases.
class AliasColumn {
 public:
  using Name = std::optional<EngineHash>;
  using Names = std::shared_ptr<Name[]>;

  AliasColumn(std::uint32_t slot, Stretch room)
      : slot_(slot), room_(room), chunks_((room.size() + kChunk - 1) / kChunk) {}

  [[nodiscard]] std::uint32_t slot() const { return slot_; }
  [[nodiscard]] Name At(std::uint32_t depth) const {
    if (!room_.Has(depth)) return std::nullopt;
    const Name* const names = chunks_[(depth - room_.begin) / kChunk].names.get();
    return names ? names[(depth - room_.begin) % kChunk] : std::nullopt;
  }

  void Set(std::uint32_t depth, Name name) {
    const std::uint32_t at = depth - room_.begin;
    if (chunks_[at / kChunk].names == nullptr) Renew(depth);
    Name& cell = chunks_[at / kChunk].names[at % kChunk];
    used_ += (name ? 1u : 0u) - (cell ? 1u : 0u);
    cell = name;
  }
  // The names of `blocks`, as far as both columns have room for them.
  void CopyFrom(const AliasColumn& other, Stretch blocks) {
    const std::uint32_t begin = std::max({room_.begin, other.room_.begin, blocks.begin});
    const std::uint32_t end = std::min({room_.end, other.room_.end, blocks.end});
    for (std::uint32_t depth = begin; depth < end; ++depth) {
      if (const Name name = other.At(depth)) Set(depth, name);
    }
  }
  // Takes the place of `other`, which begins at the same block and has no more room.
  void ShareWith(const AliasColumn& other) {
    std::copy(other.chunks_.begin(), other.chunks_.end(), chunks_.begin());
    used_ = other.used_;
    read_end_ = other.read_end_;
    any_fresh_ = other.any_fresh_;
  }
  // Gives the block a chunk of this column alone; the one before, if any.
  Names Renew(std::uint32_t depth, std::uint32_t old_size = kChunk) {
    Chunk& chunk = chunks_[(depth - room_.begin) / kChunk];
    const std::uint32_t size = ChunkSize(depth);
    Names names = std::make_shared<Name[]>(size);
    if (chunk.names) std::copy_n(chunk.names.get(), std::min(size, old_size), names.get());
    chunk.fresh = any_fresh_ = true;
    return std::exchange(chunk.names, std::move(names));
  }

  [[nodiscard]] bool HasChunk(std::uint32_t depth) const {
    return chunks_[(depth - room_.begin) / kChunk].names != nullptr;
  }
  [[nodiscard]] std::uint32_t used() const { return used_; }
  [[nodiscard]] Stretch room() const { return room_; }
  [[nodiscard]] bool is_published() const { return published_; }
  // From now on queries may read the names of blocks before `end`.
  void SetPublished(std::uint32_t end) {
    read_end_ = std::max(read_end_, end);
    published_ = true;
    if (!std::exchange(any_fresh_, false)) return;
    for (Chunk& chunk : chunks_)
      chunk.fresh = false;
  }
  [[nodiscard]] std::uint32_t read_end() const { return read_end_; }
  [[nodiscard]] bool MaySet(std::uint32_t depth) const {
    if (!room_.Has(depth)) return false;
    const Chunk& chunk = chunks_[(depth - room_.begin) / kChunk];
    return chunk.names && (chunk.fresh || depth >= read_end_);
  }

  // Of the chunk that the block is in.
  [[nodiscard]] std::uint32_t ChunkSize(std::uint32_t depth) const {
    const std::uint32_t first = (depth - room_.begin) / kChunk * kChunk;
    return std::min(kChunk, room_.size() - first);
  }
  static std::size_t ChunkBytes(std::uint32_t size) {
    constexpr std::size_t kCounts = 32;  // of a shared_ptr
    return HeapBytes(kCounts + size * sizeof(Name));
  }
  // Without the chunks.
  [[nodiscard]] std::size_t table_bytes() const {
    return HeapBytes(sizeof(AliasColumn)) + HeapBytes(chunks_.capacity() * sizeof(Chunk));
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t bytes = table_bytes();
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
      const auto first = static_cast<std::uint32_t>(i * kChunk);
      if (chunks_[i].names) bytes += ChunkBytes(std::min(kChunk, room_.size() - first));
    }
    return bytes;
  }

 private:
  static constexpr std::uint32_t kChunk = 256;  // 4 KiB: what a change may have to copy
  struct Chunk {
    Names names;         // null: none
    bool fresh = false;  // no query has seen it
  };

  const std::uint32_t slot_;
  const Stretch room_;
  std::uint32_t used_ = 0;
  std::uint32_t read_end_ = 0;
  bool published_ = false;
  bool any_fresh_ = false;
  std::vector<Chunk> chunks_;
};

// The columns of a run, ordered by slot. Does not change.
struct AliasList {
  std::vector<AliasColumn*> columns;

  [[nodiscard]] AliasColumn* Find(std::uint32_t slot) const {
    const auto at = std::lower_bound(
        columns.begin(), columns.end(), slot,
        [](const AliasColumn* column, std::uint32_t wanted) { return column->slot() < wanted; });
    return at != columns.end() && (*at)->slot() == slot ? *at : nullptr;
  }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(sizeof(AliasList)) + HeapBytes(columns.capacity() * sizeof(void*));
  }
};

}  // namespace kvr::index
