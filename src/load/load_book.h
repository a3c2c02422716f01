// Who is busy with what: the authoritative load of every rank of one partition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "load/book_options.h"
#include "load/booking.h"
#include "load/number_table.h"
#include "load/prefill_queues.h"
#include "load/prompt_trie.h"
#include "model/ids.h"

namespace kvr::load {

// What one request will cost its rank. Views borrow for the call.
struct BookingRequest {
  std::string_view request_id = {};  // unique in the book; empty: reached by its Booking alone
  // Sequence hashes of the complete prompt blocks; empty: blocks are not tracked.
  std::span<const SequenceHash> path = {};
  // False: the engine reuses nothing, so every block of `path` costs, whoever else has it.
  bool share_blocks = true;
  std::uint32_t block_size = 1;
  std::uint64_t isl_tokens = 0;
  std::uint64_t prefill_tokens = 0;            // to compute, not cached; 0: no prefill to wait for
  std::optional<Nanos> prefill_duration = {};  // where a model of the engine predicts it
  std::optional<std::uint64_t> expected_output =
      {};  // tokens; its blocks fade as the answer nears it
};

// One rank as a request would meet it.
struct Projection {
  std::uint64_t active_prefill_tokens = 0;
  std::uint64_t active_blocks = 0;
  std::uint32_t active_requests = 0;
  std::uint32_t shared_blocks = 0;  // leading blocks of the request that are active there already
};

struct RankLoad {
  Rank rank;
  std::uint64_t active_prefill_tokens = 0;
  std::uint64_t active_blocks = 0;
  std::uint32_t active_requests = 0;
};

struct BookStats {
  std::size_t ranks = 0;
  std::size_t bookings = 0;          // live
  std::size_t handles = 0;           // Booking objects that still refer to the book
  std::uint64_t booked = 0;          // since the start, as the ones below
  std::uint64_t expired = 0;         // nobody touched them for BookOptions::expiry
  std::uint64_t lost_with_rank = 0;  // bookings that ended because their rank was removed
};

// Of one request. Sums over bookings_max requests stay far from 64 bits.
inline constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 32;

// Thread-safe. `mutex` is public so that a router can project, choose and reserve in one step;
// Booking and the calls by request id take it themselves. The clock must outlive the book, the book
// every Booking that is neither freed nor detached.
//
// The load of a rank is: the prompt blocks its requests use, each once; the blocks they generated;
// the prompt tokens not prefilled yet. Reserving and projecting allocate nothing once the pools
// have seen the load, except for request ids of more than 15 bytes in a fresh entry.
class LoadBook {
 public:
  // `options` is valid.
  LoadBook(const Clock& clock, BookOptions options) : clock_(clock), options_(options) {}
  ~LoadBook();
  LoadBook(const LoadBook&) = delete;
  LoadBook& operator=(const LoadBook&) = delete;

  mutable Mutex mutex;

  // A rank that is added starts empty; one that is there keeps its state.
  LoadSlot AddRank(Rank rank) KVR_REQUIRES(mutex);
  // Its bookings end with it. False when it was not there.
  bool RemoveRank(Rank rank) KVR_REQUIRES(mutex);
  [[nodiscard]] std::optional<LoadSlot> Find(Rank rank) const KVR_REQUIRES(mutex);

  // Fills out[slot] for all slots at once; slots without a rank are zero. `path` may be empty.
  void Project(std::span<const SequenceHash> path, std::vector<Projection>& out)
      KVR_REQUIRES(mutex);

  // kAlreadyExists  the request id is live; that booking is untouched
  // kOverloaded     bookings_max are live
  // kNotFound       no rank has the slot
  // kTooLarge       more than kTokensMax prompt or prefill tokens
  Result<Booking> Reserve(LoadSlot slot, const BookingRequest& request) KVR_REQUIRES(mutex);

  // By request id. kNotFound when no live booking has it; repeating PrefillDone is fine.
  Result<void> PrefillDone(std::string_view request_id) KVR_EXCLUDES(mutex);
  // False when nothing was freed: the id is unknown, or booked on another rank than `only_on`.
  bool Free(std::string_view request_id, std::optional<Rank> only_on = {}) KVR_EXCLUDES(mutex);

  // Frees what expired and returns how many. Reserve does it too.
  std::size_t Sweep() KVR_EXCLUDES(mutex);

  // Ascending by rank.
  [[nodiscard]] std::vector<RankLoad> Loads() const KVR_EXCLUDES(mutex);
  [[nodiscard]] BookStats Stats() const KVR_EXCLUDES(mutex);

 private:
  friend class Booking;
  static constexpr std::uint32_t kNone = NumberTable::kNone;

  struct Slot {
    Rank rank;
    bool in_use = false;
    std::uint32_t requests = 0;
    Weight blocks = 0;
  };
  // One booking. Entries are linked from the one that was touched longest ago to the newest.
  struct Entry {
    bool live = false;
    std::uint32_t generation = 0;
    LoadSlot slot{};
    PromptTrie::Leaf leaf = 0;
    std::uint64_t private_blocks = 0;     // prompt blocks outside the trie
    Weight private_weight = kWholeBlock;  // of each
    std::uint64_t output_blocks = 0;
    Weight output_weight = 0;  // of all
    std::uint32_t block_size = 1;
    std::uint64_t isl_tokens = 0;
    std::optional<std::uint64_t> expected_output;
    Nanos touched{};
    std::uint32_t older = kNone;
    std::uint32_t newer = kNone;
    std::uint64_t id_hash = 0;
    std::string request_id;  // empty: none
  };

  // For Booking.
  void PrefillDone(BookingKey key) KVR_EXCLUDES(mutex);
  // Returns how many generated tokens the booked blocks have room for now.
  std::uint64_t AddOutput(BookingKey key, std::uint64_t generated) KVR_EXCLUDES(mutex);
  enum class AtRelease : std::uint8_t { kEnd, kKeep };
  void Release(BookingKey key, AtRelease what) KVR_EXCLUDES(mutex);

  // Entries are named by their place in entries_; kNone when there is no such live one.
  [[nodiscard]] std::uint32_t FindEntry(BookingKey key) const KVR_REQUIRES(mutex);
  [[nodiscard]] std::uint32_t FindEntry(std::string_view request_id) const KVR_REQUIRES(mutex);
  [[nodiscard]] std::uint32_t FindEntry(std::uint64_t id_hash, std::string_view request_id) const
      KVR_REQUIRES(mutex);
  std::uint32_t TakeEntry() KVR_REQUIRES(mutex);
  void EndPrefill(std::uint32_t entry) KVR_REQUIRES(mutex);
  void AddOutputBlocks(Entry& entry, std::uint64_t blocks) KVR_REQUIRES(mutex);
  void SetFraction(Entry& entry, double fraction) KVR_REQUIRES(mutex);
  void End(std::uint32_t entry) KVR_REQUIRES(mutex);
  std::size_t EndExpired() KVR_REQUIRES(mutex);
  void Touch(std::uint32_t entry) KVR_REQUIRES(mutex);
  void LinkNewest(std::uint32_t entry) KVR_REQUIRES(mutex);
  void Unlink(std::uint32_t entry) KVR_REQUIRES(mutex);

  const Clock& clock_;
  const BookOptions options_;

  std::vector<Slot> slots_ KVR_GUARDED_BY(mutex);
  std::vector<LoadSlot> free_slots_ KVR_GUARDED_BY(mutex);
  std::unordered_map<Rank, LoadSlot> slot_of_ KVR_GUARDED_BY(mutex);
  PromptTrie prompts_ KVR_GUARDED_BY(mutex);
  PrefillQueues prefills_ KVR_GUARDED_BY(mutex);

  std::vector<Entry> entries_ KVR_GUARDED_BY(mutex);
  std::vector<std::uint32_t> free_entries_ KVR_GUARDED_BY(mutex);
  NumberTable by_id_ KVR_GUARDED_BY(mutex);  // request id → entry
  std::uint32_t oldest_ KVR_GUARDED_BY(mutex) = kNone;
  std::uint32_t newest_ KVR_GUARDED_BY(mutex) = kNone;
  std::vector<std::uint32_t> shared_ KVR_GUARDED_BY(mutex);  // scratch of Project
  BookStats stats_ KVR_GUARDED_BY(mutex);
};

}  // namespace kvr::load
