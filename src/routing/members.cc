#include "routing/members.h"

#include <algorithm>
#include <limits>

namespace kvr::routing {

std::optional<std::size_t> Members::Find(Rank rank) const {
  const auto host = std::ranges::lower_bound(hosts, rank, {}, &sched::Host::rank);
  if (host == hosts.end() || host->rank != rank) return std::nullopt;
  return static_cast<std::size_t>(host - hosts.begin());
}

namespace {

std::optional<std::uint32_t> KvBlocksOf(const fleet::WorkerSpec& spec) {
  if (!spec.total_kv_blocks) return std::nullopt;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(*spec.total_kv_blocks, kMost));
}

}  // namespace

std::shared_ptr<const Members> TakeUp(const fleet::Snapshot& snapshot, const Partition& partition,
                                      const Members& before, load::LoadBook& book) {
  auto now = std::make_shared<Members>();
  now->version = snapshot.version;
  for (const fleet::Worker* worker : snapshot.In(partition)) {
    now->block_size = worker->spec.block_size;
    now->eagle = worker->spec.is_eagle;
    for (const fleet::RankEntry& entry : worker->ranks) {
      now->members.push_back({.url = worker->spec.url,
                              .has_siblings = worker->ranks.size() > 1,
                              .health = entry.health,
                              .slot = book.AddRank(entry.rank),
                              .kv_blocks = KvBlocksOf(worker->spec)});
      // A worker without a URL is only observed.
      now->hosts.push_back({.rank = entry.rank, .available = !worker->spec.url.empty()});
    }
  }
  for (std::size_t i = 0; i < before.hosts.size(); ++i) {
    const Rank rank = before.hosts[i].rank;
    const auto same = now->Find(rank);
    // Another health object: the rank left and came back between two looks, so it starts empty.
    if (same && now->members[*same].health == before.members[i].health) continue;
    book.RemoveRank(rank);
    if (same) now->members[*same].slot = book.AddRank(rank);
  }
  return now;
}

}  // namespace kvr::routing
