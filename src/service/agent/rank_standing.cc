#include "service/agent/rank_standing.h"

#include <utility>

#include "model/rank_state.h"

namespace kvr::service {
namespace {

bool Worse(RankState a, RankState b) {
  const auto known = [](RankState state) {
    switch (state) {
      case RankState::kBlind:
        return 0;
      case RankState::kWarming:
        return 1;
      case RankState::kDegraded:
        return 2;
      case RankState::kExact:
        break;
    }
    return 3;
  };
  return known(a) < known(b);
}

}  // namespace

SnapshotHead HeadOf(const PublishedRank& rank, const fleet::Catalog& catalog) {
  SnapshotHead head;
  head.publisher_id = rank.publisher_id();
  if (rank.refuses()) {
    head.state = RankState::kDegraded;
    head.reason = StateReason::kUnknownGroupKind;
  }
  bool some_known = false;
  const auto fleet = catalog.snapshot();
  for (const auto& worker : fleet->workers) {
    const fleet::RankEntry* const source = worker->FindRank(rank.rank().dp_rank);
    if (source == nullptr) continue;
    const auto status = source->health->status();
    some_known |= status.state != RankState::kBlind;
    if (!Worse(status.state, head.state)) continue;
    head.state = status.state;
    head.reason = status.reason;
  }
  if (head.state == RankState::kBlind && some_known) head.state = RankState::kDegraded;
  return head;
}

Result<TakenSnapshot> TakeSnapshot(PublishedRank& rank, const fleet::Catalog& catalog) {
  const SnapshotHead before = HeadOf(rank, catalog);
  KVR_TRY(auto answer, rank.TakeSnapshot());
  const SnapshotHead after = HeadOf(rank, catalog);
  return TakenSnapshot{std::move(answer), Worse(before.state, after.state) ? before : after};
}

}  // namespace kvr::service
