#include "ingest/ingest.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "ingest/ingest_metrics.h"
#include "ingest/ingest_thread.h"
#include "net/event_endpoint.h"

namespace kvr::ingest {
namespace {

static_assert(placement::kDropReasonCount <= fleet::RankLedger::kReasonsMax);

// One sample a fate; those that never were are left out, but for the first.
void CollectLedger(const metrics::Labels& labels, const fleet::RankLedger& ledger,
                   metrics::SampleSink& sink) {
  const auto one = [&](const char* name, const char* help, const char* label,
                       std::string_view value, std::uint64_t count, bool always) {
    if (count == 0 && !always) return;
    metrics::Labels all = labels;
    all.emplace_back(label, value);
    sink.AddCounter(name, help, all, static_cast<double>(count));
  };
  const auto each = [&](const char* name, const char* help, const char* label, const auto& names,
                        auto first) {
    for (std::size_t i = 0; i < names.size(); ++i)
      one(name, help, label, names[i], ledger.count(static_cast<decltype(first)>(i)), i == 0);
  };
  each("kvr_ingest_rank_messages_total", "Numbers that the stream is past, by what became of them",
       "outcome", fleet::kMessageFateNames, fleet::MessageFate::kApplied);
  each("kvr_ingest_rank_messages_dropped_total", "Messages that arrived and moved nothing",
       "reason", fleet::kArrivalNames, fleet::Arrival::kRepeated);
  constexpr const char* kEvents = "kvr_ingest_rank_events_total";
  constexpr const char* kEventsHelp = "Events of the stream, by what became of them";
  each(kEvents, kEventsHelp, "outcome", fleet::kEventFateNames, fleet::EventFate::kApplied);
  for (std::size_t i = 0; i < placement::kDropReasonCount; ++i) {
    one(kEvents, kEventsHelp, "outcome", placement::kDropReasonNames[i], ledger.filtered(i), false);
  }
  each("kvr_ingest_rank_placements_total",
       "Placement events handed to the index, by what they came of", "origin",
       fleet::kPlacementNames, fleet::Placement::kEvent);
  sink.AddCounter("kvr_ingest_rank_messages_taken_back_total",
                  "Numbers by which the stream went back, to be told again or by a new engine",
                  labels, static_cast<double>(ledger.messages_taken_back()));
  sink.AddCounter("kvr_ingest_rank_events_taken_back_total",
                  "Numbers by which RouterEvents went back", labels,
                  static_cast<double>(ledger.events_taken_back()));
}

void CollectRank(Rank rank, const Target& target, Nanos now, metrics::SampleSink& sink) {
  const metrics::Labels labels = {{"worker_id", fmt::to_string(Raw(rank.worker))},
                                  {"dp_rank", fmt::to_string(rank.dp_rank)}};
  const auto with = [&labels](const char* name, std::string_view value) {
    metrics::Labels all = labels;
    all.emplace_back(name, value);
    return all;
  };
  const fleet::RankHealth& health = *target.health;
  const auto status = health.status();
  metrics::Labels state = with("state", RankStateName(status.state));
  state.emplace_back("reason", StateReasonName(status.reason));
  sink.AddGauge("kvr_ingest_rank_state", "1 for the state a rank is in", state, 1);
  sink.AddGauge("kvr_ingest_rank_connected", "Whether the link to the engine is up", labels,
                health.connected() ? 1 : 0);
  if (const auto watermark = health.watermark()) {
    sink.AddGauge("kvr_ingest_rank_watermark", "Last sequence number applied", labels,
                  static_cast<double>(*watermark));
  }
  if (health.last_message_at() != Nanos{0}) {
    const std::chrono::duration<double> lag = now - health.last_message_at();
    sink.AddGauge("kvr_ingest_rank_lag_seconds", "Time since the last message of the engine",
                  labels, lag.count());
  }
  sink.AddGauge("kvr_ingest_rank_table_bytes",
                "Heap of the tables that count copies of the stream's blocks, beside the index",
                labels, static_cast<double>(health.table_bytes()));
  if (const auto sides = target.index->hybrid->Find(rank)) {
    const index::SideGroups::Stats side = sides->stats();
    sink.AddGauge("kvr_ingest_rank_side_blocks", "Blocks held in side groups of a hybrid model",
                  labels, static_cast<double>(side.blocks));
    sink.AddCounter("kvr_ingest_rank_side_blocks_refused_total",
                    "Blocks of a hybrid model beyond the number that is remembered", labels,
                    static_cast<double>(side.refused));
  }
  CollectLedger(labels, health.ledger(), sink);
  const index::RankStats stats = target.index->index->StatsOf(target.slot);
  // The slot may have gone to another rank since the list was made.
  if (stats.rank != rank) return;
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    sink.AddGauge("kvr_ingest_rank_blocks", "Blocks held, by tier", with("tier", kTierNames[tier]),
                  static_cast<double>(stats.blocks[tier]));
  }
  sink.AddGauge("kvr_ingest_rank_pending_blocks", "Blocks waiting for their parent or content",
                labels, static_cast<double>(stats.pending_blocks));
  sink.AddGauge(
      "kvr_ingest_rank_evicted_blocks",
      "Held blocks, by tier, that gave way to the memory limit since the rank was cleared", labels,
      static_cast<double>(stats.evicted));
}

}  // namespace

Result<void> Ingest::Options::Validate() const {
  if (threads == 0 || sources_max == 0 || commands_max == 0 || messages_per_turn == 0 ||
      turn_max <= Millis{0}) {
    return Fail(ErrorCode::kInvalidArgument,
                "threads, sources_max, commands_max, messages_per_turn and turn_max must be at "
                "least 1");
  }
  if (rejected_bytes_kept > fleet::RejectedEvent::kBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("of a rejected event at most {} bytes can be kept",
                            fleet::RejectedEvent::kBytesMax));
  }
  return stream.Validate();
}

struct Ingest::Impl {
  Impl(net::EventTransport& transport, const Clock& time, metrics::Registry& registry,
       const Options& wanted)
      : clock(time), options(wanted), counters(registry, wanted.reference_metrics) {
    for (std::size_t i = 0; i < options.threads; ++i) {
      threads.push_back(std::make_unique<IngestThread>(i, transport, clock, counters, options));
    }
    collector = registry.AddCollector([this](metrics::SampleSink& sink) { Collect(sink); });
  }

  IngestThread& ThreadOf(WorkerId worker) {
    return *threads[std::hash<Rank>{}({worker, 0}) % threads.size()];
  }

  [[nodiscard]] std::size_t sources() const {
    std::size_t all = 0;
    for (const auto& thread : threads)
      all += thread->sources();
    return all;
  }

  void Collect(metrics::SampleSink& sink) const {
    const Nanos now = clock.Now();
    for (const auto& thread : threads) {
      for (const auto& entry : thread->targets())
        CollectRank(entry.first, entry.second, now, sink);
    }
  }

  const Clock& clock;
  const Options options;
  IngestMetrics counters;
  std::vector<std::unique_ptr<IngestThread>> threads;  // fixed after construction
  metrics::Registry::Collector collector;              // last: it reads the others
};

Ingest::Ingest(net::EventTransport& transport, const Clock& clock, metrics::Registry& registry,
               const Options& options) {
  KVR_CHECK(options.Validate());
  impl_ = std::make_unique<Impl>(transport, clock, registry, options);
}

Ingest::~Ingest() = default;

Result<void> Ingest::Check(const SourceSpec& spec) {
  KVR_TRY_VOID(net::CheckEventEndpoint(spec.source.endpoint));
  if (spec.source.replay_endpoint && net::IsPolled(spec.source.endpoint)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("`{}` is asked for its events and has no replay; leave the replay "
                            "endpoint out",
                            spec.source.endpoint));
  }
  if (spec.source.replay_endpoint) {
    if (const auto checked = net::CheckEndpoint(*spec.source.replay_endpoint, true); !checked) {
      constexpr std::string_view kZmq = "invalid ZMQ";
      return Fail(checked.error().code,
                  "invalid replay" + checked.error().message.substr(kZmq.size()));
    }
  }
  return {};
}

Result<void> Ingest::Add(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                         std::shared_ptr<fleet::RankHealth> health) {
  KVR_CHECK(index && health);
  for (const SourceSpec::Sharer& sharer : spec.sharers)
    KVR_CHECK(sharer.health && sharer.dp_rank != spec.rank.dp_rank);
  KVR_TRY_VOID(Check(spec));
  if (impl_->sources() >= impl_->options.sources_max) {
    return Fail(ErrorCode::kOverloaded, fmt::format("{} event sources are followed, which is the "
                                                    "limit",
                                                    impl_->options.sources_max));
  }
  IngestThread& thread = impl_->ThreadOf(spec.rank.worker);
  return thread.Add(std::move(spec), std::move(index), std::move(health));
}

Result<void> Ingest::Join(Rank of, SourceSpec::Sharer sharer,
                          std::optional<std::uint64_t> known_to) {
  KVR_CHECK(sharer.health && sharer.dp_rank != of.dp_rank);
  return impl_->ThreadOf(of.worker).Join(of, std::move(sharer), known_to);
}

bool Ingest::Remove(Rank rank) {
  return impl_->ThreadOf(rank.worker).Remove(rank);
}

void Ingest::Stop() {
  for (const auto& thread : impl_->threads)
    thread->Stop();
}

std::size_t Ingest::sources() const {
  return impl_->sources();
}

}  // namespace kvr::ingest
