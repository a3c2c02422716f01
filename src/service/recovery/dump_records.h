// What the chunks of a binary dump are made of, where writer and reader have to agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/placement_event.h"

namespace kvr::service {

// kRank: flags.
inline constexpr std::uint32_t kHasWatermark = 1;
// kRuns: flags of a run.
inline constexpr unsigned kHasParent = 1;
inline constexpr unsigned kEligible = 2;
// kSides: name and tiers of a block.
inline constexpr std::size_t kSideBlockBytes = sizeof(std::uint64_t) + 1;

// Blocks are written as they are in memory: name, hash.
static_assert(sizeof(PlacedBlock) == 16 && std::is_trivially_copyable_v<PlacedBlock>);

inline void AppendBlocks(std::string& out, std::span<const PlacedBlock> blocks) {
  out.append(reinterpret_cast<const char*>(blocks.data()), blocks.size_bytes());
}
// `bytes` are whole blocks.
inline void ReadBlocks(std::string_view bytes, std::vector<PlacedBlock>& out) {
  const std::size_t before = out.size();
  out.resize(before + bytes.size() / sizeof(PlacedBlock));
  std::memcpy(out.data() + before, bytes.data(), bytes.size());
}

}  // namespace kvr::service
