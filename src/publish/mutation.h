// What goes through a publisher: a placement event and what else its RouterEvent says.
#pragma once

#include <cstdint>
#include <optional>

#include "model/placement_event.h"
#include "wire/router_event.h"

namespace kvr::publish {

struct Mutation {
  PlacementEvent event;
  std::optional<std::uint32_t> start_position = {};  // stored: of the first block, when known
  wire::ResidencyDomain domain = wire::ResidencyDomain::kWorker;
};

// The next stage. What a mutation borrows is valid for the call.
class MutationSink {
 public:
  virtual ~MutationSink() = default;
  virtual void Take(const Mutation& mutation) = 0;
};

}  // namespace kvr::publish
