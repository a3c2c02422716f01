// What the ingest counts.
#pragma once

#include <array>
#include <cstddef>

#include "index/prefix_index.h"
#include "ingest/rank_stream.h"
#include "metrics/registry.h"
#include "model/placement_event.h"
#include "placement/drop_reason.h"
#include "placement/event_translator.h"
#include "wire/decode_error.h"

namespace kvr::ingest {

// The counters of one Ingest. Thread-safe.
class IngestMetrics {
 public:
  // With `reference` the two counters of the reference router are kept beside ours.
  IngestMetrics(metrics::Registry& registry, bool reference);

  void CountApplied(PlacementKind kind, const index::ApplyResult& result);
  void CountFiltered(placement::DropReason reason);
  void CountDecodeFailure(wire::DecodeErrc code);
  void CountForeignRank() { foreign_rank_.Add(); }
  // Adds what happened to a stream between two looks at its statistics.
  void CountStream(const StreamStats& before, const StreamStats& after);
  void CountTranslator(const placement::TranslatorStats& before,
                       const placement::TranslatorStats& after);

 private:
  struct StreamCounter {
    std::uint64_t StreamStats::*field;
    metrics::Counter* counter;
  };
  struct TranslatorCounter {
    std::uint64_t placement::TranslatorStats::*field;
    metrics::Counter* counter;
  };

  std::array<std::array<metrics::Counter*, index::kApplyStatusNames.size()>, 3> applied_{};
  std::array<std::array<metrics::Counter*, index::kApplyStatusNames.size()>, 3>
      reference_applied_{};
  metrics::Counter& duplicate_store_;
  metrics::Counter* reference_duplicate_store_ = nullptr;
  std::array<metrics::Counter*, placement::kDropReasonCount> filtered_{};
  std::array<metrics::Counter*, wire::kDecodeErrcNames.size()> decode_failures_{};
  metrics::Counter& foreign_rank_;
  std::vector<StreamCounter> stream_;
  std::vector<TranslatorCounter> translator_;
};

}  // namespace kvr::ingest
