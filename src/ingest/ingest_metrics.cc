#include "ingest/ingest_metrics.h"

#include <string>
#include <utility>

namespace kvr::ingest {
namespace {

constexpr std::array<const char*, 3> kEventTypes = {"stored", "removed", "cleared"};
constexpr const char* kAppliedHelp = "Placement events handed to an index, by outcome";
constexpr const char* kWarningsHelp = "Events that were applied but changed nothing";

}  // namespace

IngestMetrics::IngestMetrics(metrics::Registry& registry, bool reference)
    : duplicate_store_(registry.AddCounter("kvr_ingest_event_warnings_total", kWarningsHelp,
                                           {{"warning_kind", "duplicate_store"}})),
      foreign_rank_(registry.AddCounter("kvr_ingest_batches_rejected_total",
                                        "Batches that named a rank the stream may not speak for",
                                        {{"reason", "foreign_rank"}})) {
  for (std::size_t type = 0; type < kEventTypes.size(); ++type) {
    for (std::size_t status = 0; status < index::kApplyStatusNames.size(); ++status) {
      const metrics::Labels labels = {{"event_type", kEventTypes[type]},
                                      {"status", std::string(index::kApplyStatusNames[status])}};
      applied_[type][status] =
          &registry.AddCounter("kvr_ingest_events_applied_total", kAppliedHelp, labels);
      if (reference) {
        reference_applied_[type][status] =
            &registry.AddCounter("dynamo_kvrouter_kv_cache_events_applied", kAppliedHelp, labels);
      }
    }
  }
  if (reference) {
    reference_duplicate_store_ =
        &registry.AddCounter("dynamo_kvrouter_kv_cache_event_warnings", kWarningsHelp,
                             {{"warning_kind", "duplicate_store"}});
  }
  for (std::size_t i = 0; i < filtered_.size(); ++i) {
    filtered_[i] = &registry.AddCounter("kvr_ingest_events_filtered_total",
                                        "Engine events that reach no index, by reason",
                                        {{"reason", std::string(placement::kDropReasonNames[i])}});
  }
  for (std::size_t i = 0; i < decode_failures_.size(); ++i) {
    decode_failures_[i] = &registry.AddCounter("kvr_ingest_decode_failures_total",
                                               "Payloads that are no event batch, by error",
                                               {{"error", std::string(wire::kDecodeErrcNames[i])}});
  }
  const auto add = [&](std::uint64_t StreamStats::*field, const char* name, const char* help,
                       metrics::Labels labels = {}) {
    stream_.push_back({field, &registry.AddCounter(name, help, std::move(labels))});
  };
  constexpr const char* kMessages = "kvr_ingest_messages_total";
  constexpr const char* kMessagesHelp = "Numbered messages of engines, by what became of them";
  add(&StreamStats::applied, kMessages, kMessagesHelp, {{"outcome", "applied"}});
  add(&StreamStats::missed, kMessages, kMessagesHelp, {{"outcome", "missed"}});
  add(&StreamStats::repeated, kMessages, kMessagesHelp, {{"outcome", "repeated"}});
  add(&StreamStats::late, kMessages, kMessagesHelp, {{"outcome", "late"}});
  add(&StreamStats::undecodable, kMessages, kMessagesHelp, {{"outcome", "undecodable"}});
  add(&StreamStats::replayed, "kvr_ingest_messages_replayed_total",
      "Applied messages that came from a replay endpoint");
  constexpr const char* kRejected = "kvr_ingest_frames_rejected_total";
  constexpr const char* kRejectedHelp = "Live messages whose framing is wrong, by reason";
  add(&StreamStats::bad_frame_count, kRejected, kRejectedHelp, {{"reason", "frame_count"}});
  add(&StreamStats::bad_sequence, kRejected, kRejectedHelp, {{"reason", "sequence"}});
  add(&StreamStats::bad_plane_frame, kRejected, kRejectedHelp, {{"reason", "plane_frame"}});
  add(&StreamStats::bad_identity, kRejected, kRejectedHelp, {{"reason", "identity"}});
  add(&StreamStats::gaps, "kvr_ingest_gaps_total", "Jumps in the numbers of live messages");
  add(&StreamStats::restarts, "kvr_ingest_engine_restarts_total", "Engine restarts detected");
  add(&StreamStats::clears, "kvr_ingest_clears_total",
      "Times a stream's blocks were forgotten after a restart or a loss");
  add(&StreamStats::disconnects, "kvr_ingest_disconnects_total", "Links to engines lost");
  add(&StreamStats::park_overflow, "kvr_ingest_parked_dropped_total",
      "Live messages dropped, to be fetched later, because too many waited for a replay");
  constexpr const char* kReplays = "kvr_ingest_replays_total";
  constexpr const char* kReplaysHelp = "Replay requests, by outcome";
  add(&StreamStats::replays_started, kReplays, kReplaysHelp, {{"outcome", "started"}});
  add(&StreamStats::replays_completed, kReplays, kReplaysHelp, {{"outcome", "completed"}});
  add(&StreamStats::replays_incomplete, kReplays, kReplaysHelp, {{"outcome", "incomplete"}});
  add(&StreamStats::replays_failed, kReplays, kReplaysHelp, {{"outcome", "failed"}});
  add(&StreamStats::replays_foreign, kReplays, kReplaysHelp, {{"outcome", "foreign"}});
  add(&StreamStats::confirmed, kReplays, kReplaysHelp, {{"outcome", "confirmed"}});
  constexpr const char* kSnapshots = "kvr_ingest_snapshots_total";
  constexpr const char* kSnapshotsHelp = "Snapshots of agents, by outcome";
  add(&StreamStats::snapshots_asked, kSnapshots, kSnapshotsHelp, {{"outcome", "asked"}});
  add(&StreamStats::snapshots_taken, kSnapshots, kSnapshotsHelp, {{"outcome", "taken"}});
  add(&StreamStats::snapshots_failed, kSnapshots, kSnapshotsHelp, {{"outcome", "failed"}});
  add(&StreamStats::snapshots_refused, kSnapshots, kSnapshotsHelp, {{"outcome", "refused"}});
  add(&StreamStats::snapshot_bytes, "kvr_ingest_snapshot_bytes_total",
      "Bytes of events in snapshots");
  add(&StreamStats::overtaken, "kvr_ingest_recoveries_overtaken_total",
      "Recoveries that a clear made needless");

  using placement::TranslatorStats;
  const auto add_translated = [&](std::uint64_t TranslatorStats::*field, const char* name,
                                  const char* help, metrics::Labels labels = {}) {
    translator_.push_back({field, &registry.AddCounter(name, help, std::move(labels))});
  };
  add_translated(&TranslatorStats::cut_blocks, "kvr_ingest_cut_blocks_total",
                 "Blocks at the end of a store that came without their tokens");
  add_translated(&TranslatorStats::zero_blocks, "kvr_ingest_zero_blocks_total",
                 "Blocks of token 0 alone, which engines send for prompts of embeddings");
  add_translated(&TranslatorStats::held_removals, "kvr_ingest_held_removals_total",
                 "Removed blocks of which the engine keeps another copy");
  add_translated(&TranslatorStats::unmatched_removals, "kvr_ingest_unmatched_removals_total",
                 "Removed blocks of which no copy was counted where they are removed from");
  add_translated(&TranslatorStats::uncounted_blocks, "kvr_ingest_uncounted_blocks_total",
                 "Blocks beyond the number whose copies are counted");
  constexpr const char* kForgotten = "kvr_ingest_forgotten_total";
  constexpr const char* kForgottenHelp =
      "What was not remembered of a rank, or not any more, for want of room, by the limit";
  add_translated(&TranslatorStats::given_up_names, kForgotten, kForgottenHelp,
                 {{"limit", "held_names_max"}});
  add_translated(&TranslatorStats::unplaced_blocks, kForgotten, kForgottenHelp,
                 {{"limit", "chunk_blocks_max"}});
  add_translated(&TranslatorStats::crowded_chunks, kForgotten, kForgottenHelp,
                 {{"limit", "chunks_max"}});
  add_translated(&TranslatorStats::forgotten_partials, kForgotten, kForgottenHelp,
                 {{"limit", "partial_blocks_max"}});
  add_translated(&TranslatorStats::forgotten_digests, kForgotten, kForgottenHelp,
                 {{"limit", "digests_max"}});
  add_translated(&TranslatorStats::main_changes, "kvr_ingest_main_group_changes_total",
                 "Times the main cache group of a rank turned out to be another");
  add_translated(&TranslatorStats::legacy_layouts, "kvr_ingest_legacy_layouts_total",
                 "Positional events that do not have the current layout");
  add_translated(&TranslatorStats::digest_changes, "kvr_ingest_digest_changes_total",
                 "Times a stream's blocks were forgotten because its digests had been read by the "
                 "wrong end");
  constexpr const char* kSkipped = "kvr_ingest_skipped_fields_total";
  constexpr const char* kSkippedHelp =
      "Fields passed over for a wrong type, of events that are good without them";
  add_translated(&TranslatorStats::skipped_session_ids, kSkipped, kSkippedHelp,
                 {{"field", "session_id"}});
  add_translated(&TranslatorStats::skipped_windows, kSkipped, kSkippedHelp,
                 {{"field", "kv_cache_spec_sliding_window"}});
  add_translated(&TranslatorStats::skipped_token_offsets, kSkipped, kSkippedHelp,
                 {{"field", "token_offset"}});
  add_translated(&TranslatorStats::skipped_copies_left, kSkipped, kSkippedHelp,
                 {{"field", "remaining_copy_counts"}});
  add_translated(&TranslatorStats::skipped_positions, kSkipped, kSkippedHelp,
                 {{"field", "start_position"}});
  add_translated(&TranslatorStats::skipped_mm_infos, kSkipped, kSkippedHelp,
                 {{"field", "mm_extra_info"}});
  add_translated(&TranslatorStats::skipped_flags, kSkipped, kSkippedHelp, {{"field", "sce"}});
  add_translated(&TranslatorStats::trailing_bytes, "kvr_ingest_trailing_bytes_total",
                 "Bytes of payloads behind their batch");
}

void IngestMetrics::CountApplied(PlacementKind kind, const index::ApplyResult& result) {
  const auto type = static_cast<std::size_t>(kind);
  const auto status = static_cast<std::size_t>(result.status);
  applied_[type][status]->Add();
  if (reference_applied_[type][status]) reference_applied_[type][status]->Add();
  if (!result.duplicate_store) return;
  duplicate_store_.Add();
  if (reference_duplicate_store_) reference_duplicate_store_->Add();
}

void IngestMetrics::CountFiltered(placement::DropReason reason) {
  filtered_[static_cast<std::size_t>(reason)]->Add();
}

void IngestMetrics::CountDecodeFailure(wire::DecodeErrc code) {
  decode_failures_[static_cast<std::size_t>(code)]->Add();
}

void IngestMetrics::CountStream(const StreamStats& before, const StreamStats& after) {
  for (const StreamCounter& entry : stream_) {
    const std::uint64_t by = after.*entry.field - before.*entry.field;
    if (by != 0) entry.counter->Add(by);
  }
}

void IngestMetrics::CountTranslator(const placement::TranslatorStats& before,
                                    const placement::TranslatorStats& after) {
  for (const TranslatorCounter& entry : translator_) {
    const std::uint64_t by = after.*entry.field - before.*entry.field;
    if (by != 0) entry.counter->Add(by);
  }
}

}  // namespace kvr::ingest
