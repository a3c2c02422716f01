// The block hashes of an engine's store. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/reused_lists.h"
#include "hashing/block_hash.h"
#include "model/ids.h"
#include "model/placement_event.h"
#include "placement/block_keys.h"
#include "placement/copy_rules.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Recomputes block hashes from tokens, adapter, salt and keys, so that requests can be compared
// with them. Not thread-safe; once warm it allocates nothing. `options` and `stats`
// must outlive it.
class BlockHasher {
 public:
  BlockHasher(const TranslatorOptions& options, TranslatorStats& stats)
      : options_(options), stats_(stats) {}

  // Appends the first `count` blocks, which the store's tokens fill, to `out`. `named` is the salt
  // it names, `salt` the one it has. True when their hashes cover all that the event shows of what
  // the engine hashed.
  bool AppendBlocks(const wire::EventBatch& batch, const wire::EngineEvent& event,
                    std::string_view named, Salt salt, std::uint32_t block_size, std::size_t count,
                    std::vector<PlacedBlock>& out);
  // Appends blocks of which nothing is known but the name.
  void AppendNames(std::span<const EngineHash> names, std::vector<PlacedBlock>& out);
  // Of the blocks appended last: whether keys are in their hashes. Those beyond the end have none.
  [[nodiscard]] std::span<const std::uint8_t> keyed() const { return keyed_; }

  // The blocks of a store by their tokens alone. Valid until the next call.
  std::span<const BlockHash> TokenHashes(const wire::EventBatch& batch,
                                         const wire::EngineEvent& event, std::uint32_t block_size);

 private:
  bool AppendKeyed(const wire::EventBatch& batch, const wire::EngineEvent& event,
                   std::string_view named, std::size_t count, std::vector<PlacedBlock>& out);
  bool SetPlaceholderApart(std::span<const TokenId> window, PlacedBlock& block, std::size_t i);
  [[nodiscard]] BlockHash HashKeyedBlock(std::span<const TokenId> window);

  const TranslatorOptions& options_;
  TranslatorStats& stats_;
  hashing::BlockHashing how_;  // of the last store: most events have the same seed
  std::vector<std::uint8_t> keyed_;
  // Scratch, kept for its capacity.
  BlockKeys keys_;
  std::vector<BlockHash> plain_hashes_;
  std::vector<BlockHash> token_hashes_;
  std::vector<TokenId> pad_scratch_;
  ReusedLists scratch_;        // looks at them
  ReusedLists token_scratch_;  // ... and at token_hashes_, which are used longer
};

}  // namespace kvr::placement
