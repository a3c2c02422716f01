// Engine frames → placement events.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "model/digest.h"
#include "placement/placement_batch.h"
#include "placement/translator_options.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"

namespace kvr::placement {

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
// Cache groups: the index is made of one, the main group; the others' events are side events. What
// a rank's stores told, in whatever order and batches, decides:
// * The main group is the one of lowest number that a store told to be of full attention. Until
//   some is told, it is group 0 while its own kind is not told; events without a number are its.
// * A group that is told two kinds is of unknown kind. If it would be the main one, none is.
// * Of a side group the largest block size (of the device, if the device told one) and window
// count. When the main group turns out to be another, what the earlier one let into the index is
// removed again and becomes side copies. If that cannot be told apart any more, because events were
// lost, copies were not counted, or some came without a number, the rank is cleared; see
// lost_copies. Copies of a group without a kind wait for it; see MemoryLimits::held_names_max.
// Until then, as with a group of unknown kind, PlacementBatch::unclear_group is set and no prefix
// counts as reusable.
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
  // in `out.dropped`. A batch of a rank that TranslatorOptions::follows refuses brings no events.
  // On error `out` is empty and nothing was learned, save what a TensorRT-LLM list of one rank too
  // many told of the stream as a whole, its windows and partial blocks. `payload` is not referenced
  // afterwards.
  // Allocates nothing once warm, but for the table of copies as it grows.
  Result<void, wire::DecodeError> Translate(std::span<const std::byte> payload,
                                            PlacementBatch& out);

  // The events that the last Translate decoded, dropped ones included, for display. Their texts
  // borrow from that payload.
  [[nodiscard]] const wire::EventBatch& decoded() const;

  // Forgets what frames taught of blocks and groups, as after a restart of the engine. What is of
  // its configuration outlives that: which kinds of keys its stores have had, for an engine that
  // serves salts or adapters will again, and copies may be announced without them; and which of
  // TensorRT-LLM's windows is the main one. Statistics stay.
  void Reset();
  // Forgets how many copies of each block there are, as when events were lost: the next removal of
  // a block passes whatever was counted before. Salts and groups stay.
  void ForgetCounts();

  // By which end digests are read, and how that is known.
  [[nodiscard]] DigestReading digests() const;
  [[nodiscard]] const TranslatorOptions& options() const;
  [[nodiscard]] const TranslatorStats& stats() const;
  // Entries of all tables of what earlier frames taught: bounded by MemoryLimits and `ranks_max`,
  // whatever the frames say. Without the names that went last, of which there is a fixed number.
  [[nodiscard]] std::size_t remembered() const;
  // Heap of the tables that count the copies of blocks: what of it grows with the engine's cache.
  [[nodiscard]] std::size_t table_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::placement
