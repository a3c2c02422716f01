// For what stands in the place of an index and hands events on.
#pragma once

namespace kvr::ingest {

// An index that is one of these, too, is told where the messages of its streams end.
class BatchListener {
 public:
  virtual ~BatchListener() = default;
  // The events of one message have all been applied, by the thread that calls this.
  virtual void EndBatch() = 0;
};

}  // namespace kvr::ingest
