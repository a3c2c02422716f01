// TensorRT-LLM's own event lists, which are JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"
#include "wire/event_decoder.h"

namespace kvr::wire {

// Whether a payload is JSON text rather than a MessagePack batch. No batch starts like JSON does.
bool LooksLikeJson(std::span<const std::byte> payload);

// Decodes one event, or a list of them, of one stream.
//
// A partial block and what follows it in the same event are left out (EngineEvent::left_out), for
// an index knows full blocks only, and so are their removals and moves. Blocks that cannot be
// partial, for another follows them, and longer ones say the engine's block size, which becomes the
// event's; so does, after many stores without a full block, the largest there was.
//
// Of several attention windows the largest is the main one; events of the others are marked as of
// sliding-window groups, whose numbers are their windows. A block that moves between cache levels
// becomes a store by name in the new tier and a removal from the old; a removal says no level.
// Events are told apart per item, as MessagePack ones are, and one that is no JSON costs itself
// only as long as the list around it ends. A field of a wrong type costs its event when it tells
// blocks apart or says where they are; other fields are not read. Not thread-safe.
class TrtllmJsonDecoder {
 public:
  // Of partial blocks the names of so many are remembered, but of one at least; of more, those that
  // came last.
  explicit TrtllmJsonDecoder(std::size_t partial_blocks_max = 65'536);
  ~TrtllmJsonDecoder();
  TrtllmJsonDecoder(TrtllmJsonDecoder&&) noexcept;
  TrtllmJsonDecoder& operator=(TrtllmJsonDecoder&&) noexcept;

  // `block_size` is the registered number of tokens per block; 0 takes the largest block of each
  // event. Replaces the content of `batch`, whose views are valid until the next call. On error it
  // is empty. Once warm it allocates nothing, unless an item is no JSON.
  Result<void, DecodeError> Decode(std::span<const std::byte> payload, const DecodeLimits& limits,
                                   std::uint32_t block_size, EventBatch& batch);

  // Forgets partial blocks, as after a restart of the engine. The main window is taken
  // to be the same until the engine or its events say otherwise.
  void Reset();
  // Partial blocks that are remembered.
  [[nodiscard]] std::size_t partial_blocks() const;
  // Partial blocks beyond the number that is remembered, since the decoder was made.
  [[nodiscard]] std::uint64_t forgotten_partial_blocks() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::wire
