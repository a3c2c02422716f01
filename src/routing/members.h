// Who may be chosen in one partition, as the router last read it from the catalog.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "fleet/catalog.h"
#include "load/load_book.h"
#include "model/ids.h"
#include "sched/eligibility.h"

namespace kvr::routing {

struct Member {
  std::string url;
  bool has_siblings = false;  // the worker has more ranks
  std::shared_ptr<const fleet::RankHealth> health;
  load::LoadSlot slot{};
  std::optional<std::uint32_t> kv_blocks;  // of the rank's device cache, where that is known
};

// Immutable. The lists run in parallel, ascending by rank.
struct Members {
  std::uint64_t version = 0;  // of the catalog
  std::uint32_t block_size = 0;
  bool eagle = false;
  std::vector<Member> members;
  std::vector<sched::Host> hosts;

  [[nodiscard]] std::optional<std::size_t> Find(Rank rank) const;
};

// The members of `partition` in `snapshot`. Ranks that are new there get a slot in `book`, ranks
// that are gone lose theirs with what is booked on them; `before` is what the book holds now.
std::shared_ptr<const Members> TakeUp(const fleet::Snapshot& snapshot, const Partition& partition,
                                      const Members& before, load::LoadBook& book)
    KVR_REQUIRES(book.mutex);

}  // namespace kvr::routing
