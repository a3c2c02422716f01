#include "placement/copy_table.h"

#include <boost/unordered/unordered_flat_map.hpp>

namespace kvr::placement {

struct CopyTable::Map : boost::unordered_flat_map<EngineHash, BlockRecord> {};

CopyTable::CopyTable(std::size_t records_max)
    : map_(std::make_unique<Map>()), records_max_(records_max) {}
CopyTable::~CopyTable() = default;
CopyTable::CopyTable(CopyTable&&) noexcept = default;
CopyTable& CopyTable::operator=(CopyTable&&) noexcept = default;

BlockRecord& CopyTable::Current(BlockRecord& record) const {
  if (record.epoch != epoch_) {
    record.epoch = epoch_;
    record.copies = {};
  }
  return record;
}

BlockRecord* CopyTable::Find(EngineHash hash) {
  const auto found = map_->find(hash);
  return found == map_->end() ? nullptr : &Current(found->second);
}

BlockRecord* CopyTable::Add(EngineHash hash) {
  if (map_->size() >= records_max_) return Find(hash);
  return &Current((*map_)[hash]);
}

void CopyTable::Erase(EngineHash hash) {
  map_->erase(hash);
}

void CopyTable::Clear() {
  map_->clear();
}

}  // namespace kvr::placement
