// Operation files: what engines announce and clients ask, once made and then fed to any index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvr::bench {

enum class OpKind : std::uint8_t { kQuery, kStored, kRemoved, kCleared };

struct Op {
  std::uint64_t time_ns = 0;  // since the first one
  std::uint64_t parent = 0;   // stored: engine hash of the block before, if `has_parent`
  std::size_t word = 0;       // where its words begin in OpTrace::words
  std::uint32_t rank = 0;     // queries: where the request went
  std::uint32_t blocks = 0;
  OpKind kind = OpKind::kQuery;
  bool has_parent = false;  // else a store begins at the root

  // A stored block is two words, engine hash and block hash; others are one: the block hash in a
  // query, the engine hash in a removal.
  [[nodiscard]] std::size_t words() const {
    return kind == OpKind::kStored ? std::size_t{2} * blocks : blocks;
  }

  friend bool operator==(const Op&, const Op&) = default;
};

struct OpTrace {
  std::uint64_t seed = 0;          // of whoever made it
  std::uint32_t ranks = 1;         // ranks are 0 to ranks - 1
  std::uint32_t block_tokens = 0;  // what a block stands for; no index needs it
  std::vector<Op> ops{};           // in order of time
  std::vector<std::uint64_t> words{};

  [[nodiscard]] std::span<const std::uint64_t> WordsOf(const Op& op) const {
    return std::span(words).subspan(op.word, op.words());
  }
  // Appends `op`, whose words are those behind the last one's. Sets `op.word`.
  void Add(Op op, std::span<const std::uint64_t> op_words);

  friend bool operator==(const OpTrace&, const OpTrace&) = default;
};

struct OpCounts {
  std::uint64_t queries = 0, stores = 0, removals = 0, clears = 0;
  std::uint64_t query_blocks = 0, stored_blocks = 0, removed_blocks = 0;

  [[nodiscard]] std::uint64_t update_blocks() const { return stored_blocks + removed_blocks; }
  [[nodiscard]] std::uint64_t block_ops() const { return query_blocks + update_blocks(); }
};
OpCounts CountOps(const OpTrace& trace);

// The bytes of docs/bench-format.md, version 1. `trace` is not checked.
std::string SerializeOps(const OpTrace& trace);
// kCorrupt: which byte, which operation, and what is wrong with it. Allocates no more than the file
// has room for.
Result<OpTrace> ParseOps(std::span<const std::byte> bytes);

// kIo: the file cannot be read or written, and why. Errors name the path.
Result<void> WriteOpFile(const OpTrace& trace, const std::string& path);
Result<OpTrace> ReadOpFile(const std::string& path);

}  // namespace kvr::bench
