// Engine event batches in the words of the engines: for the mock engine and for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "wire/event_batch.h"

namespace kvr::wire {

// What an event may say.
enum class EventField : std::uint8_t {
  kHashes,
  kParent,
  kTokens,
  kBlockSize,
  kLoraId,
  kMedium,
  kLoraName,
  kExtraKeys,
  kGroup,
  kKind,
  kWindow,
  kLocality,
  kOwnership,
  kSessionId,
  kCacheSalt,
  kMmInfos,
  kCopiesLeft,
  kTokenOffset,
  kBackend,
};

// The fields of one event type in one dialect. Arrays: one place each, nil where there is nothing
// to say. Maps: the first `required` are written although they are nil, the others only when they
// are not.
struct EventLayout {
  std::span<const EventField> fields;
  std::size_t required = 0;
};

// How one producer, or one release of it, writes events.
struct Dialect {
  enum class Form : std::uint8_t {
    kArrays,    // events are arrays in a batch that is one
    kMaps,      // events are maps in a batch that is an array
    kMapBatch,  // the batch is a map, too
    kPool,      // the maps of Mooncake's master, one a block
    kJson,      // TensorRT-LLM's list
  };
  enum class Hashes : std::uint8_t {
    kUnsigned,
    kSigned,   // 2^63 and more as negative numbers
    kDigests,  // as kUnsigned on the device, elsewhere as digests of 32 bytes; in a list all as
               // digests in hex
  };
  enum class RankPlace : std::uint8_t {
    kNone,       // the batch has two elements
    kAlways,     // nil without a rank
    kWhenKnown,  // two elements without a rank
  };

  std::string_view name;
  Form form = Form::kArrays;
  Hashes hashes = Hashes::kUnsigned;
  RankPlace rank = RankPlace::kAlways;
  EventLayout stored{};
  EventLayout removed{};
  EventLayout cleared{};
  // kJson: what events say of their hashes, and with it that they are of layer group 0; empty:
  // neither.
  std::string_view hash_algo{};
  bool nil_tokens = false;  // of a store that names blocks only; else an empty list
  bool metadata = false;    // arrays: salt and session go as a map in the place of the LoRA name
};

// The window that TensorRT-LLM's events are of, in tokens, when none is said.
inline constexpr std::uint64_t kTrtllmWindow = 4096;

// vllm-0.9.0, 0.9.1, 0.10.2, 0.14, 0.17, 0.19, 0.20, 0.22, 0.24 (from there on maps), 0.26, 0.29,
// main, map-batch; sglang-0.4.6, 0.4.7, 0.5.9, 0.5.18, main; trtllm-zmq; trtllm-json and of its
// second cache manager trtllm-json-v2 and trtllm-json-v2-64; dynamo-relay;
// mooncake; atom; vllm-offload, vllm-lmcache, vllm-mooncake-store and vllm-llm-d-fs, which are
// connectors' copies beside an engine's own events. And two that are no release but say all there
// is: maps, positional.
std::span<const Dialect> Dialects();
// Also by the short names vllm-0.9, vllm-0.10, sglang and sglang-map. Null for a name that is not
// listed.
const Dialect* DialectByName(std::string_view name);

// Appends `batch` to `out`. Events that could not be decoded are not written, and what a dialect
// has no words for is left out: fields, and of TensorRT-LLM's list clears. Encoding a decoded batch
// in the dialect it came in gives the same bytes, but that what decoding passes over is gone. A
// dialect of digests writes those that were decoded, and for a name without one makes one up that
// ends in it, big-endian. Dialects whose events are
// numbered begin with `*event_id`, which is moved on; null counts from 0.
void EncodeEventBatch(const EventBatch& batch, const Dialect& dialect, std::string& out,
                      std::uint64_t* event_id = nullptr);

// Appends the list with which an engine of a kJson dialect begins: how many blocks each level of
// its cache has.
void EncodeTrtllmCreated(std::span<const std::uint64_t> blocks_per_level,
                         std::optional<std::uint32_t> dp_rank, const Dialect& dialect,
                         std::uint64_t& event_id, std::string& out);

}  // namespace kvr::wire
