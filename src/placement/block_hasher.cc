#include "placement/block_hasher.h"

#include <algorithm>
#include <array>

#include "hashing/mm_pads.h"
#include "hashing/xxh3.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;

namespace {

constexpr std::uint64_t kNamelessLoraSeed = 3;
constexpr std::uint64_t kEmbeddingSeed = 4;

// What a number that no request can name adds to a seed; never 0. `kind` keeps the same number of
// different kinds apart.
std::uint64_t NumberMix(std::uint64_t number, std::uint64_t kind) {
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(number >> (8 * i));
  return hashing::Xxh3({bytes.data(), bytes.size()}, kind) | 1;
}

// Of an adapter that goes by its number alone. The number means nothing outside the engine process;
// 0 is the base model.
std::uint64_t NamelessLora(const EngineEvent& event) {
  if (!event.lora_name.empty() || event.lora_id.value_or(0) == 0) return 0;
  return NumberMix(*event.lora_id, kNamelessLoraSeed);
}

// Below this size a block of zeros is text. vLLM, which alone has embeddings for prompts, has
// blocks of 1 or of at least 8 tokens; one token 0 is a word or the beginning of a text in many
// models, and pages of one token are SGLang's default.
constexpr std::size_t kPlaceholderTokensMin = 8;

// vLLM writes zeros where a prompt came as embeddings; up to 0.16 nothing else tells such blocks
// from text.
bool IsPlaceholder(std::span<const TokenId> window, std::size_t block_size) {
  return block_size >= kPlaceholderTokensMin && window.front() == 0 &&
         std::all_of(window.begin(), window.end(), [](TokenId token) { return token == 0; });
}

bool AllEmpty(const std::vector<wire::Slice>& lists, wire::Slice part) {
  for (std::size_t i = part.begin; i < std::size_t{part.begin} + part.count; ++i) {
    if (lists[i].count != 0) return false;
  }
  return true;
}

bool HasNoKeys(const EventBatch& batch, const EngineEvent& event) {
  return AllEmpty(batch.extra_blocks, event.extra_blocks) &&
         AllEmpty(batch.mm_blocks, event.mm_blocks);
}

}  // namespace

bool BlockHasher::AppendBlocks(const EventBatch& batch, const EngineEvent& event,
                               std::string_view named, Salt salt, std::uint32_t block_size,
                               std::size_t count, std::vector<PlacedBlock>& out) {
  const std::uint64_t nameless = NamelessLora(event);
  std::uint64_t raw = hashing::Seed::RawOf(event.lora_name, {});
  if (salt.state == SaltState::kSalted) raw += salt.mix;
  if (options_.unmapped_keys == UnmappedKeys::kFold) raw += nameless;
  if (how_.seed.raw() != raw) how_.seed = hashing::Seed::FromRaw(raw);
  how_.block_size = block_size;
  how_.eagle = event.eagle;
  scratch_.Look(keyed_, plain_hashes_, pad_scratch_);
  keyed_.clear();
  bool complete = nameless == 0 && (!event.odd_lora_id || !event.lora_name.empty());
  if (!HasNoKeys(batch, event)) {
    return AppendKeyed(batch, event, named, count, out) && complete;
  }
  const auto tokens = batch.TokensOf(event);
  const auto names = batch.HashesOf(event).first(count);
  hashing::HashBlocks(tokens, how_, plain_hashes_);
  const std::size_t before = out.size();
  out.resize(before + count);
  std::transform(names.begin(), names.end(), plain_hashes_.begin(),
                 out.begin() + static_cast<std::ptrdiff_t>(before),
                 [](EngineHash engine, BlockHash local) {
                   return PlacedBlock{engine, local};
                 });
  for (std::size_t i = 0; i < count; ++i) {
    if (tokens[i * block_size] != 0) continue;
    if (SetPlaceholderApart(hashing::BlockWindow(tokens, how_, i), out[before + i], i)) {
      complete = false;
    }
  }
  return complete;
}

void BlockHasher::AppendNames(std::span<const EngineHash> names, std::vector<PlacedBlock>& out) {
  keyed_.clear();
  for (const EngineHash name : names)
    out.push_back({name, {}});
}

std::span<const BlockHash> BlockHasher::TokenHashes(const EventBatch& batch,
                                                    const EngineEvent& event,
                                                    std::uint32_t block_size) {
  token_scratch_.Look(token_hashes_);
  hashing::HashBlocks(batch.TokensOf(event), {block_size, event.eagle, {}}, token_hashes_);
  return token_hashes_;
}

// Where blocks have keys: one after the other.
bool BlockHasher::AppendKeyed(const EventBatch& batch, const EngineEvent& event,
                              std::string_view named, std::size_t count,
                              std::vector<PlacedBlock>& out) {
  const auto tokens = batch.TokensOf(event);
  const auto names = batch.HashesOf(event);
  keyed_.assign(count, 0);
  bool complete = true;
  for (std::size_t i = 0; i < count; ++i) {
    const auto window = hashing::BlockWindow(tokens, how_, i);
    if (batch.ExtraKeysOf(event, i).empty() && batch.MmHashesOf(event, i).empty()) {
      PlacedBlock& block =
          out.emplace_back(PlacedBlock{names[i], hashing::HashBlock(window, how_.seed)});
      if (SetPlaceholderApart(window, block, i)) complete = false;
      continue;
    }
    ReadBlockKeys(batch, event, i, named, keys_);
    keyed_[i] = keys_.unmapped || !keys_.mm.empty() ? 1 : 0;
    complete = complete && keyed_[i] == 0 && !keys_.overruled;
    PlacedBlock& block = out.emplace_back(PlacedBlock{names[i], HashKeyedBlock(window)});
    // Where keys say no more than the salt or the adapter, zeros are what they are without.
    if (keyed_[i] == 0 && SetPlaceholderApart(window, block, i)) complete = false;
  }
  return complete;
}

// Embeddings behind a placeholder have no name but their block's, which no request can say and no
// other block has. False, and nothing done, when the window of the store's block `i` is text.
bool BlockHasher::SetPlaceholderApart(std::span<const TokenId> window, PlacedBlock& block,
                                      std::size_t i) {
  if (!IsPlaceholder(window, how_.block_size)) return false;
  ++stats_.zero_blocks;
  const std::uint64_t mix = NumberMix(Raw(block.engine), kEmbeddingSeed);
  block.local = hashing::HashBlock(window, hashing::Seed::FromRaw(how_.seed.raw() + mix));
  if (keyed_.size() <= i) keyed_.resize(i + 1);
  keyed_[i] = 1;
  return true;
}

BlockHash BlockHasher::HashKeyedBlock(std::span<const TokenId> window) {
  std::uint64_t raw = how_.seed.raw() + keys_.unmapped_bytes;
  if (options_.unmapped_keys == UnmappedKeys::kFold) raw += keys_.unmapped_other;
  const auto own = hashing::Seed::FromRaw(raw);
  const hashing::Placeholders placeholders{options_.image_token, options_.video_token};
  return hashing::HashBlockWithPads(window, own, placeholders, keys_.mm, pad_scratch_);
}

}  // namespace kvr::placement
