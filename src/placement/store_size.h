// How many blocks a store names, by its tokens and its block size. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/tier.h"
#include "placement/drop_reason.h"
#include "placement/rank_memory.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// `count`: how many of the named blocks the tokens fill, in blocks of `block_size`. What the main
// group's stores on the device say of the block size is noted in `memory`.
std::optional<DropReason> CountBlocks(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                      Tier tier, std::uint32_t block_size, RankMemory& memory,
                                      TranslatorStats& stats, std::size_t& count);

}  // namespace kvr::placement
