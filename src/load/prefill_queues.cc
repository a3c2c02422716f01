#include "load/prefill_queues.h"

#include <algorithm>

#include "base/check.h"

namespace kvr::load {
namespace {

__extension__ using Wide = unsigned __int128;

// ⌊a · b / c⌋, capped at 2^64 − 1.
std::uint64_t ScaleDown(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return static_cast<std::uint64_t>(std::min<Wide>(Wide{a} * b / c, UINT64_MAX));
}

}  // namespace

void PrefillQueues::Push(LoadSlot slot, std::uint32_t item, std::uint64_t tokens,
                         std::optional<Nanos> duration, Nanos now) {
  KVR_CHECK(tokens > 0 && !Contains(item));
  KVR_CHECK(!duration || *duration >= Nanos{0});
  if (queues_.size() <= Raw(slot)) queues_.resize(Raw(slot) + 1u);
  if (items_.size() <= item) items_.resize(item + std::size_t{1});
  Queue& queue = queues_[Raw(slot)];
  items_[item] = {tokens, duration, queue.back, kNone};
  if (queue.back == kNone) {
    queue.front = item;
    queue.front_since = now;
  } else {
    items_[queue.back].after = item;
  }
  queue.back = item;
  queue.tokens += tokens;
  queue.without_duration += duration ? 0u : 1u;
}

void PrefillQueues::Remove(LoadSlot slot, std::uint32_t item, Nanos now) {
  KVR_CHECK(Contains(item));
  Queue& queue = queues_[Raw(slot)];
  Item& gone = items_[item];
  if (queue.front == item) {
    queue.front = gone.after;
    queue.front_since = now;
  } else {
    items_[gone.before].after = gone.after;
    if (queue.without_duration == 0) {
      queue.front_since =
          std::max(queue.front_since, std::min(queue.front_since + *gone.duration, now));
    }
  }
  if (queue.back == item) {
    queue.back = gone.before;
  } else {
    items_[gone.after].before = gone.before;
  }
  queue.tokens -= gone.tokens;
  queue.without_duration -= gone.duration ? 0u : 1u;
  gone = {};
}

std::uint64_t PrefillQueues::ActiveTokens(LoadSlot slot, Nanos now) const {
  if (queues_.size() <= Raw(slot)) return 0;
  const Queue& queue = queues_[Raw(slot)];
  if (queue.front == kNone) return 0;
  const Item& front = items_[queue.front];
  if (!front.duration) return queue.tokens;
  if (*front.duration == Nanos{0}) return queue.tokens - front.tokens;
  const auto elapsed =
      static_cast<std::uint64_t>(std::max(now - queue.front_since, Nanos{0}).count());
  std::uint64_t done =
      ScaleDown(front.tokens, elapsed, static_cast<std::uint64_t>(front.duration->count()));
  done = std::min(done, queue.without_duration == 0 ? queue.tokens : front.tokens);
  return queue.tokens - done;
}

}  // namespace kvr::load
