// What one rank calls its blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/chain_table.h"
#include "index/hash_mix.h"
#include "index/node_store.h"
#include "index/slab.h"
#include "model/ids.h"

namespace kvr::index {

using NameId = std::uint32_t;

struct Name {
  EngineHash name{};
  NodeId node = kRoot;  // kRoot: not in use
  std::uint32_t next = 0;
  NameId older = 0;  // in the list of remembered names
  NameId newer = 0;
  std::uint32_t removed_by = 0;  // number of the event that last removed it from a tier
  std::uint8_t tiers = 0;        // a bit each; none when only the name is remembered
  bool eligible = false;         // see PlacementEvent::eligible
  bool remembered = false;       // in that list
};
static_assert(sizeof(Name) == 32);

// Engine hash → node. A rank uses one name a node; a broken engine may use one name for several
// nodes, then the newest goes first. Not thread-safe.
class NameTable {
 public:
  explicit NameTable(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] Name& operator[](NameId id) { return names_[id]; }
  [[nodiscard]] const Name& operator[](NameId id) const { return names_[id]; }

  // The newest with this name, and the next older after `id`; 0 when there is none.
  [[nodiscard]] NameId First(EngineHash name) const {
    return Same(name, names_by_hash_.First(Hash(name)));
  }
  [[nodiscard]] NameId Next(NameId id) const { return Same(names_[id].name, names_[id].next); }

  // The newest that is held in a tier; failing that, and unless `held_only`, the newest.
  [[nodiscard]] NameId Find(EngineHash name, bool held_only) const;
  [[nodiscard]] NameId Find(EngineHash name, NodeId node) const;

  NameId Add(EngineHash name, NodeId node);
  void Erase(NameId id);
  // Makes `id` the newest of its name.
  void Touch(NameId id);

  // The list of remembered names, in the order they were put there.
  void Remember(NameId id);
  void Recall(NameId id);  // does nothing when it is not in the list
  [[nodiscard]] NameId oldest_remembered() const { return oldest_; }
  [[nodiscard]] std::size_t remembered() const { return remembered_; }

  [[nodiscard]] std::size_t size() const { return names_.size(); }
  [[nodiscard]] NameId end() const { return names_.end(); }
  [[nodiscard]] std::size_t bytes() const { return names_.bytes() + names_by_hash_.bytes(); }

  // For ChainTable.
  [[nodiscard]] std::uint64_t HashOf(std::uint32_t id) const { return Hash(names_[id].name); }
  [[nodiscard]] std::uint32_t& NextOf(std::uint32_t id) { return names_[id].next; }

 private:
  [[nodiscard]] std::uint64_t Hash(EngineHash name) const { return Mix(seed_, Raw(name), 2); }
  [[nodiscard]] NameId Same(EngineHash name, NameId id) const {
    while (id != 0 && names_[id].name != name)
      id = names_[id].next;
    return id;
  }

  std::uint64_t seed_;
  Slab<Name, 256> names_;
  ChainTable names_by_hash_;
  NameId oldest_ = 0;
  NameId newest_ = 0;
  std::size_t remembered_ = 0;
};

}  // namespace kvr::index
