#include "index/private_names.h"

#include "base/check.h"

namespace kvr::index {

PrivateNameId PrivateNames::Find(EngineHash name, RunId run, std::uint32_t depth) const {
  PrivateNameId id = First(name);
  while (id != 0 && (names_[id].run != run || names_[id].depth != depth))
    id = Next(id);
  KVR_CHECK(id != 0);
  return id;
}

void PrivateNames::Add(EngineHash name, RunId run, std::uint32_t depth) {
  if (First(name) != 0) ++others_;
  const PrivateNameId id = names_.Add();
  names_[id].name = name;
  names_[id].run = run;
  names_[id].depth = depth;
  by_hash_.Insert(*this, id);
}

void PrivateNames::Erase(EngineHash name, RunId run, std::uint32_t depth) {
  const PrivateNameId id = Find(name, run, depth);
  by_hash_.Erase(*this, id);
  names_.Free(id);
  if (First(name) != 0) --others_;
}

void PrivateNames::Touch(EngineHash name, RunId run, std::uint32_t depth) {
  const PrivateNameId id = Find(name, run, depth);
  if (First(name) == id) return;
  by_hash_.Erase(*this, id);
  by_hash_.Insert(*this, id);
}

void PrivateNames::Move(EngineHash name, RunId from, RunId to, std::uint32_t depth) {
  names_[Find(name, from, depth)].run = to;
}

}  // namespace kvr::index
