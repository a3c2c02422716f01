// Virtual time: what is to happen, in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"

namespace kvr::simulation {

// Of two actions that are due at one moment the one that was planned first comes first, so that a
// run is the same each time.
class Agenda {
 public:
  using Action = std::function<void()>;

  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] Nanos now() const { return clock_.Now(); }

  void After(Nanos delay, Action action) {
    actions_.emplace(std::pair(now() + std::max(delay, Nanos{0}), planned_++), std::move(action));
  }

  // Everything that comes up meanwhile is done, too.
  void RunFor(Nanos span) {
    const Nanos end = now() + span;
    while (!actions_.empty() && actions_.begin()->first.first <= end) {
      auto next = actions_.extract(actions_.begin());
      clock_.Advance(next.key().first - now());
      next.mapped()();
    }
    clock_.Advance(end - now());
  }

 private:
  ManualClock clock_;
  std::uint64_t planned_ = 0;
  std::map<std::pair<Nanos, std::uint64_t>, Action> actions_;
};

}  // namespace kvr::simulation
