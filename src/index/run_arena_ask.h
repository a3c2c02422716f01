// How a query gets a sure answer; for the sources of RunArena.
#pragma once

#include "index/run_arena.h"

namespace kvr::index {

template <typename Look>
void RunArena::Ask(const Look& look) const {
  {
    const Epoch::Reader reader(epoch_);
    for (std::uint64_t again = 0; again < kLooksMax; ++again) {
      const std::uint64_t seen = directory_.reshapes.Seen();
      if (!look([&] { return directory_.reshapes.SawOneShape(seen); })) continue;
      if (again > 0) unsure_.looks.fetch_add(again, std::memory_order_relaxed);
      return;
    }
  }
  // Outside of the epoch, as whoever holds the mutex may wait for the readers. With it held,
  // nothing that a query reads changes or is freed.
  unsure_.looks.fetch_add(kLooksMax, std::memory_order_relaxed);
  unsure_.waits.fetch_add(1, std::memory_order_relaxed);
  unsure_.waiting.fetch_add(1, std::memory_order_relaxed);
  const FairLock lock(mutex_);
  unsure_.waiting.fetch_sub(1, std::memory_order_relaxed);
  look([] { return true; });
}

}  // namespace kvr::index
