// Identities of active sequences inside a router: what load tracking and replicas exchange. The
// public algorithm equals block and sequence hashes; the keyed one hides prompts from whoever sees
// the identities, because without the key nobody can test a guess.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "hashing/block_hash.h"
#include "model/ids.h"

namespace kvr::hashing {

// 32 secret bytes. Wiped when destroyed or moved from; prints as [REDACTED].
class TrackingKey {
 public:
  static constexpr std::size_t kBytes = 32;

  explicit TrackingKey(std::span<const std::byte, kBytes> bytes);
  ~TrackingKey();
  TrackingKey(TrackingKey&& other) noexcept;
  TrackingKey& operator=(TrackingKey&& other) noexcept;

  // The raw content of a file of exactly 32 bytes. Errors never show the path.
  static Result<TrackingKey> ReadFile(const std::string& path);

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kBytes> bytes_;
};

std::ostream& operator<<(std::ostream& out, const TrackingKey& key);

struct TrackingOptions {
  std::string algorithm = "public-xxh3-v1";  // or keyed-xxh3-v1
  std::string key_file = {};                 // keyed: 32 raw bytes
  std::string key_id = {};                   // keyed: names the key, so that replicas agree on one

  [[nodiscard]] Result<void> Validate() const;
};

// Whose sequences are hashed; borrows for the call.
struct TrackingScope {
  std::string_view model;
  std::string_view routing_group = "default";
  std::uint32_t block_size = 0;
  std::string_view cache_salt = {};
  std::string_view lora = {};
  bool eagle = false;
};

// What stands in place of the public seeds. Constant per scope: derive once and keep.
struct TrackingSeeds {
  Seed block;
  std::uint64_t chain = kBaseSeed;
};

// Immutable after construction; any thread.
class TrackingHasher {
 public:
  // public-xxh3-v1.
  TrackingHasher() = default;
  // keyed-xxh3-v1.
  TrackingHasher(TrackingKey key, std::string key_id);
  // Validates, and reads the key file.
  static Result<TrackingHasher> Make(const TrackingOptions& options);

  [[nodiscard]] TrackingSeeds SeedsFor(const TrackingScope& scope) const;
  // True when the identities are the public hashes, so that block hashes at hand may be chained as
  // they are.
  [[nodiscard]] bool is_public() const { return !key_.has_value(); }

 private:
  std::optional<TrackingKey> key_;
  std::string key_id_;
};

// One identity per complete block; replaces the content of `out`. `mm` as for HashBlocks. `blocks`
// is scratch.
void TrackingHashes(std::span<const TokenId> tokens, const TrackingScope& scope,
                    const TrackingSeeds& seeds, std::span<const BlockMm> mm,
                    std::vector<BlockHash>& blocks, std::vector<SequenceHash>& out);

// For requests whose blocks nobody else can reuse: one random identity per block.
void UniqueTrackingHashes(std::size_t blocks, Rng& rng, std::vector<SequenceHash>& out);

}  // namespace kvr::hashing
