// Engine event batches in the words of the engines: for the mock engine and for tests.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "wire/event_batch.h"

namespace kvr::wire {

// How one engine release writes events.
struct Dialect {
  std::string_view name;
  bool maps = false;           // events are maps; else arrays
  bool signed_hashes = false;  // hashes of 2^63 and more are written as negative numbers
  bool bare_batch = false;     // without a rank the batch has two elements; else a nil
  // Arrays: elements of each event type, the tag included; what does not fit is not said.
  // Maps: the leading fields that are written even when they are nil, the tag included.
  std::size_t stored_length = 0;
  std::size_t removed_length = 0;
  std::size_t cleared_length = 1;
  bool metadata = false;  // arrays: salt and session go as a map in the place of the LoRA name
};

// vllm-0.9, vllm-0.10, vllm-0.14, vllm-0.17, vllm-0.20, vllm-0.22, vllm-0.24 (from there on maps),
// sglang, sglang-map, and positional, which is no release but writes every position there is.
std::span<const Dialect> Dialects();
// Null for a name that is not listed.
const Dialect* DialectByName(std::string_view name);

// Appends `batch` to `out`. Events that could not be decoded are not written. Encoding a decoded
// batch in the dialect it came in gives the same bytes, as far as the dialect's fields go: digests
// are written as integers, nil tokens as an empty list.
void EncodeEventBatch(const EventBatch& batch, const Dialect& dialect, std::string& out);

}  // namespace kvr::wire
