#include "fleet/rejected_log.h"

#include <algorithm>

namespace kvr::fleet {

void RejectedLog::Keep(RejectedEvent event) {
  if (event.detail.size() > RejectedEvent::kDetailBytesMax) {
    event.detail.resize(RejectedEvent::kDetailBytesMax);
  }
  if (event.bytes.size() > RejectedEvent::kBytesMax) event.bytes.resize(RejectedEvent::kBytesMax);
  const Lock lock(mutex_);
  if (contents_.last.size() >= kEventsMax) MakeRoom();
  contents_.last.push_back(std::move(event));
}

void RejectedLog::MakeRoom() {
  const auto& last = contents_.last;
  const auto frequency = [&last](const RejectedEvent& event) {
    return std::count_if(last.begin(), last.end(),
                         [&](const RejectedEvent& other) { return other.reason == event.reason; });
  };
  // The first of the largest: max_element keeps the earliest among equals.
  const auto victim = std::max_element(
      last.begin(), last.end(),
      [&](const RejectedEvent& a, const RejectedEvent& b) { return frequency(a) < frequency(b); });
  contents_.last.erase(victim);
}

void RejectedLog::Count(std::string_view reason, std::uint64_t by) {
  if (by == 0) return;
  const Lock lock(mutex_);
  contents_.total += by;
  auto& counts = contents_.by_reason;
  const auto known = std::find_if(counts.begin(), counts.end(),
                                  [&](const auto& entry) { return entry.first == reason; });
  if (known != counts.end()) {
    known->second += by;
  } else if (counts.size() < kReasonsMax) {
    counts.emplace_back(reason, by);
  }
}

RejectedLog::Contents RejectedLog::contents() const {
  const Lock lock(mutex_);
  return contents_;
}

}  // namespace kvr::fleet
