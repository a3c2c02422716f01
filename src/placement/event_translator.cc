#include "placement/event_translator.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "hashing/block_hash.h"
#include "hashing/mm_pads.h"
#include "hashing/xxh3.h"
#include "placement/block_keys.h"
#include "placement/digest_sense.h"
#include "placement/hash_set.h"
#include "placement/rank_memory.h"
#include "placement/router_placement.h"
#include "wire/medium.h"
#include "wire/trtllm_json.h"

namespace kvr::placement {
namespace {

using wire::EngineEvent;
using wire::EventType;
using wire::GroupKind;

// The salt of a store as the seed sees it.
struct Salt {
  SaltState state = SaltState::kNone;
  std::uint64_t mix = 0;

  static Salt Named(std::string_view text) {
    if (text.empty()) return {};
    return {SaltState::kSalted, hashing::Seed::RawOf({}, text) - hashing::kBaseSeed};
  }
};

// What an adapter that goes by its number alone adds to the seed. The number means nothing outside
// the engine process, so no request can name it; 0 is the base model.
std::uint64_t NamelessLora(const EngineEvent& event) {
  constexpr std::uint64_t kSeed = 3;
  if (!event.lora_name.empty() || event.lora_id.value_or(0) == 0) return 0;
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(*event.lora_id >> (8 * i));
  return hashing::Xxh3({bytes.data(), bytes.size()}, kSeed) | 1;
}

// vLLM writes zeros where a prompt came as embeddings; up to 0.16 nothing else tells such blocks
// from text.
bool IsPlaceholder(std::span<const TokenId> window) {
  return window.front() == 0 &&
         std::all_of(window.begin(), window.end(), [](TokenId token) { return token == 0; });
}

// What stands for the embeddings behind a placeholder: no request can name it, and no other block
// has it.
std::uint64_t EmbeddingMix(EngineHash block) {
  constexpr std::uint64_t kSeed = 4;
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(Raw(block) >> (8 * i));
  return hashing::Xxh3({bytes.data(), bytes.size()}, kSeed) | 1;
}

// Tiers whose blocks lie on the way of a prefix through the engine. What lies deeper is stored by
// components that know neither groups nor salts.
bool OnPath(Tier tier) {
  return tier == Tier::kDevice || tier == Tier::kHostPinned;
}

// Calls `use` with the place of each hash and the hash, and asks for the records some hashes ahead:
// the table of a large rank is not in a cache.
template <typename Use>
void ForEachAhead(std::span<const EngineHash> hashes, const CopyTable& blocks, Use use) {
  constexpr std::size_t kAhead = 8;
  for (const EngineHash hash : hashes.first(std::min(kAhead, hashes.size())))
    blocks.Prefetch(hash);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (i + kAhead < hashes.size()) blocks.Prefetch(hashes[i + kAhead]);
    use(i, hashes[i]);
  }
}

std::optional<DropReason> CheckOrigin(const EngineEvent& event) {
  if (event.ownership == wire::Ownership::kUnknown) return DropReason::kUnknownOwnership;
  if (event.ownership == wire::Ownership::kKvcr || !event.backend.empty()) {
    return DropReason::kUnsupportedOwnership;
  }
  if (event.type == EventType::kIgnored) return DropReason::kIgnoredEvent;
  if (event.locality == wire::Locality::kRemote) return DropReason::kRemoteLocality;
  if (event.locality == wire::Locality::kUnknown) return DropReason::kUnknownLocality;
  return std::nullopt;
}

std::optional<DropReason> CheckGroup(const EngineEvent& event, GroupTable& groups) {
  const GroupTable::Entry* learned = event.group ? groups.Find(*event.group) : nullptr;
  const GroupKind before = learned ? learned->kind : GroupKind::kAbsent;
  const GroupKind kind = event.kind != GroupKind::kAbsent ? event.kind : before;
  if (kind == GroupKind::kUnknown) return DropReason::kUnknownKind;
  if (kind == GroupKind::kOther) return DropReason::kNonMainGroup;
  if (kind == GroupKind::kAbsent) {
    if (event.group.value_or(0) != 0) return DropReason::kUnlearnedGroup;
  } else if (event.group && groups.IsFurther(*event.group)) {
    return DropReason::kFurtherMainGroup;
  }
  return std::nullopt;
}

// Kinds of which nothing is looked for when a prefix is reused.
bool NeverMatters(const GroupTable::Entry& entry) {
  return entry.kind == GroupKind::kOther && entry.side.rule == SideRule::kNever;
}

}  // namespace

class EventTranslator::Impl {
 public:
  explicit Impl(const TranslatorOptions& options) : options_(options), digests_(options.digests) {
    options_.limits.digests = digests_.reading().end;
  }

  Result<void, wire::DecodeError> Translate(std::span<const std::byte> payload,
                                            PlacementBatch& out) {
    out.Clear();
    ++stats_.batches;
    const bool json = wire::LooksLikeJson(payload);
    if (router_.Takes(payload, json, options_.limits)) return TranslateRouterEvents(out);
    auto decoded = json ? json_.Decode(payload, options_.limits, options_.block_size, batch_)
                        : wire::DecodeEventBatch(payload, options_.limits, batch_);
    RankMemory* memory =
        decoded ? MemoryOf(batch_.dp_rank.value_or(options_.rank.dp_rank)) : nullptr;
    if (memory == nullptr) {
      ++stats_.bad_batches;
      if (decoded)
        decoded = tl::make_unexpected(wire::DecodeError{wire::DecodeErrc::kOverLimit, 0});
      batch_.Clear();
      return decoded;
    }
    if (digests_.Concerns(batch_)) ReadDigests(payload, *memory, out);
    stats_.legacy_layouts += batch_.legacy_layouts;
    stats_.trailing_bytes += batch_.trailing_bytes;
    out.ts = batch_.ts;
    out.dp_rank = batch_.dp_rank;
    ends_.clear();
    side_ends_.clear();
    for (const wire::BadEvent& bad : batch_.bad)
      Drop(Undecodable(bad), out);
    for (const EngineEvent& event : batch_.events) {
      if (const auto reason = TranslateEvent(event, *memory, out)) {
        Drop(DroppedEvent{event.index, *reason, {}, event.block_size}, out);
      }
      if (!memory->held.empty()) Release(event, *memory, out);
    }
    if (memory->chunks.expires()) ExpireChunks(*memory, out);
    if (!batch_.bad.empty()) out.SortDropped();
    out.wrong_block_size = memory->wrong_block_size;
    SetSpans(out);
    return {};
  }

  void Reset() {
    ranks_.clear();
    json_.Reset();
    digests_.Reset();
    options_.limits.digests = digests_.reading().end;
  }

  void ForgetCounts() {
    for (RankMemory& memory : ranks_) {
      memory.blocks.ForgetCounts();
      memory.held.Clear();  // a removal may be among what was lost
    }
  }

  const wire::EventBatch& decoded() const { return batch_; }
  const TranslatorOptions& options() const { return options_; }
  const TranslatorStats& stats() const { return stats_; }
  DigestReading digests() const { return digests_.reading(); }

 private:
  // What the batch says of the digests' end; decodes it again when that is another one.
  void ReadDigests(std::span<const std::byte> payload, RankMemory& memory, PlacementBatch& out) {
    const DigestSense::Verdict verdict = digests_.Learn(batch_, memory.blocks);
    if (verdict == DigestSense::Verdict::kSame) return;
    if (verdict == DigestSense::Verdict::kForgetAndDecode) {
      ++stats_.digest_changes;
      out.forget = true;
      for (RankMemory& rank : ranks_) {
        rank.blocks.Clear();
        rank.held.Clear();
        rank.chunks.Clear();
      }
    }
    options_.limits.digests = digests_.reading().end;
    // What could be decoded by one end can be by the other.
    static_cast<void>(wire::DecodeEventBatch(payload, options_.limits, batch_));
  }

  Result<void, wire::DecodeError> TranslateRouterEvents(PlacementBatch& out) {
    const auto placed =
        router_.Place(options_.limits, options_.rank, options_.any_worker, out, batch_);
    if (!placed) ++stats_.bad_batches;
    for (const DroppedEvent& dropped : out.dropped)
      ++stats_.dropped[static_cast<std::size_t>(dropped.reason)];
    stats_.stored_blocks += out.blocks.size();
    stats_.removed_blocks += out.removed.size();
    return placed;
  }

  // Null when the stream named too many ranks.
  RankMemory* MemoryOf(std::uint32_t dp_rank) {
    for (RankMemory& memory : ranks_) {
      if (memory.dp_rank == dp_rank) return &memory;
    }
    if (ranks_.size() >= options_.ranks_max) return nullptr;
    RankMemory& added = ranks_.emplace_back(dp_rank, options_.counted_blocks_max);
    if (options_.lenient_media) added.chunks.Begin();  // as LMCache's are
    return &added;
  }

  void Drop(const DroppedEvent& dropped, PlacementBatch& out) {
    ++stats_.dropped[static_cast<std::size_t>(dropped.reason)];
    out.dropped.push_back(dropped);
  }

  std::optional<DropReason> TranslateEvent(const EngineEvent& event, RankMemory& memory,
                                           PlacementBatch& out) {
    if (const auto reason = CheckOrigin(event)) return reason;
    if (event.type == EventType::kCleared) {
      memory.blocks.Clear();
      memory.held.Clear();
      memory.chunks.Clear();
      Emit(event, PlacementKind::kCleared, Tier::kDevice, memory, out);
      ends_.push_back(0);
      return std::nullopt;
    }
    const auto tier = options_.lenient_media ? wire::TierFromMediumLeniently(event.medium)
                                             : wire::TierFromMedium(event.medium);
    if (!tier) return DropReason::kUnknownMedium;
    if (OnPath(*tier)) {
      if (event.type == EventType::kStored && event.group && event.kind != GroupKind::kAbsent) {
        memory.groups.Learn(event);
      }
      const auto reason = CheckGroup(event, memory.groups);
      if (*tier == Tier::kHostPinned && NeedsKind(event, memory)) {
        memory.held.Hold(batch_, event, !reason);
      }
      if (reason) {
        NoteSide(event, *tier, memory, out);
        return reason;
      }
    }
    if (event.type == EventType::kRemoved) return Remove(event, *tier, memory, out);
    return Store(event, *tier, memory, out);
  }

  // Whether only a later event can say what the event means.
  static bool NeedsKind(const EngineEvent& event, RankMemory& memory) {
    return event.group && event.kind == GroupKind::kAbsent &&
           memory.groups.Find(*event.group) == nullptr;
  }

  // After a store that told the kind of a group: what was held for that group comes now, by name.
  void Release(const EngineEvent& teller, RankMemory& memory, PlacementBatch& out) {
    if (teller.type != EventType::kStored || !teller.group || teller.kind == GroupKind::kAbsent ||
        memory.groups.Find(*teller.group) == nullptr) {
      return;
    }
    for (const HeldEvents::Event& held : memory.held.Take(*teller.group)) {
      EngineEvent event;
      event.index = teller.index;
      event.group = held.group;
      event.hashes = Append(batch_.hashes, held.names);
      const bool main = !CheckGroup(event, memory.groups);
      if (held.as_main) {
        if (main) continue;
        if (!held.removed) Remove(event, Tier::kHostPinned, memory, out);  // it was not the main's
      }
      event.type = held.removed ? EventType::kRemoved : EventType::kStored;
      event.copies_left = Append(batch_.copies_left, held.copies_left);
      if (!main) {
        NoteSide(event, Tier::kHostPinned, memory, out);
      } else if (held.removed) {
        Remove(event, Tier::kHostPinned, memory, out);
      } else {
        Store(event, Tier::kHostPinned, memory, out);
      }
    }
  }

  template <typename T>
  static wire::Slice Append(std::vector<T>& to, const std::vector<T>& what) {
    const wire::Slice slice{static_cast<std::uint32_t>(to.size()),
                            static_cast<std::uint32_t>(what.size())};
    to.insert(to.end(), what.begin(), what.end());
    return slice;
  }

  // An event on the path that is not the main group's.
  void NoteSide(const EngineEvent& event, Tier tier, RankMemory& memory, PlacementBatch& out) {
    const GroupTable::Entry* entry = event.group ? memory.groups.Find(*event.group) : nullptr;
    if (entry == nullptr || NeverMatters(*entry)) return;
    SideEvent& side = out.side.emplace_back();
    side.before = static_cast<std::uint32_t>(out.events.size());
    side.group = entry->side;
    side.removed = event.type == EventType::kRemoved;
    side.tier = tier;
    const auto hashes = batch_.HashesOf(event);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      SideCopy& copy = out.side_copies.emplace_back(SideCopy{hashes[i]});
      const std::uint32_t left = batch_.CopiesLeftOf(event, i);
      if (left != wire::kCopiesUnknown) copy.left = left;
    }
    side_ends_.push_back(out.side_copies.size());
  }

  PlacementEvent& Emit(const EngineEvent& event, PlacementKind kind, Tier tier,
                       const RankMemory& memory, PlacementBatch& out) {
    PlacementEvent& placed = out.events.emplace_back();
    placed.kind = kind;
    placed.tier = tier;
    placed.rank = Rank{options_.rank.worker, memory.dp_rank};
    out.event_index.push_back(event.index);
    return placed;
  }

  std::optional<DropReason> Remove(const EngineEvent& event, Tier tier, RankMemory& memory,
                                   PlacementBatch& out) {
    if (event.hashes.count == 0) return DropReason::kEmptyStore;
    const std::size_t before = out.removed.size();
    ForEachAhead(batch_.HashesOf(event), memory.blocks, [&](std::size_t i, EngineHash hash) {
      const std::uint32_t left = batch_.CopiesLeftOf(event, i);
      if (RemoveCopy(hash, tier, left, memory.blocks)) out.removed.push_back(hash);
    });
    if (memory.chunks.begun()) {
      for (const EngineHash hash : batch_.HashesOf(event)) {
        if (memory.blocks.Find(hash) == nullptr) memory.chunks.Forget(hash);
      }
    }
    const std::size_t passed = out.removed.size() - before;
    stats_.removed_blocks += passed;
    stats_.held_removals += event.hashes.count - passed;
    if (passed > 0) {
      Emit(event, PlacementKind::kRemoved, tier, memory, out);
      ends_.push_back(out.removed.size());
    }
    return std::nullopt;
  }

  // True when no copy is left in the tier, as far as we know: by the engine's word (`left`) where
  // it gives one, else by our count. Of mixed content each removal counts: the index holds a block
  // for each content, and one that stays would never go.
  bool RemoveCopy(EngineHash hash, Tier tier, std::uint32_t left, CopyTable& blocks) {
    BlockRecord* record = blocks.Find(hash);
    const auto at = static_cast<std::size_t>(tier);
    if (record == nullptr || record->copies[at] == 0) ++stats_.unmatched_removals;
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

  // Own salt first; else the parent's; else, of a copy in host memory, that of the same block on
  // the device, for such copies are announced without keys.
  Salt InheritSalt(const EngineEvent& event, Tier tier, Salt own, RankMemory& memory) {
    if (own.state == SaltState::kSalted || !OnPath(tier)) return own;
    const auto salt_of = [&](EngineHash hash) {
      const BlockRecord* record = memory.blocks.Find(hash);
      return record == nullptr ? Salt{} : Salt{record->salt_state, record->salt_mix};
    };
    if (event.parent) {
      const Salt parent = salt_of(*event.parent);
      if (parent.state == SaltState::kSalted || parent.state == SaltState::kAmbiguous)
        return parent;
    }
    if (tier == Tier::kHostPinned) {
      const Salt same = salt_of(batch_.HashesOf(event).front());
      if (same.state == SaltState::kSalted) return same;
    }
    return {};
  }

  bool RepeatsHash(const EngineEvent& event) {
    const auto hashes = batch_.HashesOf(event);
    if (hashes.size() == 1) return event.parent == hashes.front();
    seen_.Begin(hashes.size() + 1);
    if (event.parent) seen_.Insert(*event.parent);
    return !std::all_of(hashes.begin(), hashes.end(),
                        [&](EngineHash hash) { return seen_.Insert(hash); });
  }

  // Whether copies off the device, which are announced without keys, are of blocks whose tokens
  // alone would name another content.
  bool LacksKeys(const EngineEvent& event, Tier tier, RankMemory& memory) {
    if (tier == Tier::kDevice || event.extra_blocks.count > 0 || event.has_mm_infos) return false;
    const auto hashes = batch_.HashesOf(event);
    return std::any_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
      const BlockRecord* record = memory.blocks.Find(hash);
      return record != nullptr && record->keyed;
    });
  }

  // Whether a store of another block size names blocks of ours all the same; else why not.
  std::optional<DropReason> CheckOddSize(const EngineEvent& event, Tier tier,
                                         std::uint32_t block_size, RankMemory& memory) {
    const std::uint32_t hashes = event.hashes.count;
    const std::uint32_t tokens = event.tokens.count;
    if (block_size != 0 && event.block_size > block_size && event.block_size % block_size == 0 &&
        !event.eagle) {
      // The size of what the engine allocates at once, while names and tokens keep to ours.
      if (tokens / block_size == hashes && tokens % block_size == 0) return std::nullopt;
      if (tier != Tier::kDevice) return DropReason::kChunkedStore;
    }
    if (tier == Tier::kDevice && block_size != 0) {
      const bool piece = event.block_size != 0 && block_size % event.block_size == 0 &&
                         hashes == 1 && tokens == event.block_size;
      if (piece && memory.size_confirmed && memory.wrong_block_size == 0) {
        return DropReason::kPartialBlock;
      }
      memory.wrong_block_size = event.block_size;
    }
    stats_.mismatched_block_size = event.block_size;
    return DropReason::kBlockSizeMismatch;
  }

  // After a store on the device that was of the right size.
  void ConfirmSize(const EngineEvent& event, RankMemory& memory) {
    memory.size_confirmed = true;
    if (memory.wrong_block_size == 0) return;
    if (!event.parent || memory.blocks.Find(*event.parent) != nullptr) memory.wrong_block_size = 0;
  }

  // How many of the named blocks the tokens fill.
  std::optional<DropReason> CountBlocks(const EngineEvent& event, Tier tier,
                                        std::uint32_t block_size, RankMemory& memory,
                                        std::size_t& count) {
    if (event.block_size != block_size || block_size == 0) {
      if (const auto reason = CheckOddSize(event, tier, block_size, memory)) return reason;
    }
    const std::size_t windows = hashing::BlockCount(event.tokens.count, block_size, event.eagle);
    if (windows > event.hashes.count) return DropReason::kSparseStore;
    if (windows == 0) return DropReason::kTokensTooShort;
    if (tier == Tier::kDevice) ConfirmSize(event, memory);
    count = windows;
    stats_.cut_blocks += event.hashes.count - windows;
    return std::nullopt;
  }

  std::optional<DropReason> Store(const EngineEvent& event, Tier tier, RankMemory& memory,
                                  PlacementBatch& out) {
    const std::string_view named = SaltOf(batch_, event);
    const Salt own = Salt::Named(named);
    if (event.hashes.count == 0) return DropReason::kEmptyStore;
    const Salt salt = InheritSalt(event, tier, own, memory);
    if (salt.state == SaltState::kAmbiguous) return DropReason::kAmbiguousCacheNamespace;
    if (RepeatsHash(event)) return DropReason::kSelfReferencing;
    const bool hash_only = event.tokens.count == 0 || LacksKeys(event, tier, memory);
    std::size_t count = event.hashes.count;
    const std::uint32_t block_size =
        options_.block_size != 0 ? options_.block_size : event.block_size;
    if (!hash_only && tier != Tier::kDevice && MayBeChunk(event, block_size, memory) &&
        StoreChunk(event, tier, block_size, memory, out)) {
      return std::nullopt;
    }
    if (!hash_only) {
      if (const auto reason = CountBlocks(event, tier, block_size, memory, count)) return reason;
    }
    PlacementEvent& placed = Emit(event, PlacementKind::kStored, tier, memory, out);
    placed.parent = event.parent;
    placed.hash_only = hash_only;
    keyed_.assign(count, 0);
    if (hash_only) {
      for (const EngineHash hash : batch_.HashesOf(event))
        out.blocks.push_back({hash, {}});
    } else {
      placed.eligible = HashBlocks(event, tier, named, salt, block_size, count, memory, out);
      if (tier == Tier::kDevice && memory.chunks.begun()) {
        memory.chunks.Learn(event.parent, TokenHashes(event, block_size).first(count),
                            batch_.HashesOf(event).first(count));
      }
    }
    ends_.push_back(out.blocks.size());
    stats_.stored_blocks += count;
    const auto blocks = std::span(out.blocks).last(count);
    const auto hashes = batch_.HashesOf(event).first(count);
    ForEachAhead(hashes, memory.blocks, [&](std::size_t i, EngineHash) {
      AddCopy(blocks[i], tier, hash_only ? nullptr : &salt, keyed_[i] != 0, memory.blocks);
    });
    return std::nullopt;
  }

  // The blocks of a store by their tokens alone.
  std::span<const BlockHash> TokenHashes(const EngineEvent& event, std::uint32_t block_size) {
    hashing::HashBlocks(batch_.TokensOf(event), {block_size, event.eagle, {}}, token_hashes_);
    return token_hashes_;
  }

  // One name for several blocks, or for a block that the engine calls otherwise.
  static bool MayBeChunk(const EngineEvent& event, std::uint32_t block_size, RankMemory& memory,
                         EngineHash name) {
    if (event.hashes.count != 1 || event.eagle || block_size == 0) return false;
    if (event.block_size > block_size) return true;
    return memory.chunks.begun() && event.block_size == block_size &&
           memory.blocks.Find(name) == nullptr;
  }
  bool MayBeChunk(const EngineEvent& event, std::uint32_t block_size, RankMemory& memory) {
    return MayBeChunk(event, block_size, memory, batch_.HashesOf(event).front());
  }

  // False when none of its blocks is known.
  bool StoreChunk(const EngineEvent& event, Tier tier, std::uint32_t block_size, RankMemory& memory,
                  PlacementBatch& out) {
    memory.chunks.Begin();
    const std::uint32_t tokens = std::min(event.tokens.count, event.block_size);
    bool repeated = false;
    const ChunkBook::Chunk* chunk =
        memory.chunks.Store(batch_.HashesOf(event).front(), event.parent,
                            TokenHashes(event, block_size).first(tokens / block_size),
                            tokens % block_size == 0, tier, batch_.ts, repeated);
    if (chunk == nullptr) return false;
    if (repeated) return true;
    Emit(event, PlacementKind::kStored, tier, memory, out).hash_only = true;
    for (const EngineHash name : chunk->names) {
      const PlacedBlock& block = out.blocks.emplace_back(PlacedBlock{name, {}});
      AddCopy(block, tier, nullptr, false, memory.blocks);
    }
    ends_.push_back(out.blocks.size());
    stats_.stored_blocks += chunk->names.size();
    return true;
  }

  // What nobody will remove.
  void ExpireChunks(RankMemory& memory, PlacementBatch& out) {
    while (const auto chunk = memory.chunks.Expire(batch_.ts)) {
      EngineEvent event;
      event.type = EventType::kRemoved;
      event.index = batch_.events.empty() ? 0 : batch_.events.back().index;
      event.hashes = Append(batch_.hashes, chunk->names);
      Remove(event, chunk->tier, memory, out);
    }
  }

  bool HasNoKeys(const EngineEvent& event) const {
    const auto empty = [](const wire::Slice& keys) { return keys.count == 0; };
    const auto extra =
        std::span(batch_.extra_blocks).subspan(event.extra_blocks.begin, event.extra_blocks.count);
    const auto mm =
        std::span(batch_.mm_blocks).subspan(event.mm_blocks.begin, event.mm_blocks.count);
    return std::all_of(extra.begin(), extra.end(), empty) &&
           std::all_of(mm.begin(), mm.end(), empty);
  }

  // Whether the store says which keys its blocks have, be it that they have none. Copies off the
  // device are announced without them; of those the store on the device tells.
  bool KeysAreTold(const EngineEvent& event, Tier tier, RankMemory& memory) {
    if (tier == Tier::kDevice || event.extra_blocks.count > 0 || event.has_mm_infos) return true;
    const auto hashes = batch_.HashesOf(event);
    return std::all_of(hashes.begin(), hashes.end(), [&](EngineHash hash) {
      const BlockRecord* record = memory.blocks.Find(hash);
      return record != nullptr && record->content != 0;
    });
  }

  // Appends the first `count` blocks. True when their hashes cover all that the engine hashed.
  bool HashBlocks(const EngineEvent& event, Tier tier, std::string_view named_salt, Salt salt,
                  std::uint32_t block_size, std::size_t count, RankMemory& memory,
                  PlacementBatch& out) {
    const auto tokens = batch_.TokensOf(event);
    const auto hashes = batch_.HashesOf(event);
    const std::uint64_t nameless = NamelessLora(event);
    std::uint64_t mix = salt.state == SaltState::kSalted ? salt.mix : 0;
    if (options_.unmapped_keys == UnmappedKeys::kFold) mix += nameless;
    const std::uint64_t raw = hashing::Seed::RawOf(event.lora_name, {}) + mix;
    if (how_.seed.raw() != raw) how_.seed = hashing::Seed::FromRaw(raw);
    how_.block_size = block_size;
    how_.eagle = event.eagle;
    const hashing::BlockHashing& how = how_;
    const hashing::Seed& seed = how.seed;
    bool complete = nameless == 0 && KeysAreTold(event, tier, memory);
    if (HasNoKeys(event)) {
      hashing::HashBlocks(tokens, how, plain_hashes_);
      const std::size_t before = out.blocks.size();
      out.blocks.resize(before + count);
      std::transform(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(count),
                     plain_hashes_.begin(),
                     out.blocks.begin() + static_cast<std::ptrdiff_t>(before),
                     [](EngineHash engine, BlockHash local) {
                       return PlacedBlock{engine, local};
                     });
      for (std::size_t i = 0; i < count; ++i) {
        if (tokens[i * block_size] != 0) continue;
        if (SetPlaceholderApart(hashing::BlockWindow(tokens, how, i), out.blocks[before + i], i)) {
          complete = false;
        }
      }
      return complete;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto window = hashing::BlockWindow(tokens, how, i);
      const bool plain =
          batch_.ExtraKeysOf(event, i).empty() && batch_.MmHashesOf(event, i).empty();
      if (plain) {
        PlacedBlock& block =
            out.blocks.emplace_back(PlacedBlock{hashes[i], hashing::HashBlock(window, seed)});
        if (SetPlaceholderApart(window, block, i)) complete = false;
        continue;
      }
      ReadBlockKeys(batch_, event, i, named_salt, keys_);
      keyed_[i] = keys_.unmapped || !keys_.mm.empty() ? 1 : 0;
      complete = complete && keyed_[i] == 0;
      out.blocks.push_back({hashes[i], HashKeyedBlock(window, seed)});
    }
    return complete;
  }

  // False, and nothing done, when the window of the store's block `i` is text.
  bool SetPlaceholderApart(std::span<const TokenId> window, PlacedBlock& block, std::size_t i) {
    if (!IsPlaceholder(window)) return false;
    const auto own = hashing::Seed::FromRaw(how_.seed.raw() + EmbeddingMix(block.engine));
    block.local = hashing::HashBlock(window, own);
    keyed_[i] = 1;
    return true;
  }

  BlockHash HashKeyedBlock(std::span<const TokenId> window, const hashing::Seed& seed) {
    std::uint64_t raw = seed.raw() + keys_.unmapped_bytes;
    if (options_.unmapped_keys == UnmappedKeys::kFold) raw += keys_.unmapped_other;
    const auto own = hashing::Seed::FromRaw(raw);
    const hashing::Placeholders placeholders{options_.image_token, options_.video_token};
    return hashing::HashBlockWithPads(window, own, placeholders, keys_.mm, pad_scratch_);
  }

  // `salt` is null when the store says nothing of the content.
  void AddCopy(const PlacedBlock& block, Tier tier, const Salt* salt, bool keyed,
               CopyTable& blocks) {
    BlockRecord* record = blocks.Add(block.engine);
    if (record == nullptr) {
      ++stats_.uncounted_blocks;
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

  // The vectors behind the spans have stopped growing.
  void SetSpans(PlacementBatch& out) const {
    out.SetEventSpans(ends_);
    std::size_t copy = 0;
    for (std::size_t i = 0; i < out.side.size(); ++i) {
      out.side[i].copies = std::span(out.side_copies).subspan(copy, side_ends_[i] - copy);
      copy = side_ends_[i];
    }
  }

  TranslatorOptions options_;
  TranslatorStats stats_;
  std::vector<RankMemory> ranks_;
  wire::TrtllmJsonDecoder json_;
  RouterPlacement router_;
  DigestSense digests_;
  // Scratch, kept for its capacity.
  wire::EventBatch batch_;
  HashSet seen_;
  BlockKeys keys_;
  std::vector<std::uint8_t> keyed_;  // of the store's blocks: whether keys are in their hashes
  hashing::BlockHashing how_;        // of the last store: most events have the same seed
  std::vector<BlockHash> plain_hashes_;
  std::vector<BlockHash> token_hashes_;
  std::vector<TokenId> pad_scratch_;
  std::vector<std::size_t> side_ends_;  // as ends_, of the side events' copies
  std::vector<std::size_t> ends_;       // of each event's blocks or hashes in the output
};

EventTranslator::EventTranslator(const TranslatorOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
EventTranslator::~EventTranslator() = default;
EventTranslator::EventTranslator(EventTranslator&&) noexcept = default;
EventTranslator& EventTranslator::operator=(EventTranslator&&) noexcept = default;

Result<void, wire::DecodeError> EventTranslator::Translate(std::span<const std::byte> payload,
                                                           PlacementBatch& out) {
  return impl_->Translate(payload, out);
}
const wire::EventBatch& EventTranslator::decoded() const {
  return impl_->decoded();
}
void EventTranslator::Reset() {
  impl_->Reset();
}
void EventTranslator::ForgetCounts() {
  impl_->ForgetCounts();
}
DigestReading EventTranslator::digests() const {
  return impl_->digests();
}
const TranslatorOptions& EventTranslator::options() const {
  return impl_->options();
}
const TranslatorStats& EventTranslator::stats() const {
  return impl_->stats();
}

}  // namespace kvr::placement
