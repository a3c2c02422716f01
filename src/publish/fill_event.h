// A mutation as the RouterEvent it is published as.
#pragma once

#include <cstdint>

#include "model/ids.h"
#include "publish/mutation.h"
#include "wire/router_event.h"

namespace kvr::publish {

// Replaces `batch` by the one event, which borrows the mutation's session.
void FillEvent(const Mutation& mutation, Rank rank, std::uint64_t id, wire::RouterBatch& batch);

}  // namespace kvr::publish
