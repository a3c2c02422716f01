// What a translator may be told, and what it counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "model/digest.h"
#include "model/ids.h"
#include "placement/drop_reason.h"
#include "wire/event_decoder.h"

namespace kvr::placement {

// What to do with a key that the engine mixed into a block's hash and we have no name for, such as
// the digest of prompt embeddings or an adapter that goes by a number alone.
enum class UnmappedKeys : std::uint8_t {
  kFold,    // mix it into the block hash, so that no request without it can match
  kIgnore,  // leave the block hash alone; unequal blocks may then look equal. Bytes are folded
            // still
};

// What is remembered of one rank between frames, at most.
struct MemoryLimits {
  // Blocks whose copies are counted. Beyond it a removal passes at the first copy that goes and a
  // salt is not inherited: the index then knows too little, never too much.
  std::size_t counted_blocks_max = std::size_t{1} << 24;
  // Cache groups. The events of one more are dropped as too_many_groups, and no prefix of the rank
  // counts as reusable: what the group has is not known.
  std::size_t groups_max = 256;
  // Names whose copies wait, with what is known of their blocks, until the kind of their cache
  // group is told. Further ones do not: too little is known then, never too much; see
  // PlacementBatch::lost_copies.
  std::size_t held_names_max = 16'384;
  // Blocks that were left out because they were not full, so that their removals are left out as
  // well: of TensorRT-LLM's lists all that the stream has, else those of the rank. Beyond it the
  // older half is forgotten: such a removal then passes, finds nothing and counts as unmatched.
  std::size_t partial_blocks_max = 65'536;
  // Digests of a stream that came before anything proved by which end they become numbers, and are
  // remembered by their other end, so that a number that is one of them is the proof. Numbers of
  // later digests prove nothing.
  std::size_t digests_max = 65'536;
  // Of ChunkBook: device blocks that are known by their tokens, beyond which further blocks are in
  // no chunk; chunks, beyond which the one that would expire first gives way, as it does while all
  // together have more blocks than there may be device blocks; and how long a chunk lives since it
  // was last announced, in the time of the engine's batches, because an engine that does nothing
  // evicts nothing.
  std::size_t chunk_blocks_max = std::size_t{1} << 20;
  std::size_t chunks_max = 16'384;
  Millis chunk_ttl{600'000};
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
  // Whether the stream's events of this data-parallel rank are wanted, beside those of `rank`;
  // empty: of any. A batch of another one means nothing, and what was remembered of that rank is
  // forgotten.
  std::function<bool(std::uint32_t dp_rank)> follows = {};
  // Ranks that are wanted of one stream. A batch that names one more is refused as kTooManyRanks.
  std::size_t ranks_max = 1024;
  MemoryLimits memory = {};
};

struct TranslatorStats {
  std::uint64_t batches = 0;
  std::uint64_t bad_batches = 0;  // refused as a whole
  std::uint64_t stored_blocks = 0;
  std::uint64_t removed_blocks = 0;
  std::uint64_t held_removals = 0;       // another copy of the block was left
  std::uint64_t unmatched_removals = 0;  // of blocks of which no copy was counted in that tier
  std::uint64_t uncounted_blocks = 0;    // beyond MemoryLimits::counted_blocks_max
  std::uint64_t given_up_names = 0;      // beyond MemoryLimits::held_names_max
  std::uint64_t unplaced_blocks = 0;     // beyond MemoryLimits::chunk_blocks_max
  std::uint64_t crowded_chunks = 0;      // gave way to others, see MemoryLimits::chunks_max
  std::uint64_t forgotten_partials = 0;  // beyond MemoryLimits::partial_blocks_max
  std::uint64_t forgotten_digests = 0;   // beyond MemoryLimits::digests_max
  std::uint64_t main_changes = 0;        // the main group turned out to be another
  std::uint64_t partial_removals = 0;    // of blocks that were left out because they were not full
  std::uint64_t cut_blocks = 0;          // at the end of a store, for want of tokens
  std::uint64_t zero_blocks = 0;         // of token 0 alone, taken for prompt embeddings
  std::uint64_t legacy_layouts = 0;      // see wire::EventBatch
  // Fields of a wrong type without which the event is good; see wire::SkippedFields and
  // wire::RouterSkipped.
  std::uint64_t skipped_session_ids = 0;
  std::uint64_t skipped_windows = 0;
  std::uint64_t skipped_token_offsets = 0;
  std::uint64_t skipped_copies_left = 0;
  std::uint64_t skipped_positions = 0;
  std::uint64_t skipped_mm_infos = 0;
  std::uint64_t skipped_flags = 0;
  std::uint64_t trailing_bytes = 0;
  std::array<std::uint64_t, kDropReasonCount> dropped{};
  std::uint64_t digest_changes = 0;         // see PlacementBatch::forget
  std::uint32_t mismatched_block_size = 0;  // of the last kBlockSizeMismatch; 0 when there was none
};

}  // namespace kvr::placement
