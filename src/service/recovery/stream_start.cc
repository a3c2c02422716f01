#include "service/recovery/stream_start.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
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
  if (!holding_) {
    if (const auto of = FindFollowed(rank.worker, stream.spec.source)) {
      return Join(*of, std::move(stream));
    }
    return Follow(std::move(stream));
  }
  KVR_TRY_VOID(ingest::Ingest::Check(stream.spec));
  const auto wait = [now](fleet::RankHealth& of) {
    of.SetStatus({RankState::kWarming, StateReason::kConnecting},
                 "what peers or the snapshot know is read first", now);
  };
  wait(*stream.health);
  for (const auto& sharer : stream.spec.sharers)
    wait(*sharer.health);
  if (Stream* const held = FindHeld(rank.worker, stream.spec.source)) {
    held->spec.sharers.push_back({rank.dp_rank, std::move(stream.health)});
  } else {
    held_.insert_or_assign(rank, std::move(stream));
  }
  return {};
}

StreamStart::Stream* StreamStart::FindHeld(WorkerId worker, const fleet::EventSource& source) {
  for (auto at = held_.lower_bound(Rank{worker, 0});
       at != held_.end() && at->first.worker == worker; ++at) {
    if (at->second.spec.source == source) return &at->second;
  }
  return nullptr;
}

std::optional<Rank> StreamStart::FindFollowed(WorkerId worker, const fleet::EventSource& source) {
  for (auto at = followed_.lower_bound(Rank{worker, 0});
       at != followed_.end() && at->first.worker == worker; ++at) {
    if (at->second == source) return at->first;
  }
  return std::nullopt;
}

void StreamStart::Remove(Rank rank) {
  const Lock change(changes_);
  RemoveHeld(rank);
  ingest_.Remove(rank);
  followed_.erase(rank);
}

void StreamStart::RemoveHeld(Rank rank) {
  for (auto at = held_.lower_bound(Rank{rank.worker, 0});
       at != held_.end() && at->first.worker == rank.worker; ++at) {
    auto& sharers = at->second.spec.sharers;
    if (at->first != rank) {
      std::erase_if(sharers, [rank](const auto& sharer) { return sharer.dp_rank == rank.dp_rank; });
      continue;
    }
    auto node = held_.extract(at);
    if (sharers.empty()) return;
    // The next one takes its place.
    node.key().dp_rank = sharers.front().dp_rank;
    node.mapped().spec.rank = node.key();
    node.mapped().health = std::move(sharers.front().health);
    sharers.erase(sharers.begin());
    held_.insert(std::move(node));
    return;
  }
}

void StreamStart::Hold() {
  const Lock change(changes_);
  holding_ = true;
}

void StreamStart::Release(const Failed& failed) {
  while (true) {  // a lock a stream: taking its blocks over may take long
    std::vector<Rank> ranks;
    Result<void> followed;
    {
      const Lock change(changes_);
      holding_ = false;
      if (held_.empty()) return;
      ranks = RanksOf(held_.begin()->second.spec);
      Stream stream = std::move(held_.begin()->second);
      held_.erase(held_.begin());
      followed = Follow(std::move(stream));
    }
    if (followed) continue;
    for (const Rank rank : ranks)
      failed(rank, followed.error());
  }
}

Result<void> StreamStart::Follow(Stream stream) {
  ingest::SourceSpec& spec = stream.spec;
  const std::vector<Rank> ranks = RanksOf(spec);
  const fleet::EventSource source = spec.source;
  spec.recovered = Adopt(stream);
  const bool adopted = spec.recovered.has_value();
  // Each reader of a polled engine numbers its messages itself.
  if (adopted && net::IsPolled(spec.source.endpoint)) spec.recovered->applied.reset();
  auto added = ingest_.Add(std::move(spec), stream.index, std::move(stream.health));
  for (const Rank rank : ranks) {
    if (added) {
      followed_.insert_or_assign(rank, source);
    } else if (adopted) {
      Forget(rank, *stream.index);
    }
  }
  return added;
}

Result<void> StreamStart::Join(Rank of, Stream stream) {
  const Rank rank = stream.spec.rank;
  KVR_CHECK(stream.spec.sharers.empty());
  const auto recovered = AdoptRank(rank, stream);
  std::optional<std::uint64_t> known_to;
  if (recovered && recovered->watermark) {
    known_to = recovered->watermark;
  } else if (recovered) {
    Forget(rank, *stream.index);
  }
  auto joined = ingest_.Join(of, {rank.dp_rank, std::move(stream.health)}, known_to);
  if (joined) {
    followed_.insert_or_assign(rank, std::move(stream.spec.source));
  } else if (known_to) {
    Forget(rank, *stream.index);
  }
  return joined;
}

void StreamStart::Forget(Rank rank, index::PartitionIndex& index) {
  index.hybrid->Drop(rank);
  index.index->RemoveRank(rank);
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
