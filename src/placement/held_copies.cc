#include "placement/held_copies.h"

#include <algorithm>
#include <utility>

namespace kvr::placement {

void HeldCopies::Forget(BlockRecord& record) {
  if (record.place != 0) {
    known_[record.place - 1].order = 0;
    free_.push_back(record.place);
  }
  record.place = 0;
}

void HeldCopies::Erase(BlockRecord* record) {
  Forget(*record);
  records_.Erase(record);
}

bool HeldCopies::Knows(const BlockRecord& record, const PlacedBlock& block,
                       std::optional<EngineHash> parent, const Said& said) const {
  const Block& known = known_[record.place - 1];
  return known.local == block.local && known.parent == parent &&
         record.salt_state == said.salt_state && record.salt_mix == said.salt_mix;
}

void HeldCopies::Learn(std::span<const PlacedBlock> blocks, const Said& said) {
  std::optional<EngineHash> parent = said.parent;
  const auto differs = [&](const PlacedBlock& block) {
    const auto above = std::exchange(parent, block.engine);
    const BlockRecord* record = records_.Find(block.engine);
    return record != nullptr && record->place != 0 && !Knows(*record, block, above, said);
  };
  const bool other = std::any_of(blocks.begin(), blocks.end(), differs);
  // Connectors do not always know where a block of the device is.
  const auto placed = [&](const PlacedBlock& block) {
    const BlockRecord* record = records_.Find(block.engine);
    return record != nullptr && record->placed;
  };
  if (other && !said.device && std::any_of(blocks.begin(), blocks.end(), placed)) return;
  contradicted_ = contradicted_ || other;
  parent = said.parent;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto above = std::exchange(parent, blocks[i].engine);
    BlockRecord* record = records_.Find(blocks[i].engine);
    if (record == nullptr) continue;
    record->keyed = record->keyed || (i < said.keyed.size() && said.keyed[i] != 0);
    record->placed = record->placed || said.device;
    if (record->place != 0 && Knows(*record, blocks[i], above, said)) {
      Block& known = known_[record->place - 1];
      known.eligible = known.eligible && said.eligible;
      continue;
    }
    Forget(*record);  // the last one's word
    if (free_.empty()) {
      known_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(known_.size()));
    }
    record->place = free_.back();
    free_.pop_back();
    record->salt_state = said.salt_state;
    record->salt_mix = said.salt_mix;
    known_[record->place - 1] = {blocks[i].engine, blocks[i].local, above, said.eligible, ++order_};
  }
}

std::vector<HeldCopies::Block> HeldCopies::Known() const {
  std::vector<Block> known;
  for (const Block& block : known_) {
    if (block.order != 0) known.push_back(block);
  }
  std::sort(known.begin(), known.end(),
            [](const Block& a, const Block& b) { return a.order < b.order; });
  return known;
}

}  // namespace kvr::placement
