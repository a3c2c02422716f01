#include "service/agent/agent_metrics.h"

#include <string_view>

#include <fmt/format.h>

namespace kvr::service {
namespace {

struct Series {
  std::string_view name;
  std::string_view help;
  double value;
  bool counts;  // else it goes up and down
};

void Collect(const PublishedRank& rank, metrics::SampleSink& sink) {
  const PublishedRank::Stats stats = rank.stats();
  const auto& publisher = stats.publisher;
  const auto number = [](auto value) { return static_cast<double>(value); };
  const Series series[] = {
      {"kvr_publish_events_received_total", "Events of the rank's sources, filtered and in order",
       number(publisher.received_events), true},
      {"kvr_publish_events_total", "Events numbered and published",
       number(publisher.published_events), true},
      {"kvr_publish_blocks_total", "Blocks stored and removed in published events",
       number(publisher.published_blocks), true},
      {"kvr_publish_messages_total", "Messages of published events", number(publisher.messages),
       true},
      {"kvr_publish_messages_dropped_total",
       "Messages that found the queue full: a gap in the live stream",
       number(publisher.dropped_messages), true},
      {"kvr_publish_events_dropped_total", "Events in dropped messages",
       number(publisher.dropped_events), true},
      {"kvr_publish_blocks_shared_total", "Stored blocks that another source had told of",
       number(stats.book.shared_stores), true},
      {"kvr_publish_removals_held_total", "Removed blocks that another source still holds",
       number(stats.book.held_removals), true},
      {"kvr_publish_blocks_unplaced_total",
       "Blocks of several sources whose place in a sequence is not known, which are not merged",
       number(publisher.unplaced_blocks), true},
      {"kvr_publish_unknown_content_total", "Blocks stored by a name whose content was never told",
       number(stats.book.unknown_content + publisher.unknown_names), true},
      {"kvr_publish_blocks_renamed_total",
       "Held blocks whose name came with another content, which replaced the former",
       number(stats.book.renamed), true},
      {"kvr_publish_blocks_uncounted_total", "Blocks beyond the limit, which are not published",
       number(stats.book.uncounted + publisher.refused_blocks), true},
      {"kvr_publish_events_refused_total",
       "Events of ranks with side groups, which are not published", number(stats.refused_events),
       true},
      {"kvr_publish_snapshots_built_total", "Snapshots built", number(publisher.snapshots_built),
       true},
      {"kvr_publish_snapshots_reused_total", "Snapshots answered from the last one built",
       number(publisher.snapshots_reused), true},
      {"kvr_publish_routers_behind_total",
       "Messages that found a router at its mark; with each begins a loss of that router",
       number(stats.socket.at_mark), true},
      {"kvr_publish_messages_repeated_total",
       "Newest messages that were sent again for a router that may have lost them",
       number(stats.socket.repeats), true},
      {"kvr_publish_replay_requests_total", "Requests to the replay socket",
       number(stats.socket.replay_requests), true},
      {"kvr_publish_replays_given_up_total", "Answers of the replay socket without an end",
       number(stats.socket.replays_given_up), true},
      {"kvr_publish_answers_total", "Snapshots and states told over the replay socket",
       number(stats.socket.source_answers), true},
      {"kvr_publish_answer_bytes_total", "Bytes of them", number(stats.socket.source_answer_bytes),
       true},
      {"kvr_publish_held_blocks", "Blocks the rank holds, of any tier", number(publisher.blocks),
       false},
      {"kvr_publish_ring_events", "Events kept for routers that missed them",
       number(publisher.ring_events), false},
      {"kvr_publish_ring_bytes", "Bytes of kept events", number(publisher.ring_bytes), false},
      {"kvr_publish_last_event_id", "Number of the newest event", number(publisher.last_event_id),
       false},
  };
  const metrics::Labels labels = {{"worker_id", fmt::to_string(Raw(rank.rank().worker))},
                                  {"dp_rank", fmt::to_string(rank.rank().dp_rank)}};
  for (const Series& one : series) {
    if (one.counts) {
      sink.AddCounter(one.name, one.help, labels, one.value);
    } else {
      sink.AddGauge(one.name, one.help, labels, one.value);
    }
  }
}

}  // namespace

void CollectPublished(const std::vector<PublishedRank*>& ranks, metrics::SampleSink& sink) {
  for (const PublishedRank* const rank : ranks)
    Collect(*rank, sink);
}

}  // namespace kvr::service
