// One rank's names that the common table does not lead to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/chain_table.h"
#include "index/hash_mix.h"
#include "index/run_state.h"
#include "index/slab.h"
#include "model/ids.h"

namespace kvr::index {

using PrivateNameId = std::uint32_t;

struct PrivateName {
  EngineHash name{};
  RunId run = kRootRun;  // kRootRun: not in use
  std::uint32_t depth = 0;
  std::uint32_t next = 0;  // in its bucket
};

// Engine hash → blocks, newest first: a broken engine may use one name for several blocks. Empty
// for an engine that shares the names of the others. Not thread-safe.
class PrivateNames {
 public:
  explicit PrivateNames(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] const PrivateName& operator[](PrivateNameId id) const { return names_[id]; }
  // The newest of this name, and the next older after `id`; 0 when there is none.
  [[nodiscard]] PrivateNameId First(EngineHash name) const {
    return Same(name, by_hash_.First(Hash(name)));
  }
  [[nodiscard]] PrivateNameId Next(PrivateNameId id) const {
    return Same(names_[id].name, names_[id].next);
  }
  [[nodiscard]] bool empty() const { return names_.size() == 0; }
  // Whether a name leads to several blocks.
  [[nodiscard]] bool any_shared() const { return others_ > 0; }

  // As the newest of its name.
  void Add(EngineHash name, RunId run, std::uint32_t depth);
  // The others expect that the name is there.
  void Erase(EngineHash name, RunId run, std::uint32_t depth);
  void Touch(EngineHash name, RunId run, std::uint32_t depth);  // makes it the newest
  void Move(EngineHash name, RunId from, RunId to, std::uint32_t depth);

  [[nodiscard]] std::size_t bytes() const { return names_.bytes() + by_hash_.bytes(); }

  // For ChainTable.
  [[nodiscard]] std::uint64_t HashOf(std::uint32_t id) const { return Hash(names_[id].name); }
  [[nodiscard]] std::uint32_t& NextOf(std::uint32_t id) { return names_[id].next; }

 private:
  [[nodiscard]] std::uint64_t Hash(EngineHash name) const { return Mix(seed_, Raw(name), 3); }
  [[nodiscard]] PrivateNameId Same(EngineHash name, PrivateNameId id) const {
    while (id != 0 && names_[id].name != name)
      id = names_[id].next;
    return id;
  }
  [[nodiscard]] PrivateNameId Find(EngineHash name, RunId run, std::uint32_t depth) const;

  std::uint64_t seed_;
  Slab<PrivateName, 128> names_;
  ChainTable by_hash_;
  std::size_t others_ = 0;  // blocks beside the newest of their names
};

}  // namespace kvr::index
