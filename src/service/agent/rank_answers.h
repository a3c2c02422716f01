// What a router is answered over the replay socket beside messages.
#pragma once

#include <memory>
#include <string_view>

#include "fleet/catalog.h"
#include "net/event_publisher.h"
#include "service/agent/published_rank.h"

namespace kvr::service {

// kAskSnapshot: kSnapshotBegin, kSnapshotEvents of at most kPieceBytes and an event each, and
// kSnapshotEnd; or kSnapshotRefused. kAskState: kStateSeal. Both seals of a snapshot are alike.
//
// The events are stores that rebuild the rank from nothing, parents first, and then those that came
// since the stores were gathered. Called by one thread.
class RankAnswers final : public net::AnswerSource {
 public:
  static constexpr std::size_t kPieceBytes = 64u << 10;

  // Both must outlive the object; `catalog` has the sources of `rank`.
  RankAnswers(PublishedRank& rank, const fleet::Catalog& catalog)
      : rank_(rank), catalog_(catalog) {}

  std::unique_ptr<net::AnswerParts> Answer(std::string_view wanted) override;

 private:
  PublishedRank& rank_;
  const fleet::Catalog& catalog_;
};

}  // namespace kvr::service
