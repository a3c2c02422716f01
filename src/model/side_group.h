// Cache groups of hybrid models.
#pragma once

#include <cstdint>
#include <optional>

#include "model/ids.h"

namespace kvr {

// A hybrid model keeps a cache for each kind of attention it has. The blocks of one full-attention
// group, the main one, make up the prefixes an index knows. The others are side groups: an engine
// reuses a prefix of the main group only as far as every side group has what it needs at its end.
enum class SideRule : std::uint8_t {
  kEvery,       // every block of the prefix: a further full-attention group
  kWindow,      // the blocks that the window before the end covers: sliding and chunked attention
  kCheckpoint,  // the block that ends where the prefix ends: a Mamba state
  kNever,       // a kind we do not know: no prefix is known to be of use
};

// What a rank's events say of one side group.
struct SideGroup {
  std::uint32_t group = 0;  // the engine's number of it
  SideRule rule = SideRule::kNever;
  std::uint32_t block_size = 0;  // tokens; 0 when no store has said
  std::uint32_t window = 0;      // tokens, kWindow; 0 when no store has said

  friend bool operator==(const SideGroup&, const SideGroup&) = default;
};

// A block of a side group, as its store or removal names it.
struct SideCopy {
  EngineHash name{};
  // Of a removal: physical copies that the engine says are left; none when it does not say.
  std::optional<std::uint32_t> left = {};

  friend bool operator==(const SideCopy&, const SideCopy&) = default;
};

}  // namespace kvr
