#include "service/recovery/stream_start.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "net/event_endpoint.h"

namespace kvr::service {

StreamStart::StreamStart(const fleet::Catalog& catalog, const index::IndexSet& indexes,
                         ingest::Ingest& ingest, const Clock& clock,
                         const Quarantine::Options& options)
    : catalog_(catalog), indexes_(indexes), ingest_(ingest), clock_(clock), quarantine_(options) {}

std::vector<Rank> StreamStart::RanksOf(const ingest::SourceSpec& spec) {
  std::vector<Rank> ranks{spec.rank};
  for (const auto& sharer : spec.sharers)
    ranks.push_back({spec.rank.worker, sharer.dp_rank});
  return ranks;
}

Result<void> StreamStart::Add(ingest::SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                              std::shared_ptr<fleet::RankHealth> health) {
  const Lock change(changes_);
  const Nanos now = clock_.Now();
  const Rank rank = spec.rank;
  Stream stream{std::move(spec), std::move(index), std::move(health), now};
  if (!holding_) return Follow(std::move(stream));
  KVR_TRY_VOID(ingest::Ingest::Check(stream.spec));
  const auto wait = [now](fleet::RankHealth& of) {
    of.SetStatus({RankState::kWarming, StateReason::kConnecting},
                 "what peers or the snapshot know is read first", now);
  };
  wait(*stream.health);
  for (const auto& sharer : stream.spec.sharers)
    wait(*sharer.health);
  held_.insert_or_assign(rank, std::move(stream));
  return {};
}

void StreamStart::Remove(Rank rank) {
  const Lock change(changes_);
  held_.erase(rank);
  ingest_.Remove(rank);
  for (auto at = followed_.lower_bound(Rank{rank.worker, 0});
       at != followed_.end() && at->first.worker == rank.worker;) {
    at = at->second == rank ? followed_.erase(at) : std::next(at);
  }
}

void StreamStart::Hold() {
  const Lock change(changes_);
  holding_ = true;
}

void StreamStart::Release(const Failed& failed) {
  while (true) {  // a lock a stream: taking its blocks over may take long
    Rank rank;
    Result<void> followed;
    {
      const Lock change(changes_);
      holding_ = false;
      if (held_.empty()) return;
      rank = held_.begin()->first;
      Stream stream = std::move(held_.begin()->second);
      held_.erase(held_.begin());
      followed = Follow(std::move(stream));
    }
    if (!followed) failed(rank, followed.error());
  }
}

Result<void> StreamStart::Follow(Stream stream) {
  ingest::SourceSpec& spec = stream.spec;
  const std::vector<Rank> ranks = RanksOf(spec);
  const Rank owner = spec.rank;
  spec.recovered = Adopt(stream);
  const bool adopted = spec.recovered.has_value();
  // Each reader of a polled engine numbers its messages itself.
  if (adopted && net::IsPolled(spec.source.endpoint)) spec.recovered->applied.reset();
  auto added = ingest_.Add(std::move(spec), stream.index, std::move(stream.health));
  for (const Rank rank : ranks) {
    if (added) {
      followed_.insert_or_assign(rank, owner);
    } else if (adopted) {
      stream.index->hybrid->Drop(rank);
      stream.index->index->RemoveRank(rank);
    }
  }
  return added;
}

std::optional<ingest::SourceSpec::Recovered> StreamStart::Adopt(const Stream& stream) {
  bool any = false;
  bool whole = true;  // of every rank it is known where the stream was
  std::optional<StreamPosition> first;
  for (const Rank rank : RanksOf(stream.spec)) {
    const auto recovered = AdoptRank(rank, stream);
    any |= recovered.has_value();
    whole &= recovered && recovered->watermark;
    if (!whole || (first && first->message <= *recovered->watermark)) continue;
    first = StreamPosition{*recovered->watermark, recovered->digest};
  }
  if (!any) return std::nullopt;
  return ingest::SourceSpec::Recovered{whole ? first : std::nullopt};
}

std::optional<RecoveredRank> StreamStart::AdoptRank(Rank rank, const Stream& stream) {
  index::PartitionIndex& index = *stream.index;
  std::optional<RecoveredRank> recovered;
  {
    const Lock lock(mutex_);
    recovered = quarantine_.Take(rank, index.partition, index.block_size, stream.added);
  }
  if (!recovered) return std::nullopt;
  const auto slot = index.index->AddRank(rank);
  if (!slot) return std::nullopt;  // which the ingest will say, too
  ApplyRecovered(*recovered, rank, index, *slot);
  const Lock lock(mutex_);
  ++adopted_ranks_;
  return recovered;
}

Result<std::size_t> StreamStart::Recover(RecoveredPartition partition) {
  const Lock change(changes_);
  const auto index = indexes_.Find(partition.partition);
  if (index && !catalog_.snapshot()->In(partition.partition).empty() &&
      index->block_size != partition.block_size) {
    return Fail(ErrorCode::kAlreadyExists, fmt::format("block_size is {} there and {} here",
                                                       partition.block_size, index->block_size));
  }
  std::size_t followed = 0;
  for (auto entry = partition.ranks.begin(); entry != partition.ranks.end();) {
    const bool begun = followed_.contains(entry->first);
    followed += begun ? 1 : 0;
    entry = begun ? partition.ranks.erase(entry) : std::next(entry);
  }
  const Lock lock(mutex_);
  KVR_TRY_VOID(quarantine_.Add(std::move(partition), clock_.Now()));
  return followed;
}

std::size_t StreamStart::DropUnclaimed() {
  const Lock change(changes_);
  if (!held_.empty()) return 0;
  const Lock lock(mutex_);
  const std::size_t dropped = quarantine_.DropExpired(clock_.Now());
  expired_ranks_ += dropped;
  return dropped;
}

StreamStart::Stats StreamStart::stats() const {
  const Lock lock(mutex_);
  return {quarantine_.ranks(), quarantine_.blocks(), adopted_ranks_, expired_ranks_};
}

}  // namespace kvr::service
