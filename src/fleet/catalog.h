// Which workers exist: who may be chosen, where they answer and where they publish.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "fleet/rank_health.h"
#include "model/digest.h"
#include "model/ids.h"

namespace kvr::fleet {

// Which engine a worker is, where its events alone do not say it.
enum class EngineKind : std::uint8_t { kUnknown, kVllm, kSglang, kTrtllm };
inline constexpr std::array<std::string_view, 4> kEngineKindNames = {"unknown", "vllm", "sglang",
                                                                     "trtllm"};
constexpr std::optional<EngineKind> EngineKindFromName(std::string_view name) {
  for (std::size_t i = 0; i < kEngineKindNames.size(); ++i) {
    if (kEngineKindNames[i] == name) return static_cast<EngineKind>(i);
  }
  return std::nullopt;
}

// By which end the engine's digests become numbers; none where that is not known.
constexpr std::optional<DigestEnd> DigestEndOf(EngineKind engine) {
  if (engine == EngineKind::kUnknown) return std::nullopt;
  return engine == EngineKind::kVllm ? DigestEnd::kLast : DigestEnd::kFirst;
}

// Where one rank publishes its KV events. Endpoints are checked by whoever connects to them.
struct EventSource {
  std::string endpoint;
  std::optional<std::string> replay_endpoint;
  std::string topic;  // subscription prefix; empty takes everything
  EngineKind engine = EngineKind::kUnknown;
  bool lenient_media = false;  // the names that more producers give to tiers are accepted
  // Placeholder ids, for prompts that name an image or a video by pad tokens.
  std::optional<TokenId> image_token = {};
  std::optional<TokenId> video_token = {};

  friend bool operator==(const EventSource&, const EventSource&) = default;
};

struct WorkerSpec {
  WorkerId id{};
  Partition partition;
  std::string url;  // of the engine's HTTP API; empty when the worker is only observed
  std::uint32_t block_size = 0;
  std::vector<std::uint32_t> dp_ranks;          // ascending, without repeats, at least one
  std::map<std::uint32_t, EventSource> events;  // by dp rank; a rank without one is blind
  std::optional<std::uint64_t> max_num_batched_tokens;
  std::optional<std::uint64_t> total_kv_blocks;  // per rank
  bool is_eagle = false;

  friend bool operator==(const WorkerSpec&, const WorkerSpec&) = default;
};

// start, start+1, ... `size` ranks. kInvalidArgument: "data_parallel_size must be greater than 0",
// or a range beyond 32 bits.
Result<std::vector<std::uint32_t>> DpRange(std::uint32_t start, std::uint32_t size);

struct RankEntry {
  Rank rank;
  std::optional<EventSource> events;
  std::shared_ptr<RankHealth> health;  // never null; the same object as long as the rank is listed
};

struct Worker {
  WorkerSpec spec;
  std::vector<RankEntry> ranks;  // as spec.dp_ranks

  [[nodiscard]] const RankEntry* FindRank(std::uint32_t dp_rank) const;
};

// The catalog at one moment. Immutable, so any thread may read it for as long as it holds it.
struct Snapshot {
  std::uint64_t version = 0;
  std::vector<std::shared_ptr<const Worker>> workers;  // by id
  std::map<Partition, std::vector<const Worker*>> partitions;

  // Null when there is none.
  [[nodiscard]] const Worker* Find(WorkerId id) const;
  [[nodiscard]] const RankEntry* Find(Rank rank) const;
  // By id; empty when the partition has no worker.
  [[nodiscard]] std::span<const Worker* const> In(const Partition& partition) const;
};

// Thread-safe. A change copies the list of workers (not the workers), so changes cost O(workers)
// and readers nothing but a reference count.
class Catalog {
 public:
  struct Options {
    std::size_t workers_max = 65'536;  // beyond: kOverloaded
    std::size_t ranks_per_worker_max = 4'096;
    std::size_t name_bytes_max = 512;  // model name, routing group
  };

  Catalog();
  explicit Catalog(const Options& options);

  // Adds a worker with all its ranks. True when it is new, false when exactly this worker is
  // listed already. kInvalidArgument says which field is off. kAlreadyExists:
  // "instance N is already registered for model=M routing_group=G" (another partition, or other
  // data in this one), "block_size mismatch for model=M routing_group=G: existing=E, requested=R"
  // and the like for is_eagle.
  Result<bool> Add(WorkerSpec spec) KVR_EXCLUDES(mutex_);

  // Adds the one rank of `spec` to the worker, which is added when it is not listed. False when
  // the rank is listed with the same data. Further kAlreadyExists:
  // "instance N dp_rank R already registered".
  Result<bool> AddRank(WorkerSpec spec) KVR_EXCLUDES(mutex_);

  // False when it was not there.
  bool Remove(WorkerId id) KVR_EXCLUDES(mutex_);
  // The worker goes with its last rank. False when the rank was not there.
  bool RemoveRank(Rank rank) KVR_EXCLUDES(mutex_);

  // Never null.
  [[nodiscard]] std::shared_ptr<const Snapshot> snapshot() const KVR_EXCLUDES(mutex_);

 private:
  [[nodiscard]] Result<void> Validate(const WorkerSpec& spec) const;
  // Whether `spec` may live beside the other workers of its partition.
  [[nodiscard]] Result<void> CheckNeighbours(const WorkerSpec& spec) const KVR_REQUIRES(mutex_);
  void Put(Worker worker) KVR_REQUIRES(mutex_);
  void Publish(std::vector<std::shared_ptr<const Worker>> workers) KVR_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::shared_ptr<const Snapshot> current_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::fleet
