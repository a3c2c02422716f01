#include "service/gateway/enroll.h"

#include <memory>
#include <utility>

namespace kvr::service {
namespace {

ingest::SourceSpec SourceOf(const fleet::Worker& worker, const fleet::RankEntry& entry,
                            bool takes_sharers) {
  ingest::SourceSpec source;
  source.rank = entry.rank;
  source.source = *entry.events;
  if (!takes_sharers) return source;
  for (const auto& other : worker.ranks) {
    if (!other.events) source.sharers.push_back({other.rank.dp_rank, other.health});
  }
  return source;
}

// `Streams` is an Ingest, or what begins its streams.
template <typename Streams>
Result<void> Follow(const fleet::Worker& worker, bool share_stream,
                    const std::shared_ptr<index::PartitionIndex>& index, Streams& streams) {
  bool takes_sharers = share_stream;
  for (const auto& entry : worker.ranks) {
    if (!entry.events) continue;
    KVR_TRY_VOID(streams.Add(SourceOf(worker, entry, std::exchange(takes_sharers, false)), index,
                             entry.health));
  }
  return {};
}

template <typename Streams>
Result<void> EnrollWith(fleet::WorkerSpec spec, bool share_stream, fleet::Catalog& catalog,
                        const std::shared_ptr<index::PartitionIndex>& index, Streams& streams) {
  const WorkerId id = spec.id;
  KVR_TRY_VOID(catalog.Add(std::move(spec)));
  const auto fleet = catalog.snapshot();
  const fleet::Worker* worker = fleet->Find(id);
  auto followed = Follow(*worker, share_stream, index, streams);
  if (!followed) {
    for (const auto& entry : worker->ranks)
      streams.Remove(entry.rank);
    catalog.Remove(id);
  }
  return followed;
}

}  // namespace

Result<void> Enroll(fleet::WorkerSpec spec, bool share_stream, fleet::Catalog& catalog,
                    index::IndexSet& indexes, StreamStart& streams) {
  KVR_TRY(const auto index, indexes.GetOrCreate(spec.partition, spec.block_size));
  return EnrollWith(std::move(spec), share_stream, catalog, index, streams);
}

Result<void> Enroll(fleet::WorkerSpec spec, bool share_stream, fleet::Catalog& catalog,
                    const std::shared_ptr<index::PartitionIndex>& index, ingest::Ingest& ingest) {
  return EnrollWith(std::move(spec), share_stream, catalog, index, ingest);
}

}  // namespace kvr::service
