// The cache groups of one rank: what their events teach, and which of them the index is made of.
// Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/ids.h"
#include "model/side_group.h"
#include "model/tier.h"
#include "placement/drop_reason.h"
#include "placement/held_copies.h"
#include "placement/placement_batch.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// What is known is a sum of what stores told, in whatever order they did; see EventTranslator for
// the rules. Not thread-safe.
class GroupTable {
 public:
  explicit GroupTable(const MemoryLimits& limits)
      : groups_max_(limits.groups_max), held_names_max_(limits.held_names_max) {}

  struct Group {
    SideGroup side;  // its number, and what it is beside the main group
    wire::GroupKind kind = wire::GroupKind::kAbsent;  // kAbsent: not told; kUnknown: or told two
    bool told_main = false;                           // some store told full attention
    bool device_size = false;                         // the block size is that of the device
    bool overflowed = false;                          // some copies found no room in `held`
    // Copies of a group of which the kind is not told, and which is not taken for the main one:
    // they count as soon as it is.
    std::unique_ptr<HeldCopies> held;

    // Of a kind of which nothing is looked for when a prefix is reused.
    [[nodiscard]] bool never_matters() const {
      return kind == wire::GroupKind::kOther && side.rule == SideRule::kNever;
    }
  };

  // No engine's: stands for whatever is unclear of a rank's groups.
  static constexpr std::uint32_t kNoNumber = 0xFFFF'FFFF;

  // Null when it is not known.
  Group* Find(std::uint32_t number) {
    for (Group& group : groups_) {
      if (group.side.group == number) return &group;
    }
    return nullptr;
  }
  // Null when there is no room for it. Earlier pointers are no longer valid.
  Group* FindOrAdd(std::uint32_t number);
  // From a store of the group. True when its kind, or that it has one, is news.
  bool Learn(Group& group, const wire::EngineEvent& event, bool device);

  // The number of the main group; none when no group is. Group 0 as long as nobody told otherwise.
  [[nodiscard]] std::optional<std::uint32_t> main() const { return main_; }
  // A store told a group to be of full attention.
  [[nodiscard]] bool main_is_told() const { return main_is_told_; }
  // The group that would be the main one was told two kinds.
  [[nodiscard]] bool main_is_unclear() const { return main_is_told_ && !main_; }

  // Counts copies of a group of which the kind is not told.
  void Hold(Group& group, const wire::EventBatch& batch, const wire::EngineEvent& event, Tier tier,
            TranslatorStats& stats);
  void Hold(Group& group, EngineHash name, Tier tier, std::uint32_t copies, TranslatorStats& stats);
  // What is held of the group is no longer needed.
  void Release(Group& group);
  // All copies are gone, or nobody knows which are left.
  void ForgetCopies();
  // Groups, and names that are held, with or without what their blocks are.
  [[nodiscard]] std::size_t entries() const { return groups_.size() + held_names_; }
  // Heap of the copies that are held.
  [[nodiscard]] std::size_t table_bytes() const {
    std::size_t bytes = 0;
    for (const Group& group : groups_)
      bytes += group.held ? group.held->bytes() : 0;
    return bytes;
  }

  // An event of a kind that is not known, which names no group.
  void NoteUnknownKind();
  // Why the rank's reusable prefixes cannot be told; none when they can.
  [[nodiscard]] std::optional<UnclearGroup> unclear() const { return unclear_; }

 private:
  void Elect();
  [[nodiscard]] std::optional<UnclearGroup> FindUnclear() const;

  std::size_t groups_max_;
  std::size_t held_names_max_;
  std::vector<Group> groups_;
  std::optional<std::uint32_t> main_ = 0;
  bool main_is_told_ = false;
  std::size_t held_names_ = 0;
  bool full_ = false;           // a group found no room
  bool nameless_kind_ = false;  // an unknown kind without a number
  std::optional<UnclearGroup> unclear_;
};

}  // namespace kvr::placement
