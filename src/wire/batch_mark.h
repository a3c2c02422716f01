// Where a batch stood before an event was read into it. Private to the decoders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/event_batch.h"

namespace kvr::wire {

// Sizes of the batch's vectors, to take back what a bad event left in them: its siblings are to
// have the room that the limits give.
struct BatchMark {
  explicit BatchMark(const EventBatch& batch)
      : events(batch.events.size()),
        hashes(batch.hashes.size()),
        tokens(batch.tokens.size()),
        extra_blocks(batch.extra_blocks.size()),
        extra_keys(batch.extra_keys.size()),
        mm_blocks(batch.mm_blocks.size()),
        mm_hashes(batch.mm_hashes.size()),
        copies_left(batch.copies_left.size()),
        digests(batch.digests.size()),
        legacy_layouts(batch.legacy_layouts),
        skipped(batch.skipped) {}

  void Rewind(EventBatch& batch) const {
    batch.events.resize(events);
    batch.hashes.resize(hashes);
    batch.tokens.resize(tokens);
    batch.extra_blocks.resize(extra_blocks);
    batch.extra_keys.resize(extra_keys);
    batch.mm_blocks.resize(mm_blocks);
    batch.mm_hashes.resize(mm_hashes);
    batch.copies_left.resize(copies_left);
    batch.digests.resize(digests);
    batch.legacy_layouts = legacy_layouts;
    batch.skipped = skipped;
  }

  std::size_t events, hashes, tokens, extra_blocks, extra_keys, mm_blocks, mm_hashes, copies_left,
      digests;
  std::uint32_t legacy_layouts;
  SkippedFields skipped;
};

}  // namespace kvr::wire
