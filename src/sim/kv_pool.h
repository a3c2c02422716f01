// The KV cache of one engine rank: a fixed number of blocks, prefix reuse, eviction, and the events
// that tell a router about all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"
#include "sim/kv_event.h"

namespace kvr::sim {

// A block on the device is free, held by sequences, or idle: cached, held by nobody and first to go
// when room is needed. Held blocks are private until committed under a hash. Two sequences that
// compute the same content at the same time make two copies of one hash, and both take room.
//
// Events: Stored when the first copy of a hash appears, consecutive blocks in one event; Removed
// when the last copy goes. Holding and releasing cached blocks announces nothing.
//
// The host tier keeps a copy of each block committed on the device (write-through) in an LRU of its
// own, with its own events. It is the pool's second chance: a prefix that left the device is loaded
// back instead of computed.
//
// Not thread-safe. Cost of every call: linear in the blocks it names.
class KvPool {
 public:
  using Block = std::uint32_t;

  struct Options {
    std::uint32_t block_size = 64;
    std::uint32_t blocks_max = 16'384;
    std::uint32_t host_blocks_max = 0;  // 0: no host tier
    bool prefix_caching = true;         // off: nothing is found, committed or announced
  };

  // Leading blocks of a chain that need not be computed: first those on the device, then those that
  // the host tier has beyond them.
  struct Hit {
    std::uint32_t device = 0;
    std::uint32_t device_active = 0;  // of `device`: held by a sequence now
    std::uint32_t host = 0;
  };

  explicit KvPool(const Options& options);

  [[nodiscard]] Hit Find(std::span<const EngineHash> chain) const;

  // Holds the cached blocks `hits`, all on the device, and `fresh` private ones, and appends them
  // to `blocks`. Evicts idle blocks, oldest first, as far as needed. False when there is not enough
  // room: nothing was held and nothing evicted.
  [[nodiscard]] bool Reserve(std::span<const EngineHash> hits, std::uint32_t fresh,
                             std::vector<Block>& blocks);

  // Makes a held private block findable: it holds `tokens`, follows `parent` in its chain.
  void Commit(Block block, std::optional<EngineHash> parent, EngineHash hash,
              std::span<const TokenId> tokens);

  // Gives up one hold on each block, the last one first, so that the leaves of a prefix are older
  // than their parents. Empties `blocks`. Private blocks become free, cached ones idle.
  void Release(std::vector<Block>& blocks);

  // Forgets both tiers and announces one Cleared. False, and nothing happens, while blocks are
  // held.
  bool Clear();

  // The events since the last call: the device's first, then the host's.
  [[nodiscard]] std::vector<KvEvent> TakeEvents();

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] std::uint32_t active() const { return active_; }  // blocks held
  [[nodiscard]] std::uint32_t idle() const { return idle_; }
  [[nodiscard]] std::uint64_t evicted() const { return evicted_; }  // since construction
  // The hashes that can be found in a tier, ascending.
  [[nodiscard]] std::vector<EngineHash> Visible(Tier tier) const;

 private:
  static constexpr Block kNone = ~Block{0};

  struct State {
    EngineHash hash{};
    bool cached = false;
    std::uint32_t holds = 0;
    Block next_copy = kNone;             // other copies of the same hash
    Block older = kNone, newer = kNone;  // idle list
  };

  [[nodiscard]] Block FindCopy(EngineHash hash) const;  // a held one when there is one
  void Hold(Block block);
  Block TakeFresh();
  void Uncache(Block block);
  void LinkIdle(Block block);
  void UnlinkIdle(Block block);
  void StoreOnHost(std::optional<EngineHash> parent, EngineHash hash,
                   std::span<const TokenId> tokens);
  void TouchOnHost(EngineHash hash);

  Options options_;
  std::vector<State> states_;
  std::vector<Block> free_;
  std::unordered_map<EngineHash, Block> first_copy_;
  Block oldest_ = kNone, newest_ = kNone;
  std::uint32_t active_ = 0;
  std::uint32_t idle_ = 0;
  std::uint64_t evicted_ = 0;

  std::list<EngineHash> host_lru_;  // oldest first
  std::unordered_map<EngineHash, std::list<EngineHash>::iterator> host_;

  std::vector<KvEvent> device_events_;
  std::vector<KvEvent> host_events_;
};

}  // namespace kvr::sim
