#include <algorithm>
#include <utility>

#include "index/block_tree.h"

namespace kvr::index {

// The blocks of one rank, cut into runs that one event each can carry. A block comes after its
// parent. Blocks behind one that the rank does not hold are left out.
class BlockTree::RankDump {
 public:
  RankDump(const BlockTree& tree, const RankBlocks& rank) KVR_REQUIRES_SHARED(tree.mutex_)
      : tree_(tree), rank_(rank), rank_id_(rank.rank), state_(tree.nodes_.end()) {
    std::vector<NameId> chain;
    for (NameId id = 1; id < rank.names.end(); ++id) {
      if (rank.names[id].tiers != 0) AddWithAncestors(id, chain);
    }
    state_ = {};
  }

  // Events of chains that the device tier holds from the root on.
  void EmitDevice(const std::function<void(const PlacementEvent&)>& emit) const {
    for (const Run& run : runs_) {
      if (run.device_way) Emit(run, Tier::kDevice, emit);
    }
  }

  // All others.
  void EmitRest(const std::function<void(const PlacementEvent&)>& emit) const {
    for (const Run& run : runs_) {
      for (std::size_t tier = run.device_way ? 1 : 0; tier < kTierCount; ++tier) {
        if ((run.tiers >> tier) & 1u) Emit(run, static_cast<Tier>(tier), emit);
      }
    }
  }

 private:
  enum class State : std::uint8_t { kUnseen, kReachable, kOnDeviceWay, kBehindHole };

  struct Run {
    std::optional<EngineHash> parent;
    std::size_t begin = 0;  // in blocks_
    std::size_t end = 0;
    std::uint8_t tiers = 0;
    bool eligible = false;
    bool device_way = false;  // it and all ancestors are held in the device tier
  };

  State& Of(NodeId node) { return state_[node]; }

  void AddWithAncestors(NameId id, std::vector<NameId>& chain) KVR_REQUIRES_SHARED(tree_.mutex_) {
    chain.clear();
    State above = State::kOnDeviceWay;  // of the root
    while (true) {
      const NodeId node = rank_.names[id].node;
      if (Of(node) != State::kUnseen) {
        above = Of(node);
        break;
      }
      chain.push_back(id);
      const NodeId parent = tree_.nodes_[node].parent;
      if (parent == kRoot) break;
      id = rank_.names.Find(tree_.NameOf(rank_.slot, parent), parent);
      if (id == 0 || rank_.names[id].tiers == 0) {
        above = State::kBehindHole;
        break;
      }
    }
    bool first = true;
    for (auto it = chain.rbegin(); it != chain.rend(); ++it, first = false) {
      const Name& name = rank_.names[*it];
      if (above != State::kBehindHole) {
        const bool device = (name.tiers & 1u) != 0;
        above = above == State::kOnDeviceWay && device ? State::kOnDeviceWay : State::kReachable;
        Add(name, above == State::kOnDeviceWay, first);
      }
      Of(name.node) = above;
    }
  }

  void Add(const Name& name, bool device_way, bool first) KVR_REQUIRES_SHARED(tree_.mutex_) {
    const Node& node = tree_.nodes_[name.node];
    if (first || runs_.back().tiers != name.tiers || runs_.back().eligible != name.eligible ||
        runs_.back().device_way != device_way) {
      Run run;
      if (node.parent != kRoot) run.parent = tree_.NameOf(rank_.slot, node.parent);
      run.begin = run.end = blocks_.size();
      run.tiers = name.tiers;
      run.eligible = name.eligible;
      run.device_way = device_way;
      runs_.push_back(run);
    }
    blocks_.push_back({name.name, node.local});
    ++runs_.back().end;
  }

  void Emit(const Run& run, Tier tier,
            const std::function<void(const PlacementEvent&)>& emit) const {
    PlacementEvent event;
    event.tier = tier;
    event.rank = rank_id_;
    event.parent = run.parent;
    event.blocks = std::span(blocks_).subspan(run.begin, run.end - run.begin);
    event.eligible = run.eligible;
    emit(event);
  }

  const BlockTree& tree_;   // until constructed
  const RankBlocks& rank_;  // until constructed
  const Rank rank_id_;
  std::vector<State> state_;  // by node, until constructed
  std::vector<Run> runs_;
  std::vector<PlacedBlock> blocks_;
};

void BlockTree::Dump(const std::function<void(const PlacementEvent&)>& emit) const {
  std::vector<RankDump> all;
  for (std::size_t slot = 0;; ++slot) {
    {
      ReadLock lock(mutex_);
      if (slot >= slots_.size()) break;
      if (!slots_[slot]) continue;
      all.emplace_back(*this, *slots_[slot]);
    }
    all.back().EmitDevice(emit);
  }
  for (const RankDump& rank : all)
    rank.EmitRest(emit);
}

}  // namespace kvr::index
