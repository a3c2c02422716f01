// Identifiers and hashes. Distinct types, so that they cannot be mixed up; all cost what a plain
// integer costs. Every value of every hash is legal, 0 and 2^64-1 included.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

namespace kvr {

using TokenId = std::uint32_t;

enum class WorkerId : std::uint64_t {};
enum class BlockHash : std::uint64_t {};
enum class SequenceHash : std::uint64_t {};
enum class EngineHash : std::uint64_t {};
// Dense number of a rank inside one index; reused after the rank was removed.
enum class RankSlot : std::uint32_t {};

// The number inside an id, hash or slot.
template <typename Id>
requires std::is_enum_v<Id>
constexpr auto Raw(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

// One data-parallel rank of a worker. Ordered by worker, then rank.
struct Rank {
  WorkerId worker{};
  std::uint32_t dp_rank = 0;

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// Nothing crosses partitions: no block, worker, load or queue.
struct Partition {
  std::string model_name;
  std::string routing_group = "default";

  friend auto operator<=>(const Partition&, const Partition&) = default;
};

}  // namespace kvr

template <>
struct std::hash<kvr::Rank> {
  std::size_t operator()(const kvr::Rank& rank) const noexcept {
    const std::uint64_t mixed =
        (kvr::Raw(rank.worker) + 0x9E3779B97F4A7C15u * (rank.dp_rank + 1u)) * 0xBF58476D1CE4E5B9u;
    return static_cast<std::size_t>(mixed ^ (mixed >> 31));
  }
};
