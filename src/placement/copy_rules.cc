#include "placement/copy_rules.h"

#include <algorithm>
#include <utility>

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

// How often the removal is passed on. Once when no copy is left in the tier, as far as we know: by
// the engine's word (`left`) where it gives one, else by our count. Of twins each removal counts:
// the index holds each of them, and one that stays would never go.
// Adds to `unmatched_removals` when none was counted.
std::size_t RemoveCopy(EngineHash hash, Tier tier, std::uint32_t left, RankMemory& memory,
                       std::uint64_t& unmatched_removals) {
  CopyTable& blocks = memory.blocks;
  BlockRecord* record = blocks.Find(hash);
  const auto at = static_cast<std::size_t>(tier);
  const bool unmatched = record == nullptr || record->copies[at] == 0;
  if (unmatched) ++unmatched_removals;
  const bool told = left != wire::kCopiesUnknown;
  if (record == nullptr && told && left > 0) record = blocks.Add(hash);
  if (record == nullptr) return !told || left == 0 ? 1 : 0;
  std::uint32_t& copies = record->copies[at];
  if (told) {
    copies = left;
  } else if (copies > 0) {
    --copies;
  }
  std::size_t times = copies == 0 || record->twins > 0 ? 1 : 0;
  // Our count does not say how many are gone.
  if (copies == 0 && (told || unmatched)) times += record->twins;
  const bool ambiguous = record->salt_state == SaltState::kAmbiguous;
  if (!ambiguous && !record->on_path()) record->salt_state = SaltState::kUnknown;
  if (record->held()) return times;
  if (record->has_one_place()) memory.gone.Note(hash, record->place);
  if (ambiguous) {  // for good
    *record = BlockRecord{.salt_state = SaltState::kAmbiguous, .epoch = record->epoch};
  } else {
    blocks.Erase(record);
  }
  return times;
}

// Of a block's content and where it is, never 0.
std::uint32_t PlaceOf(BlockHash local, std::optional<EngineHash> parent) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  const std::uint64_t above = parent ? (Raw(*parent) + 1) * kOdd : 0;
  return static_cast<std::uint32_t>((Raw(local) ^ above ^ above >> 32)) | 1;
}

// What the store of a block says of its place and salt, against what earlier ones said.
void AddPlace(const PlacedBlock& block, std::optional<EngineHash> parent, const StoreFacts& facts,
              BlockRecord& record, Contradictions& found) {
  const std::uint32_t place = PlaceOf(block.local, parent);
  const Salt& salt = *facts.salt;
  const bool device = facts.tier == Tier::kDevice;
  if (record.place != 0 && record.place != place) {
    const bool other_salt = record.salt_state == SaltState::kAmbiguous ||
                            (record.salt_state != SaltState::kUnknown &&
                             (record.salt_state != salt.state || record.salt_mix != salt.mix));
    if (device && !record.placed) {
      found.moved.push_back(block.engine);
    } else if (other_salt && record.twins < kTwinsMax) {
      ++record.twins;
    } else {
      record.misplaced = true;
      found.refuse = true;
      found.misplaced.push_back(block.engine);
    }
  }
  record.place = place;
  record.placed = record.placed || device;
  if (!OnPath(facts.tier) || record.salt_state == SaltState::kAmbiguous) return;
  if (record.salt_state == SaltState::kUnknown) {
    record.salt_state = salt.state;
    record.salt_mix = salt.mix;
  } else if (record.salt_state != salt.state || record.salt_mix != salt.mix) {
    record.salt_state = SaltState::kAmbiguous;
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

bool MayLackKeys(const EventBatch& batch, const EngineEvent& event, const Salt& salt,
                 const ShownKeys& shown, CopyTable& blocks) {
  // TensorRT-LLM's lists, whose copies are sole ones, say all in every event.
  if (event.sole || event.extra_blocks.count > 0 || event.has_mm_infos) return false;
  // A chain has one salt. Below a block that is known to have another no prompt would look for
  // this.
  const BlockRecord* parent = event.parent ? blocks.Find(*event.parent) : nullptr;
  const bool known_chain = parent != nullptr && (parent->salt_state == SaltState::kNone ||
                                                 parent->salt_state == SaltState::kSalted);
  const bool names_salt = event.cache_salt || salt.state == SaltState::kSalted || known_chain;
  const bool names_adapter = !event.lora_name.empty() || event.lora_id.value_or(0) != 0;
  const bool open =
      shown.others || (shown.salts && !names_salt) || (shown.adapters && !names_adapter);
  if (!open) return false;
  const auto hashes = batch.HashesOf(event);
  return std::any_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
    const BlockRecord* record = blocks.Find(hash);
    return record == nullptr || record->place == 0 || record->twins > 0;
  });
}

bool KeysAreTold(const EventBatch& batch, const EngineEvent& event, CopyTable& blocks) {
  if (event.extra_blocks.count > 0 || event.has_mm_infos) return true;
  const auto hashes = batch.HashesOf(event);
  return std::all_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
    const BlockRecord* record = blocks.Find(hash);
    return record != nullptr && record->place != 0;
  });
}

bool IsMisplaced(EngineHash name, CopyTable& blocks) {
  const BlockRecord* record = blocks.Find(name);
  return record != nullptr && record->misplaced;
}

bool IsElsewhere(std::span<const PlacedBlock> stored, std::optional<EngineHash> parent,
                 RankMemory& memory) {
  return std::any_of(stored.begin(), stored.end(), [&](const PlacedBlock& block) {
    const std::uint32_t place = PlaceOf(block.local, std::exchange(parent, block.engine));
    const BlockRecord* record = memory.blocks.Find(block.engine);
    if (record != nullptr && record->placed) return record->twins == 0 && record->place != place;
    const std::uint32_t gone = memory.gone.Find(block.engine);
    return gone != 0 && gone != place;
  });
}

void AddCopies(std::span<const PlacedBlock> stored, const StoreFacts& facts, RankMemory& memory,
               Contradictions& found, TranslatorStats& stats) {
  CopyTable& blocks = memory.blocks;
  GoneNames* const gone = facts.tier == Tier::kDevice ? nullptr : &memory.gone;
  blocks.NoteStore(facts.tier);
  std::optional<EngineHash> parent = facts.parent;
  ForEachAhead(
      stored, blocks, [](const PlacedBlock& block) { return block.engine; },
      [&](std::size_t i, const PlacedBlock& block) {
        const std::optional<EngineHash> above = std::exchange(parent, block.engine);
        BlockRecord* record = blocks.Add(block.engine);
        if (record == nullptr) {
          blocks.NoteUncounted();
          ++stats.uncounted_blocks;
          return;
        }
        std::uint32_t& copies = record->copies[static_cast<std::size_t>(facts.tier)];
        copies = facts.sole ? 1 : copies + 1;
        if (gone != nullptr && record->place == 0) {
          record->place = gone->Find(block.engine);
          record->placed = record->place != 0;
        }
        record->keyed = record->keyed || (i < facts.keyed.size() && facts.keyed[i] != 0);
        if (record->misplaced) {
          found.refuse = true;
        } else if (facts.salt != nullptr) {
          AddPlace(block, above, facts, *record, found);
        }
      });
}

void RemoveCopies(const EventBatch& batch, const EngineEvent& event, Tier tier, RankMemory& memory,
                  std::vector<EngineHash>& gone, TranslatorStats& stats) {
  CopyTable& blocks = memory.blocks;
  const bool may_be_partial = tier == Tier::kDevice && memory.partials.size() > 0;
  ForEachAhead(
      batch.HashesOf(event), blocks, [](EngineHash hash) { return hash; },
      [&](std::size_t i, EngineHash hash) {
        if (may_be_partial && blocks.Find(hash) == nullptr && memory.partials.Take(hash)) {
          ++stats.partial_removals;
          return;
        }
        const std::uint32_t left = batch.CopiesLeftOf(event, i);
        const std::size_t times = RemoveCopy(hash, tier, left, memory, stats.unmatched_removals);
        if (times == 0) ++stats.held_removals;
        for (std::size_t n = 0; n < times; ++n)
          gone.push_back(hash);
      });
}

void FindTiers(std::span<const EngineHash> hashes, CopyTable& blocks, std::vector<TierSet>& found,
               TranslatorStats& stats) {
  // A removal finds nothing where there was no store; somewhere it has to be looked for.
  TierSet anywhere;
  for (std::size_t tier = 0; tier < kTierCount; ++tier)
    anywhere[tier] = blocks.used(static_cast<Tier>(tier));
  if (anywhere.none()) anywhere.set(static_cast<std::size_t>(Tier::kDevice));
  found.assign(hashes.size(), TierSet());
  ForEachAhead(
      hashes, blocks, [](EngineHash hash) { return hash; },
      [&](std::size_t i, EngineHash hash) {
        const BlockRecord* record = blocks.Find(hash);
        for (std::size_t tier = 0; record != nullptr && tier < kTierCount; ++tier)
          found[i][tier] = record->copies[tier] > 0;
        if (found[i].none()) ++stats.unmatched_removals;
        if (found[i].none() || !blocks.complete()) found[i] = anywhere;
      });
}

void RemoveCopies(std::span<const EngineHash> hashes, std::span<const TierSet> tiers, Tier tier,
                  RankMemory& memory, std::vector<EngineHash>& gone, TranslatorStats& stats) {
  std::uint64_t counted_before = 0;  // by FindTiers
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (!tiers[i][static_cast<std::size_t>(tier)]) continue;
    const std::size_t times =
        RemoveCopy(hashes[i], tier, wire::kCopiesUnknown, memory, counted_before);
    if (times == 0) ++stats.held_removals;
    gone.insert(gone.end(), times, hashes[i]);
  }
}

}  // namespace kvr::placement
