// Makes a worker known to everything that has to do with workers.
#pragma once

#include <memory>

#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {

// Lists the worker, makes its partition's index and follows its event streams. Ranks without a
// source of their own share the stream of the worker's first rank that has one, when
// `share_stream`: engines publish several ranks through one socket. After an error nothing of it is
// left.
Result<void> Enroll(fleet::WorkerSpec spec, bool share_stream, fleet::Catalog& catalog,
                    index::IndexSet& indexes, StreamStart& streams);
// The same with an index that is there, and nothing to begin with.
Result<void> Enroll(fleet::WorkerSpec spec, bool share_stream, fleet::Catalog& catalog,
                    const std::shared_ptr<index::PartitionIndex>& index, ingest::Ingest& ingest);

}  // namespace kvr::service
