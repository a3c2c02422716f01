#include "placement/copy_rules.h"

#include <algorithm>

#include "hashing/block_hash.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;

namespace {

// Calls `use` with the place of each element and the element, and asks for the records of their
// hashes some elements ahead: the table of a large rank is not in a cache.
template <typename T, typename HashOf, typename Use>
void ForEachAhead(std::span<const T> all, const CopyTable& blocks, HashOf hash_of, Use use) {
  constexpr std::size_t kAhead = 8;
  for (const T& one : all.first(std::min(kAhead, all.size())))
    blocks.Prefetch(hash_of(one));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i + kAhead < all.size()) blocks.Prefetch(hash_of(all[i + kAhead]));
    use(i, all[i]);
  }
}

// True when no copy is left in the tier, as far as we know: by the engine's word (`left`) where
// it gives one, else by our count. Of mixed content each removal counts: the index holds a block
// for each content, and one that stays would never go.
bool RemoveCopy(EngineHash hash, Tier tier, std::uint32_t left, CopyTable& blocks,
                TranslatorStats& stats) {
  BlockRecord* record = blocks.Find(hash);
  const auto at = static_cast<std::size_t>(tier);
  if (record == nullptr || record->copies[at] == 0) ++stats.unmatched_removals;
  const bool told = left != wire::kCopiesUnknown;
  if (record == nullptr && told && left > 0) record = blocks.Add(hash);
  if (record == nullptr) return !told || left == 0;
  std::uint32_t& copies = record->copies[at];
  if (told) {
    copies = left;
  } else if (copies > 0) {
    --copies;
  }
  const bool last = copies == 0 || record->mixed;
  if (record->salt_state == SaltState::kAmbiguous) return last;
  if (!record->on_path()) record->salt_state = SaltState::kUnknown;
  if (!record->held()) blocks.Erase(record);
  return last;
}

void AddCopy(const PlacedBlock& block, Tier tier, const Salt* salt, bool keyed, CopyTable& blocks,
             TranslatorStats& stats) {
  BlockRecord* record = blocks.Add(block.engine);
  if (record == nullptr) {
    ++stats.uncounted_blocks;
    return;
  }
  ++record->copies[static_cast<std::size_t>(tier)];
  record->keyed = record->keyed || keyed;
  if (salt != nullptr) {
    const std::uint32_t content = static_cast<std::uint32_t>(Raw(block.local)) | 1;
    record->mixed = record->mixed || (record->content != 0 && record->content != content);
    record->content = content;
  }
  if (salt == nullptr || !OnPath(tier) || record->salt_state == SaltState::kAmbiguous) return;
  if (record->salt_state == SaltState::kUnknown) {
    record->salt_state = salt->state;
    record->salt_mix = salt->mix;
  } else if (record->salt_state != salt->state || record->salt_mix != salt->mix) {
    record->salt_state = SaltState::kAmbiguous;
  }
}

}  // namespace

Salt Salt::Named(std::string_view text) {
  if (text.empty()) return {};
  return {SaltState::kSalted, hashing::Seed::RawOf({}, text) - hashing::kBaseSeed};
}

Salt InheritSalt(const EventBatch& batch, const EngineEvent& event, Tier tier, Salt own,
                 CopyTable& blocks) {
  if (own.state == SaltState::kSalted || !OnPath(tier)) return own;
  const auto salt_of = [&](EngineHash hash) {
    const BlockRecord* record = blocks.Find(hash);
    return record == nullptr ? Salt{} : Salt{record->salt_state, record->salt_mix};
  };
  if (event.parent) {
    const Salt parent = salt_of(*event.parent);
    if (parent.state == SaltState::kSalted || parent.state == SaltState::kAmbiguous) return parent;
  }
  if (tier == Tier::kHostPinned) {
    const Salt same = salt_of(batch.HashesOf(event).front());
    if (same.state == SaltState::kSalted) return same;
  }
  return {};
}

bool LacksKeys(const EventBatch& batch, const EngineEvent& event, CopyTable& blocks) {
  if (event.extra_blocks.count > 0 || event.has_mm_infos) return false;
  const auto hashes = batch.HashesOf(event);
  return std::any_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
    const BlockRecord* record = blocks.Find(hash);
    return record != nullptr && record->keyed;
  });
}

bool KeysAreTold(const EventBatch& batch, const EngineEvent& event, CopyTable& blocks) {
  if (event.extra_blocks.count > 0 || event.has_mm_infos) return true;
  const auto hashes = batch.HashesOf(event);
  return std::all_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
    const BlockRecord* record = blocks.Find(hash);
    return record != nullptr && record->content != 0;
  });
}

void AddCopies(std::span<const PlacedBlock> stored, Tier tier, const Salt* salt,
               std::span<const std::uint8_t> keyed, CopyTable& blocks, TranslatorStats& stats) {
  ForEachAhead(
      stored, blocks, [](const PlacedBlock& block) { return block.engine; },
      [&](std::size_t i, const PlacedBlock& block) {
        AddCopy(block, tier, salt, i < keyed.size() && keyed[i] != 0, blocks, stats);
      });
}

void RemoveCopies(const EventBatch& batch, const EngineEvent& event, Tier tier, CopyTable& blocks,
                  std::vector<EngineHash>& gone, TranslatorStats& stats) {
  ForEachAhead(
      batch.HashesOf(event), blocks, [](EngineHash hash) { return hash; },
      [&](std::size_t i, EngineHash hash) {
        const std::uint32_t left = batch.CopiesLeftOf(event, i);
        if (RemoveCopy(hash, tier, left, blocks, stats)) gone.push_back(hash);
      });
}

}  // namespace kvr::placement
