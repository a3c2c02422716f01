// A mutation as the RouterEvent it is published as.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/ids.h"
#include "publish/mutation.h"
#include "publish/snapshot.h"
#include "wire/router_event.h"

namespace kvr::publish {

// Replaces `batch` by the one event, which borrows the mutation's session.
void FillEvent(const Mutation& mutation, Rank rank, std::uint64_t id, wire::RouterBatch& batch);
// The same by the store that a run of a snapshot is. Its id is its number.
void FillRun(const Snapshot& snapshot, std::size_t number, wire::RouterBatch& batch);

}  // namespace kvr::publish
