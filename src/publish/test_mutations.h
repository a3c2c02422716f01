// Mutations as text, for the tests of this module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "publish/mutation.h"
#include "publish/snapshot.h"

namespace kvr::publish {

// The store that tells of one run of a snapshot, from which it borrows.
inline Mutation StoreOf(const Snapshot& snapshot, const Snapshot::Run& run) {
  Mutation store;
  store.event.tier = run.tier;
  store.event.parent = run.parent;
  store.event.eligible = run.eligible;
  store.event.blocks = snapshot.BlocksOf(run);
  return store;
}

// Owns what its mutations borrow. The content of block n is n + 1000, unless said otherwise.
class Script {
 public:
  // Blocks first, first+1, ... behind `parent`.
  Mutation Store(std::optional<std::uint64_t> parent, std::uint64_t first, std::size_t count = 1) {
    std::vector<std::uint64_t> contents;
    for (std::size_t i = 0; i < count; ++i)
      contents.push_back(first + i + 1000);
    return Store(parent, first, contents);
  }
  // ... with these contents.
  Mutation Store(std::optional<std::uint64_t> parent, std::uint64_t first,
                 const std::vector<std::uint64_t>& contents) {
    std::vector<PlacedBlock>& blocks = blocks_.emplace_back();
    for (const std::uint64_t content : contents)
      blocks.push_back({EngineHash{first++}, BlockHash{content}});
    Mutation mutation;
    if (parent) mutation.event.parent = EngineHash{*parent};
    mutation.event.blocks = blocks;
    return mutation;
  }
  Mutation Names(std::vector<std::uint64_t> names) {
    std::vector<PlacedBlock>& blocks = blocks_.emplace_back();
    for (const std::uint64_t name : names)
      blocks.push_back({EngineHash{name}, {}});
    Mutation mutation;
    mutation.event.hash_only = true;
    mutation.event.tier = Tier::kHostPinned;
    mutation.event.blocks = blocks;
    return mutation;
  }
  Mutation Remove(std::vector<std::uint64_t> names) {
    std::vector<EngineHash>& removed = removed_.emplace_back();
    for (const std::uint64_t name : names)
      removed.push_back(EngineHash{name});
    Mutation mutation;
    mutation.event.kind = PlacementKind::kRemoved;
    mutation.event.removed = removed;
    return mutation;
  }
  static Mutation Clear() {
    Mutation mutation;
    mutation.event.kind = PlacementKind::kCleared;
    return mutation;
  }

 private:
  std::deque<std::vector<PlacedBlock>> blocks_;
  std::deque<std::vector<EngineHash>> removed_;
};

inline Mutation On(Tier tier, Mutation mutation) {
  mutation.event.tier = tier;
  return mutation;
}
inline Mutation Eligible(Mutation mutation) {
  mutation.event.eligible = true;
  return mutation;
}
inline Mutation Of(Rank rank, Mutation mutation) {
  mutation.event.rank = rank;
  return mutation;
}
inline Mutation In(std::string_view session, Mutation mutation) {
  mutation.event.session_id = session;
  return mutation;
}
inline Mutation At(std::uint32_t position, Mutation mutation) {
  mutation.start_position = position;
  return mutation;
}

// "+1,2,3" from the root, "+1<2,3" behind 1; "-1,2"; "!"; then what is not the usual: "/disk",
// "=2001" (contents that are not n + 1000), "@7" (position), "sce", "'s'" (session).
inline std::string TextOf(const Mutation& mutation) {
  const PlacementEvent& event = mutation.event;
  std::string text;
  if (event.kind == PlacementKind::kCleared) {
    text = "!";
  } else if (event.kind == PlacementKind::kRemoved) {
    for (const EngineHash name : event.removed)
      text += fmt::format("{}{}", text.empty() ? "-" : ",", Raw(name));
  } else {
    text = event.parent ? fmt::format("+{}<", Raw(*event.parent)) : "+";
    for (std::size_t i = 0; i < event.blocks.size(); ++i) {
      const PlacedBlock& block = event.blocks[i];
      text += fmt::format("{}{}", i == 0 ? "" : ",", Raw(block.engine));
      if (Raw(block.local) != Raw(block.engine) + 1000)
        text += fmt::format("={}", Raw(block.local));
    }
  }
  if (event.tier != Tier::kDevice) text += fmt::format("/{}", TierName(event.tier));
  if (mutation.start_position) text += fmt::format("@{}", *mutation.start_position);
  if (event.eligible) text += " sce";
  if (!mutation.event.session_id.empty()) text += fmt::format(" '{}'", mutation.event.session_id);
  if (event.rank.dp_rank != 0) text += fmt::format(" rank {}", event.rank.dp_rank);
  return text;
}

class Recorder final : public MutationSink {
 public:
  void Take(const Mutation& mutation) override { taken.push_back(TextOf(mutation)); }

  // All since the last call, separated by "; ".
  std::string Drain() {
    std::string text;
    for (const std::string& one : taken)
      text += (text.empty() ? "" : "; ") + one;
    taken.clear();
    return text;
  }

  std::vector<std::string> taken;
};

}  // namespace kvr::publish
