// For what stands in the place of an index and hands events on.
#pragma once

#include <span>

#include "model/ids.h"

namespace kvr::ingest {

// An index that is one of these, too, is told where the messages of its streams end.
class BatchListener {
 public:
  virtual ~BatchListener() = default;
  // The events of one message, which were of these ranks, have all been applied, by the thread that
  // calls this. Called for a message of side groups alone, too.
  virtual void EndBatch(std::span<const RankSlot> touched) = 0;
};

}  // namespace kvr::ingest
