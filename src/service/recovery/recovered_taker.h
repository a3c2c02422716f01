// Hands what a dump says to the streams that may begin with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "metrics/registry.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/recovered_rank.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {

// What became of a dump. The names are the `outcome` label.
enum class DumpOutcome : std::uint8_t {
  kRecovered,
  kEmpty,
  kSelf,    // the peer is this process
  kAbsent,  // there is no file
  kFailed,  // it could not be had, or was refused; partitions that came whole before are used
};
inline constexpr std::array<std::string_view, 5> kDumpOutcomeNames = {"recovered", "empty", "self",
                                                                      "absent", "failed"};

// kvr_recovery_*, of one kind of source: "peer" or "snapshot".
class RecoveryCounts {
 public:
  RecoveryCounts(metrics::Registry& registry, const std::string& source);

  void Count(DumpOutcome outcome) { dumps_[static_cast<std::size_t>(outcome)]->Add(); }
  void Count(DumpReject reason) { rejects_[static_cast<std::size_t>(reason)]->Add(); }

  metrics::Counter& bytes;
  metrics::Counter& long_events;

 private:
  std::array<metrics::Counter*, kDumpOutcomeNames.size()> dumps_{};
  std::array<metrics::Counter*, kDumpRejectNames.size()> rejects_{};
};

// Of one dump. Logs. Not thread-safe.
class RecoveredTaker : public DumpReader::Sink {
 public:
  // `who` begins the log lines: "peer http://other:8090". Both must outlive the taker.
  RecoveredTaker(StreamStart& streams, RecoveryCounts& counts, std::string who)
      : streams_(streams), counts_(counts), who_(std::move(who)) {}

  void Take(RecoveredPartition partition) override;
  void Reject(std::string_view name, DumpReject reason, std::string_view detail) override;
  void PassOver(std::string_view name, std::size_t events) override;

  // What was used.
  [[nodiscard]] std::size_t partitions() const { return partitions_; }
  [[nodiscard]] std::size_t ranks() const { return ranks_; }
  [[nodiscard]] std::size_t blocks() const { return blocks_; }

 private:
  // An engine names its cache groups by numbers that only its stream explains. Without them a
  // removal could be missed, and a prefix promise more than can be reused.
  void DropHybridRanks(std::string_view name, RecoveredPartition& partition) const;

  StreamStart& streams_;
  RecoveryCounts& counts_;
  const std::string who_;
  std::size_t partitions_ = 0;
  std::size_t ranks_ = 0;
  std::size_t blocks_ = 0;
};

}  // namespace kvr::service
