#include "index/node_store.h"

#include "base/check.h"

namespace kvr::index {

NodeId NodeStore::FindOrAdd(NodeId parent, BlockHash local, EngineHash engine) {
  if (const NodeId found = Find(parent, local)) return found;
  const NodeId id = nodes_.Add();
  Node& node = nodes_[id];
  node.local = local;
  node.engine = engine;
  node.parent = parent;
  children_.Insert(*this, id);
  if (parent != kRoot) Pin(parent);
  return id;
}

void NodeStore::Unpin(NodeId id) {
  while (id != kRoot) {
    Node& node = nodes_[id];
    KVR_DCHECK(node.refs > 0);
    if (--node.refs > 0) return;
    KVR_DCHECK(node.held == 0 && node.renamed == 0);
    const NodeId parent = node.parent;
    children_.Erase(*this, id);
    nodes_.Free(id);
    id = parent;
  }
}

}  // namespace kvr::index
