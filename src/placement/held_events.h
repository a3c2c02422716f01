// Events in host memory that name a cache group of which the kind is not known yet. Private to the
// module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ids.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Connectors announce host copies by group and name, and only stores on the device say what kind a
// group is of: these may come later, after a join in the middle of a stream or in another order
// within a batch. Of an event the names are kept, which is what such copies are known by. Not
// thread-safe.
class HeldEvents {
 public:
  explicit HeldEvents(std::size_t names_max) : names_max_(names_max) {}

  struct Event {
    std::uint32_t group = 0;
    bool removed = false;
    bool as_main = false;  // was taken for the main group's when it came
    std::vector<EngineHash> names;
    std::vector<std::uint32_t> copies_left;  // of a removal; empty when the engine did not say
  };

  [[nodiscard]] bool empty() const { return events_.empty(); }
  // Returns how many names are given up for want of room, which is none while there is some; see
  // MemoryLimits::held_names_max.
  std::size_t Hold(const wire::EventBatch& batch, const wire::EngineEvent& event, bool as_main);
  // Takes out what is held for the group, in its order.
  std::vector<Event> Take(std::uint32_t group);
  void Clear();

 private:
  std::size_t names_max_;
  std::vector<Event> events_;
  std::size_t names_ = 0;
  bool overflowed_ = false;
};

}  // namespace kvr::placement
