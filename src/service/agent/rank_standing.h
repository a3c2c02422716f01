// How well a published rank is known.
#pragma once

#include "base/result.h"
#include "fleet/catalog.h"
#include "publish/rank_publisher.h"
#include "service/agent/published_rank.h"
#include "service/agent/recovery_answers.h"

namespace kvr::service {

// By what is known of the rank's sources, which are in `catalog`: that of the least known one.
// Where some are known, one that is blind makes the rank degraded.
SnapshotHead HeadOf(const PublishedRank& rank, const fleet::Catalog& catalog);

struct TakenSnapshot {
  publish::RankPublisher::SnapshotAnswer answer;
  SnapshotHead head;
};
// The state is the worse one of before and after. Errors are PublishedRank::TakeSnapshot's.
Result<TakenSnapshot> TakeSnapshot(PublishedRank& rank, const fleet::Catalog& catalog);

}  // namespace kvr::service
