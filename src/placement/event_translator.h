// Engine frames → placement events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "model/digest.h"
#include "model/ids.h"
#include "placement/drop_reason.h"
#include "placement/placement_batch.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"
#include "wire/event_decoder.h"

namespace kvr::placement {

// What to do with a key that the engine mixed into a block's hash and we have no name for, such as
// the digest of prompt embeddings or an adapter that goes by a number alone.
enum class UnmappedKeys : std::uint8_t {
  kFold,    // mix it into the block hash, so that no request without it can match
  kIgnore,  // leave the block hash alone; unequal blocks may then look equal. Bytes are folded
            // still
};

struct TranslatorOptions {
  Rank rank = {};                // whose events these are; a batch may name another dp_rank
  std::uint32_t block_size = 0;  // tokens; 0 takes each event's own
  UnmappedKeys unmapped_keys = UnmappedKeys::kFold;
  bool lenient_media = false;  // see wire::TierFromMediumLeniently
  bool any_worker = false;     // RouterEvents of other workers count as this one's
  // Placeholder ids of models whose engine hashes pad tokens instead of multimodal hashes.
  std::optional<TokenId> image_token = {};
  std::optional<TokenId> video_token = {};
  // By which end digests become numbers; none: the stream says it. Goes before limits.digests.
  std::optional<DigestEnd> digests = {};
  wire::DecodeLimits limits = {};
  // Data-parallel ranks one stream may name. A batch that names one more is refused.
  std::size_t ranks_max = 1024;
  // Blocks per rank whose copies are counted. Beyond it a removal passes at the first copy that
  // goes and a salt is not inherited: the index then knows too little, never too much.
  std::size_t counted_blocks_max = std::size_t{1} << 24;
};

struct TranslatorStats {
  std::uint64_t batches = 0;
  std::uint64_t bad_batches = 0;  // refused as a whole
  std::uint64_t stored_blocks = 0;
  std::uint64_t removed_blocks = 0;
  std::uint64_t held_removals = 0;       // another copy of the block was left
  std::uint64_t unmatched_removals = 0;  // of blocks of which no copy was counted in that tier
  std::uint64_t uncounted_blocks = 0;    // beyond counted_blocks_max
  std::uint64_t cut_blocks = 0;          // at the end of a store, for want of tokens
  std::uint64_t legacy_layouts = 0;      // see wire::EventBatch
  std::uint64_t trailing_bytes = 0;
  std::array<std::uint64_t, kDropReasonCount> dropped{};
  std::uint64_t digest_changes = 0;         // see PlacementBatch::forget
  std::uint32_t mismatched_block_size = 0;  // of the last kBlockSizeMismatch; 0 when there was none
};

// Turns the frames of one stream into what an index applies: decodes, filters what is no evidence
// of a local prefix, recomputes block hashes from tokens, inherits cache salts along chains and
// counts physical copies, so that a block is removed only when its last copy in a tier goes.
//
// The main group's stores on the device are checked against the registered block size. One of
// another size is dropped, and its size is PlacementBatch::wrong_block_size from then on, until a
// store of the registered size comes that an index can place: one that begins a chain, or under a
// parent that was counted. (The pieces of blocks that some engines announce between their full
// blocks can have the registered size by chance, but never a known parent.)
//
// One translator a stream: its state is what earlier frames taught. Frames must come in the
// engine's order. Not thread-safe. Never logs, never throws on bytes from outside.
class EventTranslator {
 public:
  explicit EventTranslator(const TranslatorOptions& options);
  ~EventTranslator();
  EventTranslator(EventTranslator&&) noexcept;
  EventTranslator& operator=(EventTranslator&&) noexcept;

  // Replaces the content of `out` by what `payload` means. A bad event costs itself and is listed
  // in `out.dropped`. On error nothing was learned and `out` is empty. `payload` is not referenced
  // afterwards. Allocates nothing once warm, but for the table of copies as it grows.
  Result<void, wire::DecodeError> Translate(std::span<const std::byte> payload,
                                            PlacementBatch& out);

  // The events that the last Translate decoded, dropped ones included, for display. Their texts
  // borrow from that payload.
  [[nodiscard]] const wire::EventBatch& decoded() const;

  // Forgets everything frames taught, as after a restart of the engine. Statistics stay.
  void Reset();
  // Forgets how many copies of each block there are, as when events were lost: the next removal of
  // a block passes whatever was counted before. Salts and groups stay.
  void ForgetCounts();

  // By which end digests are read, and how that is known.
  [[nodiscard]] DigestReading digests() const;
  [[nodiscard]] const TranslatorOptions& options() const;
  [[nodiscard]] const TranslatorStats& stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::placement
