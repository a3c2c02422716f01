#include "bench/index_feed.h"

#include <algorithm>

#include "base/check.h"
#include "index/run_arena.h"

namespace kvr::bench {

IndexFeed::IndexFeed(const OpTrace& trace, bool eligible)
    : ranks_(trace.ranks), counts_(CountOps(trace)) {
  // Events borrow from these, so they must not grow afterwards.
  stored_.reserve(counts_.stored_blocks);
  removed_.reserve(counts_.removed_blocks);
  query_blocks_.reserve(counts_.query_blocks);
  for (const Op& op : trace.ops) {
    const std::span<const std::uint64_t> words = trace.WordsOf(op);
    if (op.kind == OpKind::kQuery) {
      for (const std::uint64_t word : words)
        query_blocks_.push_back(BlockHash{word});
      query_ends_.push_back(query_blocks_.size());
      query_times_.push_back(op.time_ns);
      continue;
    }
    PlacementEvent event;
    event.rank = Rank{WorkerId{op.rank}, 0};
    switch (op.kind) {
      case OpKind::kStored: {
        event.kind = PlacementKind::kStored;
        event.eligible = eligible;
        if (op.has_parent) event.parent = EngineHash{op.parent};
        const std::size_t begin = stored_.size();
        for (std::size_t i = 0; i < words.size(); i += 2)
          stored_.push_back({EngineHash{words[i]}, BlockHash{words[i + 1]}});
        event.blocks = std::span(stored_).subspan(begin);
        break;
      }
      case OpKind::kRemoved: {
        event.kind = PlacementKind::kRemoved;
        const std::size_t begin = removed_.size();
        for (const std::uint64_t word : words)
          removed_.push_back(EngineHash{word});
        event.removed = std::span(removed_).subspan(begin);
        break;
      }
      case OpKind::kCleared:
      case OpKind::kQuery:
        event.kind = PlacementKind::kCleared;
        break;
    }
    updates_.push_back(event);
    update_times_.push_back(op.time_ns);
  }
}

std::vector<OwnedUpdate> IndexFeed::OwnedUpdates(std::size_t begin, std::size_t end) const {
  std::vector<OwnedUpdate> owned;
  owned.reserve(end - begin);
  for (const PlacementEvent& event : updates().subspan(begin, end - begin)) {
    OwnedUpdate& update = owned.emplace_back();
    update.event = event;
    update.blocks.assign(event.blocks.begin(), event.blocks.end());
    update.removed.assign(event.removed.begin(), event.removed.end());
    update.event.blocks = update.blocks;
    update.event.removed = update.removed;
  }
  return owned;
}

FedIndex::FedIndex(const IndexFeed& feed) : feed_(feed) {
  index::IndexOptions options;
  options.ranks_max = std::max(options.ranks_max, feed.ranks());
  index_ = std::make_unique<index::RunArena>(options);
  slots_.reserve(feed.ranks());
  for (std::uint32_t rank = 0; rank < feed.ranks(); ++rank) {
    const auto slot = index_->AddRank(Rank{WorkerId{rank}, 0});
    KVR_CHECK(slot);
    slots_.push_back(*slot);
  }
}

FedIndex::~FedIndex() = default;

void FedIndex::Apply(const PlacementEvent& event) {
  const auto result = index_->Apply(slots_[Raw(event.rank.worker)], event);
  if (result.status != index::ApplyStatus::kOk) ++failed_;
}

void FedIndex::Apply(std::size_t begin, std::size_t end) {
  for (const PlacementEvent& event : feed_.updates().subspan(begin, end - begin))
    Apply(event);
}

std::uint64_t ReadAnswer(const OverlapScores& scores) {
  std::uint64_t sum = 0;
  scores.ForEach([&sum](RankSlot, const Rank& rank, const auto& blocks, EngineHash) {
    sum += Raw(rank.worker) + rank.dp_rank + blocks[0] + blocks[1] + blocks[2] + blocks[3];
  });
  return sum;
}

Checksum ChecksumOf(const IndexFeed& feed, const FedIndex& index) {
  Checksum sum;
  OverlapScores scores;
  for (std::size_t i = 0; i < feed.queries(); ++i) {
    index.Match(i, scores);
    sum.scored += scores.scored().size();
    for (const RankSlot slot : scores.scored())
      sum.depths += scores.at(slot).depth();
    sum.read += ReadAnswer(scores);
  }
  return sum;
}

}  // namespace kvr::bench
