#include "index/side_groups.h"

#include <algorithm>

#include "base/check.h"

namespace kvr::index {
namespace {

constexpr std::uint8_t Bit(Tier tier) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(tier));
}

bool NeedsWhole(const SideGroup& group) {
  return group.rule == SideRule::kEvery || (group.rule == SideRule::kWindow && group.window == 0);
}

bool IsPresent(std::span<const std::uint32_t> copies) {
  return std::any_of(copies.begin(), copies.end(), [](std::uint32_t count) { return count > 0; });
}

}  // namespace

// The main blocks of a prefix by their place, read from its end as far as somebody asks.
class SideGroups::Path {
 public:
  Path(const Places& places, const RankOverlap& overlap)
      : places_(places), depth_(overlap.depth()), names_{overlap.last} {}

  // The name of the `end`th block, 1 <= end <= depth; none when the way back is not known.
  std::optional<EngineHash> NameAt(std::uint32_t end) {
    const std::size_t back = depth_ - end;
    while (names_.size() <= back) {
      const auto place = places_.find(Raw(names_.back()));
      if (place == places_.end() || !place->second.parent) return std::nullopt;
      names_.push_back(*place->second.parent);
    }
    return names_[back];
  }

 private:
  const Places& places_;
  const std::uint32_t depth_;
  std::vector<EngineHash> names_;  // from the end of the prefix backwards
};

SideGroups::SideGroups(std::uint32_t block_size, const Options& options)
    : block_size_(block_size), options_(options), places_(0, SeededHash{options.hash_seed}) {
  KVR_CHECK(block_size > 0);
}

SideGroups::Group* SideGroups::Find(std::uint32_t group) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& entry) { return entry.about.group == group; });
  return found == groups_.end() ? nullptr : &*found;
}

void SideGroups::Declare(const SideGroup& group) {
  const WriteLock lock(mutex_);
  if (Group* known = Find(group.group)) {
    known->about = group;
    return;
  }
  groups_.push_back({group, decltype(Group::blocks)(0, SeededHash{options_.hash_seed})});
}

void SideGroups::Store(std::uint32_t group, Tier tier, std::span<const SideCopy> copies) {
  const auto at = static_cast<std::size_t>(tier);
  if (at >= kTiers) return;
  const WriteLock lock(mutex_);
  Group* const known = Find(group);
  if (known == nullptr) return;
  for (const SideCopy& copy : copies) {
    auto found = known->blocks.find(Raw(copy.name));
    if (found == known->blocks.end()) {
      if (blocks_ >= options_.blocks_max) {
        ++refused_;
        continue;
      }
      found = known->blocks.emplace(Raw(copy.name), Copies{}).first;
      ++blocks_;
    }
    std::uint32_t& count = found->second[at];
    count = uncounted_ ? 1 : count + 1;
  }
}

void SideGroups::Remove(std::uint32_t group, Tier tier, std::span<const SideCopy> copies) {
  const auto at = static_cast<std::size_t>(tier);
  if (at >= kTiers) return;
  const WriteLock lock(mutex_);
  Group* const known = Find(group);
  if (known == nullptr) return;
  for (const SideCopy& copy : copies) {
    const auto found = known->blocks.find(Raw(copy.name));
    if (found == known->blocks.end()) continue;
    std::uint32_t& count = found->second[at];
    if (copy.left) {
      count = *copy.left;
    } else if (count > 0) {
      count = uncounted_ ? 0 : count - 1;
    }
    if (IsPresent(found->second)) continue;
    known->blocks.erase(found);
    --blocks_;
  }
}

void SideGroups::ApplyMain(const PlacementEvent& event) {
  const WriteLock lock(mutex_);
  switch (event.kind) {
    case PlacementKind::kStored:
      return StoreMain(event);
    case PlacementKind::kRemoved:
      return RemoveMain(event);
    case PlacementKind::kCleared:
      for (Group& group : groups_)
        group.blocks.clear();
      places_.clear();
      remembered_.clear();
      blocks_ = 0;
      uncounted_ = false;
      return;
  }
}

SideGroups::Place* SideGroups::FindOrAddPlace(EngineHash name) {
  const auto found = places_.find(Raw(name));
  if (found != places_.end()) return &found->second;
  if (places_.size() >= options_.blocks_max) {
    ++refused_;
    return nullptr;
  }
  return &places_.emplace(Raw(name), Place{}).first->second;
}

void SideGroups::StoreMain(const PlacementEvent& event) {
  if (event.hash_only) {
    for (const PlacedBlock& block : event.blocks) {
      const auto found = places_.find(Raw(block.engine));
      if (found == places_.end()) continue;
      found->second.tiers = static_cast<std::uint8_t>(found->second.tiers | Bit(event.tier));
    }
    return;
  }
  std::optional<EngineHash> before = event.parent;
  for (const PlacedBlock& block : event.blocks) {
    if (Place* place = FindOrAddPlace(block.engine)) {
      place->tiers = static_cast<std::uint8_t>(place->tiers | Bit(event.tier));
      place->parent = before;
    }
    before = block.engine;
  }
}

void SideGroups::LearnMain(const RankCopy& known) {
  const WriteLock lock(mutex_);
  for (const RankCopy::Run& run : known.runs) {
    std::optional<EngineHash> before = run.parent;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const EngineHash name = known.blocks[i].engine;
      if (Place* place = FindOrAddPlace(name)) {
        // Of two blocks of one name the one that is held goes before one that is remembered.
        if (run.tiers != 0 || place->tiers == 0) place->parent = before;
        place->tiers = static_cast<std::uint8_t>(place->tiers | run.tiers);
        if (run.tiers == 0) remembered_.push_back(name);
      }
      before = name;
    }
  }
  LimitRemembered();
}

void SideGroups::RemoveMain(const PlacementEvent& event) {
  for (const EngineHash name : event.removed) {
    const auto found = places_.find(Raw(name));
    if (found == places_.end() || (found->second.tiers & Bit(event.tier)) == 0) continue;
    found->second.tiers = static_cast<std::uint8_t>(found->second.tiers & ~Bit(event.tier));
    if (found->second.tiers == 0) remembered_.push_back(name);
  }
  LimitRemembered();
}

void SideGroups::LimitRemembered() {
  while (remembered_.size() > options_.remembered_max) {
    const auto oldest = places_.find(Raw(remembered_.front()));
    remembered_.pop_front();
    if (oldest != places_.end() && oldest->second.tiers == 0) places_.erase(oldest);
  }
}

void SideGroups::ForgetCounts() {
  const WriteLock lock(mutex_);
  for (Group& group : groups_) {
    for (auto& [name, copies] : group.blocks) {
      for (std::uint32_t& count : copies)
        count = std::min(count, 1u);
    }
  }
}

std::vector<SideGroupCopy> SideGroups::Copy() const {
  const ReadLock lock(mutex_);
  std::vector<SideGroupCopy> copy;
  for (const Group& group : groups_) {
    SideGroupCopy& made = copy.emplace_back();
    made.about = group.about;
    made.blocks.reserve(group.blocks.size());
    for (const auto& [name, copies] : group.blocks) {
      unsigned tiers = 0;
      for (std::size_t tier = 0; tier < kTiers; ++tier)
        tiers |= copies[tier] > 0 ? 1u << tier : 0u;
      made.blocks.push_back({static_cast<EngineHash>(name), tiers});
    }
  }
  return copy;
}

void SideGroups::Restore(std::span<const SideGroupCopy> copy) {
  for (const SideGroupCopy& group : copy) {
    Declare(group.about);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      std::vector<SideCopy> held;
      for (const SideGroupCopy::Block& block : group.blocks) {
        if (((block.tiers >> tier) & 1u) != 0) held.push_back({block.name});
      }
      Store(group.about.group, static_cast<Tier>(tier), held);
    }
  }
  const WriteLock lock(mutex_);
  uncounted_ = true;
}

bool SideGroups::Has(const Group& group, Path& path, std::uint32_t end) {
  const auto name = path.NameAt(end);
  return name && group.blocks.contains(Raw(*name));
}

std::uint32_t SideGroups::LongestWhole(const Group& group, Path& path, std::uint32_t end) const {
  const std::uint32_t own = group.about.block_size == 0 ? block_size_ : group.about.block_size;
  const std::uint32_t size = std::max(own, block_size_);
  if (size % own != 0 || size % block_size_ != 0) return 0;
  const std::uint32_t step = size / block_size_;
  end -= end % step;
  std::uint32_t whole = end;
  for (std::uint32_t at = end; at > 0; at -= step) {
    if (!Has(group, path, at)) whole = at - step;
  }
  return whole;
}

bool SideGroups::Agrees(const Group& group, Path& path, std::uint32_t end,
                        std::uint32_t& next) const {
  next = end - 1;
  // A group's blocks end at multiples of their size.
  const std::uint32_t own = group.about.block_size == 0 ? block_size_ : group.about.block_size;
  const std::uint64_t end_token = std::uint64_t{end} * block_size_;
  if (end_token % own != 0) return false;
  const std::uint32_t size = std::max(own, block_size_);
  // The next token sees itself and window - 1 tokens before it.
  const std::uint64_t needed =
      group.about.rule == SideRule::kCheckpoint ? 1 : (group.about.window - 1ull + size - 1) / size;
  std::uint64_t token = end_token;
  for (std::uint64_t i = 0; i < needed && token > 0; ++i) {
    if (token % block_size_ != 0) return false;
    const auto at = static_cast<std::uint32_t>(token / block_size_);
    if (!Has(group, path, at)) {
      next = at - 1;  // whatever ends between needs that block as well
      return false;
    }
    token -= std::min<std::uint64_t>(token, size);
  }
  return true;
}

std::uint32_t SideGroups::HitOf(const RankOverlap& overlap, std::uint32_t blocks_max) const {
  const ReadLock lock(mutex_);
  std::uint32_t end = std::min(overlap.depth(), blocks_max);
  if (end == 0) return 0;
  Path path(places_, overlap);
  for (const Group& group : groups_) {
    if (group.about.rule == SideRule::kNever) return 0;
    if (NeedsWhole(group.about)) end = LongestWhole(group, path, end);
  }
  // The longest end on which all others agree, too. Any end of a whole prefix is one of a whole
  // prefix, but for the size of the group's blocks.
  while (end > 0) {
    std::uint32_t next = end;
    bool all = true;
    for (std::size_t i = 0; i < groups_.size() && all; ++i) {
      const SideGroup& about = groups_[i].about;
      if (NeedsWhole(about)) {
        const std::uint64_t token = std::uint64_t{end} * block_size_;
        all = about.block_size == 0 || token % about.block_size == 0;
        next = end - 1;
      } else {
        all = Agrees(groups_[i], path, end, next);
      }
    }
    if (all) break;
    end = next;
  }
  return end;
}

SideGroups::Stats SideGroups::stats() const {
  const ReadLock lock(mutex_);
  return {groups_.size(), blocks_, refused_};
}

std::shared_ptr<SideGroups> HybridRanks::Find(Rank rank) const {
  if (empty()) return nullptr;
  const ReadLock lock(mutex_);
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? nullptr : found->second;
}

std::shared_ptr<SideGroups> HybridRanks::FindOrAdd(Rank rank, const PrefixIndex& index,
                                                   std::uint32_t block_size) {
  if (auto found = Find(rank)) return found;
  auto added = std::make_shared<SideGroups>(block_size, options_);
  RankCopy held;
  index.CopyKnown(rank, held);
  added->LearnMain(held);
  const WriteLock lock(mutex_);
  const auto [entry, is_new] = ranks_.emplace(rank, std::move(added));
  count_.store(ranks_.size(), std::memory_order_relaxed);
  return entry->second;
}

void HybridRanks::Drop(Rank rank) {
  if (empty()) return;
  const WriteLock lock(mutex_);
  ranks_.erase(rank);
  count_.store(ranks_.size(), std::memory_order_relaxed);
}

std::optional<std::uint32_t> HybridRanks::HitOf(const RankOverlap& overlap,
                                                std::uint32_t blocks_max) const {
  const auto sides = Find(overlap.rank);
  if (!sides) return std::nullopt;
  return sides->HitOf(overlap, blocks_max);
}

}  // namespace kvr::index
