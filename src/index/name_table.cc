#include "index/name_table.h"

namespace kvr::index {

NameId NameTable::Find(EngineHash name, bool held_only) const {
  const NameId newest = First(name);
  for (NameId id = newest; id != 0; id = Next(id)) {
    if (names_[id].tiers != 0) return id;
  }
  return held_only ? 0 : newest;
}

NameId NameTable::Find(EngineHash name, NodeId node) const {
  NameId id = First(name);
  while (id != 0 && names_[id].node != node)
    id = Next(id);
  return id;
}

NameId NameTable::Add(EngineHash name, NodeId node) {
  const NameId id = names_.Add();
  names_[id].name = name;
  names_[id].node = node;
  names_by_hash_.Insert(*this, id);
  return id;
}

void NameTable::Erase(NameId id) {
  names_by_hash_.Erase(*this, id);
  names_.Free(id);
}

void NameTable::Touch(NameId id) {
  if (First(names_[id].name) == id) return;
  names_by_hash_.Erase(*this, id);
  names_by_hash_.Insert(*this, id);
}

void NameTable::Remember(NameId id) {
  names_[id].older = newest_;
  names_[id].remembered = true;
  (newest_ ? names_[newest_].newer : oldest_) = id;
  newest_ = id;
  ++remembered_;
}

void NameTable::Recall(NameId id) {
  Name& name = names_[id];
  if (!name.remembered) return;
  (name.older ? names_[name.older].newer : oldest_) = name.newer;
  (name.newer ? names_[name.newer].older : newest_) = name.older;
  name.older = name.newer = 0;
  name.remembered = false;
  --remembered_;
}

}  // namespace kvr::index
