#include "placement/held_events.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kvr::placement {

std::size_t HeldEvents::Hold(const wire::EventBatch& batch, const wire::EngineEvent& event,
                             bool as_main) {
  const auto names = batch.HashesOf(event);
  if (overflowed_ || names_ + names.size() > names_max_) {
    const std::size_t given_up = names_ + names.size();
    Clear();
    overflowed_ = true;
    return given_up;
  }
  Event& held = events_.emplace_back();
  held.group = event.group.value_or(0);
  held.removed = event.type == wire::EventType::kRemoved;
  held.as_main = as_main;
  held.names.assign(names.begin(), names.end());
  for (std::size_t i = 0; event.copies_left.count > 0 && i < names.size(); ++i)
    held.copies_left.push_back(batch.CopiesLeftOf(event, i));
  names_ += names.size();
  return 0;
}

std::vector<HeldEvents::Event> HeldEvents::Take(std::uint32_t group) {
  std::vector<Event> taken;
  const auto of_group = [group](const Event& event) { return event.group == group; };
  std::copy_if(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()),
               std::back_inserter(taken), of_group);
  std::erase_if(events_, of_group);
  for (const Event& event : taken)
    names_ -= event.names.size();
  return taken;
}

void HeldEvents::Clear() {
  events_.clear();
  names_ = 0;
  overflowed_ = false;
}

}  // namespace kvr::placement
