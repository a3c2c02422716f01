#include "placement/store_size.h"

#include "hashing/block_hash.h"
#include "placement/placement_batch.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;

namespace {

// A piece of a block, or a block of an engine whose size is another one, which is not indexed
// either.
void NotePartial(const EngineEvent& event, const EventBatch& batch, RankMemory& memory,
                 TranslatorStats& stats) {
  const std::uint64_t before = memory.partials.forgotten();
  memory.partials.Note(batch.HashesOf(event).front(), event.tokens.count);
  stats.forgotten_partials += memory.partials.forgotten() - before;
}

// Whether a store of another block size names blocks of ours all the same; else why not.
std::optional<DropReason> CheckOddSize(const EngineEvent& event, const EventBatch& batch, Tier tier,
                                       std::uint32_t block_size, RankMemory& memory,
                                       TranslatorStats& stats) {
  const std::uint32_t hashes = event.hashes.count;
  const std::uint32_t tokens = event.tokens.count;
  if (block_size != 0 && event.block_size > block_size && event.block_size % block_size == 0 &&
      !event.eagle) {
    // The size of what the engine allocates at once, while names and tokens keep to ours.
    if (tokens / block_size == hashes && tokens % block_size == 0) return std::nullopt;
    if (tier != Tier::kDevice && !event.sole) return DropReason::kChunkedStore;
  }
  if (tier == Tier::kDevice && block_size != 0) {
    // TensorRT-LLM's lists have pieces, too, but call a size theirs only when it is.
    const bool piece = !event.sole && event.block_size != 0 && block_size % event.block_size == 0 &&
                       hashes == 1 && tokens == event.block_size;
    if (piece) NotePartial(event, batch, memory, stats);
    if (piece && memory.size_confirmed && memory.wrong_block_size == 0) {
      return DropReason::kPartialBlock;
    }
    memory.wrong_block_size = event.block_size == 0 ? kNoBlockSize : event.block_size;
  }
  stats.mismatched_block_size = event.block_size;
  return DropReason::kBlockSizeMismatch;
}

// After a store on the device that was of the right size.
void ConfirmSize(const EngineEvent& event, RankMemory& memory) {
  memory.size_confirmed = true;
  if (memory.wrong_block_size == 0) return;
  if (!event.parent || memory.blocks.Find(*event.parent) != nullptr) memory.wrong_block_size = 0;
}

}  // namespace

std::optional<DropReason> CountBlocks(const EngineEvent& event, const EventBatch& batch, Tier tier,
                                      std::uint32_t block_size, RankMemory& memory,
                                      TranslatorStats& stats, std::size_t& count) {
  if (event.block_size != block_size || block_size == 0) {
    if (const auto reason = CheckOddSize(event, batch, tier, block_size, memory, stats))
      return reason;
  }
  const std::size_t windows = hashing::BlockCount(event.tokens.count, block_size, event.eagle);
  if (windows > event.hashes.count) return DropReason::kSparseStore;
  if (windows == 0) return DropReason::kTokensTooShort;
  if (tier == Tier::kDevice) ConfirmSize(event, memory);
  count = windows;
  stats.cut_blocks += event.hashes.count - windows;
  return std::nullopt;
}

}  // namespace kvr::placement
