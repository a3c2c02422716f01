// From the extra keys of an engine event to the identity of its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "wire/event_batch.h"

namespace kvr::placement {

// The cache salt a store names: the explicit field, "" included; else, in the keys of the first
// block, the first text tagged as a salt; else, when the store begins a chain, the one text among
// those keys that is neither the LoRA name nor a digest. Engines mix the salt into the first block
// of a prompt, untagged unless the client tagged it. Empty when there is none.
std::string_view SaltOf(const wire::EventBatch& batch, const wire::EngineEvent& event);

// What distinguishes one block beside tokens, LoRA and salt.
struct BlockKeys {
  std::vector<std::uint64_t> mm;     // multimodal objects, in the order of the event
  std::uint64_t unmapped_bytes = 0;  // to be added to the seed for keys that are bytes
  std::uint64_t unmapped_other = 0;  // the same for all other keys we have no name for
  bool unmapped = false;             // there was a key of either kind
  bool overruled = false;            // ... or a salt that the event's own field overrules
};

// The keys of block `i` of a store; replaces the content of `keys`. `salt` is SaltOf the store: one
// untagged text like it, in the block that begins a chain, is no key, and neither is a tagged one
// in the store's first block.
//
// A key may be a map whose "type" says what it is: lora (name), mm (hash), cache_salt (salt),
// prompt_embeds (hash), or legacy (value), which is as the untyped value. A text equal to the LoRA
// name counts once as that name. 64 hex digits, also behind "<LoRA name>:", or any name with an
// offset, are a multimodal object; the block's own explicit list of objects overrules them, unless
// it is empty. Of several salts that are tagged SaltOf takes one, the others are keys without a
// name.
void ReadBlockKeys(const wire::EventBatch& batch, const wire::EngineEvent& event, std::size_t i,
                   std::string_view salt, BlockKeys& keys);

}  // namespace kvr::placement
