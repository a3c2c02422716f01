// Copies of a group whose kind is not told, and what they are once it is the main one.
#include <algorithm>
#include <functional>
#include <string_view>

#include "hashing/block_hash.h"
#include "placement/block_keys.h"
#include "placement/event_placer.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;
using wire::EventType;

namespace {

// How many of the store's blocks are told by its tokens. 0 where Store would refuse it or take
// other sizes into account: its blocks then go by their names.
std::size_t WholeBlocks(const EngineEvent& event, std::uint32_t block_size) {
  const std::uint32_t hashes = event.hashes.count;
  const std::uint32_t tokens = event.tokens.count;
  if (block_size == 0 || tokens == 0) return 0;
  if (event.block_size != block_size) {
    const bool multiple = event.block_size > block_size && event.block_size % block_size == 0;
    if (!multiple || event.eagle || tokens / block_size != hashes || tokens % block_size != 0) {
      return 0;
    }
  }
  const std::size_t windows = hashing::BlockCount(tokens, block_size, event.eagle);
  return windows > hashes ? 0 : windows;
}

}  // namespace

void EventPlacer::Hold(const EngineEvent& event, const EventBatch& batch, Tier tier,
                       GroupTable::Group& group, RankMemory& memory) {
  memory.groups.Hold(group, batch, event, tier, stats_);
  if (event.type != EventType::kStored || event.hashes.count == 0) return;
  CopyTable& held = group.held->records();
  const std::string_view named = SaltOf(batch, event);
  const Salt own = Salt::Named(named);
  NoteShown(event, own);
  const Salt salt = InheritSalt(batch, event, tier, own, held);
  const std::uint32_t block_size =
      options_.block_size != 0 ? options_.block_size : event.block_size;
  const std::size_t count = WholeBlocks(event, block_size);
  const bool off_device = tier != Tier::kDevice;
  if (count == 0 || salt.state == SaltState::kAmbiguous ||
      seen_.FindRepeated(event.parent, batch.HashesOf(event), std::identity()) ||
      (off_device &&
       (LacksKeys(batch, event, held) || MayLackKeys(batch, event, salt, shown_, held)))) {
    return;
  }
  held_.clear();
  const bool complete = hasher_.AppendBlocks(batch, event, named, salt, block_size, count, held_);
  const auto keyed = hasher_.keyed();
  shown_.others = shown_.others || std::any_of(keyed.begin(), keyed.end(),
                                               [](std::uint8_t has) { return has != 0; });
  const bool eligible = complete && (!off_device || KeysAreTold(batch, event, held));
  group.held->Learn(held_, {!off_device, event.parent, salt.state, salt.mix, keyed, eligible});
}

void EventPlacer::StoreHeld(const EngineEvent& event, const GroupTable::Group& group, Tier tier,
                            RankMemory& memory, PlacementBatch& out) {
  const auto at = static_cast<std::size_t>(tier);
  CopyTable& held = group.held->records();
  // Null when the tier has none, or nothing goes where the name is.
  const auto copies_of = [&](EngineHash name) -> const BlockRecord* {
    const BlockRecord* record = held.Find(name);
    return record == nullptr || record->copies[at] == 0 || IsMisplaced(name, memory.blocks)
               ? nullptr
               : record;
  };
  const std::vector<HeldCopies::Block> known = group.held->Known();
  std::vector<std::uint8_t> keyed;
  for (std::size_t i = 0; i < known.size();) {
    const HeldCopies::Block& first = known[i];
    const BlockRecord* const record = copies_of(first.name);
    if (record == nullptr) {
      ++i;
      continue;
    }
    const Salt salt{record->salt_state, record->salt_mix};
    const std::size_t before = out.blocks.size();
    keyed.clear();
    for (const BlockRecord* next = record; next != nullptr;) {
      out.blocks.push_back({known[i].name, known[i].local});
      keyed.push_back(next->keyed ? 1 : 0);
      const HeldCopies::Block& last = known[i++];
      const bool follows =
          i < known.size() && known[i].parent == last.name && known[i].eligible == first.eligible;
      next = follows ? copies_of(known[i].name) : nullptr;
      if (next != nullptr && (next->salt_state != salt.state || next->salt_mix != salt.mix)) break;
    }
    EmitHeld(event, {tier, false, first.parent, &salt, keyed}, first.eligible, before, group,
             memory, out);
  }
  const std::size_t before = out.blocks.size();
  held.ForEach([&](EngineHash name, const BlockRecord& record) {
    if (record.place == 0 && copies_of(name) != nullptr) out.blocks.push_back({name, {}});
  });
  if (out.blocks.size() > before) {
    EmitHeld(event, {tier, false, std::nullopt, nullptr, {}}, false, before, group, memory, out);
  }
}

// A store of what was appended to the blocks since `before`.
void EventPlacer::EmitHeld(const EngineEvent& event, const StoreFacts& facts, bool eligible,
                           std::size_t before, const GroupTable::Group& group, RankMemory& memory,
                           PlacementBatch& out) {
  const auto at = static_cast<std::size_t>(facts.tier);
  const auto stored = std::span(out.blocks).subspan(before);
  CountCopies(stored, facts, memory);
  Withdraw(event, found_.moved, Tier::kHostPinned, memory, out);
  Withdraw(event, found_.misplaced, Tier::kDevice, memory, out);
  for (const PlacedBlock& block : stored) {
    BlockRecord* record = memory.blocks.Find(block.engine);
    if (record == nullptr) continue;
    record->copies[at] += group.held->records().Find(block.engine)->copies[at] - 1;
  }
  memory.owner = group.side.group;
  if (found_.refuse) {
    out.blocks.resize(before);
    return;
  }
  PlacementEvent& placed = Emit(event, PlacementKind::kStored, facts.tier, memory, out);
  placed.parent = facts.parent;
  placed.hash_only = facts.salt == nullptr;
  placed.eligible = eligible;
  ends_.push_back(out.blocks.size());
  stats_.stored_blocks += out.blocks.size() - before;
}

}  // namespace kvr::placement
