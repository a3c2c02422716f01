#include "service/recovery/warm_start.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "net/io_runtime.h"
#include "net/task.h"
#include "service/recovery/binary_dump_reader.h"
#include "service/recovery/recovered_taker.h"
#include "service/recovery/snapshot_file.h"

namespace kvr::service {
namespace {

// One reads, and may be held up by a peer or a disk as long as those like; one releases the streams
// all the same.
constexpr std::size_t kReading = 0;
constexpr std::size_t kReleasing = 1;

net::IoRuntime::Options Threads() {
  net::IoRuntime::Options options;
  options.threads = 2;
  options.thread_name = "recovery";
  return options;
}

// Refuses a snapshot that is too old.
class SnapshotTaker final : public RecoveredTaker {
 public:
  SnapshotTaker(StreamStart& streams, RecoveryCounts& counts, const WarmStart::Options& options,
                Nanos now)
      : RecoveredTaker(streams, counts, "snapshot " + options.snapshot_path),
        age_max_(options.snapshot_age_max),
        now_(now) {}

  Result<void> Begin(Nanos written) override {
    const Nanos age = now_ - written;
    if (age_max_ == Millis{0} || age <= age_max_) return {};
    return Fail(ErrorCode::kUnprocessable,
                fmt::format("it is {} s old, snapshot.max_age_ms allows {} s",
                            std::chrono::floor<std::chrono::seconds>(age).count(),
                            std::chrono::floor<std::chrono::seconds>(age_max_).count()));
  }

 private:
  const Nanos age_max_;
  const Nanos now_;
};

}  // namespace

Result<void> WarmStart::Options::Validate() const {
  KVR_TRY_VOID(peers.Validate());
  if (retry_first > Millis{0} && retry_max >= retry_first) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the pauses between rounds over the peers must be positive, retry_max the longest");
}

struct WarmStart::Impl {
  Impl(StreamStart& starting, metrics::Registry& registry, const Clock& time,
       StreamStart::Failed on_failure, const Options& wanted)
      : streams(starting),
        clock(time),
        failed(std::move(on_failure)),
        options(wanted),
        begun(clock.Now()),
        runtime(Threads()),
        snapshots(registry, "snapshot"),
        of_peers(registry, "peer"),
        peers(runtime, streams, of_peers, clock, options.peers),
        collector(registry.AddCollector([this](metrics::SampleSink& sink) { Collect(sink); })) {}

  net::Task<void> Run() {
    bool found = ReadSnapshot();
    Millis pause = options.retry_first;
    // What is broken off because the process ends says nothing, and no stream begins any more.
    if (stopping) co_return;
    file_read = true;
    while (!options.peers.urls.empty()) {
      const DumpOutcome outcome = co_await peers.AskAll();
      if (stopping) co_return;
      found |= outcome != DumpOutcome::kFailed;
      if (found) break;
      Release();
      KVR_WARN("no peer could be asked for its blocks; asking again in {} ms", pause.count());
      const bool slept = co_await net::Sleep(pause);
      if (!slept) co_return;
      DropUnclaimed();  // of dumps that broke off
      pause = std::min(pause * 2, options.retry_max);
    }
    Release();
    done = true;
    while (streams.stats().waiting_ranks > 0) {
      const bool slept = co_await net::Sleep(kUnclaimedLook);
      if (!slept) co_return;
      DropUnclaimed();
    }
  }

  // Whether it had blocks of any rank.
  bool ReadSnapshot() {
    if (options.snapshot_path.empty()) return false;
    SnapshotTaker taker(streams, snapshots, options, clock.WallTime());
    const DumpOutcome outcome = ReadSnapshotInto(taker);
    if (stopping) return false;
    snapshots.Count(outcome);
    return taker.ranks() > 0;
  }

  DumpOutcome ReadSnapshotInto(SnapshotTaker& taker) {
    const std::string& path = options.snapshot_path;
    BinaryDumpReader reader(options.snapshot_reader, taker);
    auto read = ReadSnapshotFile(path, [&](std::string_view piece) -> Result<void> {
      if (stopping) return Fail(ErrorCode::kCancelled, "the process ends");
      snapshots.bytes.Add(piece.size());
      return reader.Put(piece);
    });
    if (read) read = reader.Finish();
    if (!read && read.error().code == ErrorCode::kNotFound) {
      KVR_INFO("snapshot {}: there is none yet", path);
      return DumpOutcome::kAbsent;
    }
    if (!read && read.error().code == ErrorCode::kCancelled) {
      KVR_INFO("snapshot {} is not read to its end: {}", path, read.error().message);
      return DumpOutcome::kFailed;
    }
    if (!read) {
      KVR_WARN("snapshot {} is refused: {}; {} blocks of {} ranks came whole before that", path,
               read.error().message, taker.blocks(), taker.ranks());
      return DumpOutcome::kFailed;
    }
    KVR_INFO("snapshot {}: {} blocks of {} ranks in {} partitions", path, taker.blocks(),
             taker.ranks(), taker.partitions());
    return taker.partitions() > 0 ? DumpOutcome::kRecovered : DumpOutcome::kEmpty;
  }

  void DropUnclaimed() {
    const std::size_t dropped = streams.DropUnclaimed();
    if (dropped == 0) return;
    KVR_WARN("recovered blocks of {} ranks are dropped: nobody registered them", dropped);
  }

  net::Task<void> ReleaseWhenDue() {
    while (!HasPassed(options.hold_max)) {
      const Millis left = std::min(options.hold_max - Passed(), kHoldLook);
      const bool slept = co_await net::Sleep(left);
      if (!slept) co_return;
    }
    if (!holding || stopping) co_return;
    KVR_WARN("streams begin without what the snapshot and peers have not told within {} ms",
             options.hold_max.count());
    Release();
  }

  // By both threads, and by both at once.
  void Release() {
    if (!holding) return;
    streams.Release(failed);
    holding = false;
  }

  [[nodiscard]] Millis Passed() const { return std::chrono::floor<Millis>(clock.Now() - begun); }
  [[nodiscard]] bool HasPassed(Millis limit) const { return Passed() >= limit; }

  void Collect(metrics::SampleSink& sink) const {
    const StreamStart::Stats stats = streams.stats();
    sink.AddGauge("kvr_recovery_waiting_ranks", "Recovered ranks that nobody registered", {},
                  static_cast<double>(stats.waiting_ranks));
    sink.AddGauge("kvr_recovery_waiting_blocks", "Blocks of those ranks", {},
                  static_cast<double>(stats.waiting_blocks));
    sink.AddCounter("kvr_recovery_adopted_ranks_total",
                    "Ranks that began with what was known before", {},
                    static_cast<double>(stats.adopted_ranks));
    sink.AddCounter("kvr_recovery_expired_ranks_total",
                    "Recovered ranks that were dropped after the grace period", {},
                    static_cast<double>(stats.expired_ranks));
  }

  // How often it is looked whether the grace of unregistered ranks is over.
  static constexpr Nanos kUnclaimedLook = std::chrono::seconds(1);
  // A longer hold is slept in parts, as a timer has no room for every number of milliseconds.
  static constexpr Millis kHoldLook = std::chrono::hours(1);

  StreamStart& streams;
  const Clock& clock;
  const StreamStart::Failed failed;
  const Options options;
  const Nanos begun;
  std::atomic<bool> holding{true};
  std::atomic<bool> file_read{false};  // the snapshot, to its end, or there is none
  std::atomic<bool> done{false};       // peers are asked no more
  std::atomic<bool> stopping{false};
  net::IoRuntime runtime;
  RecoveryCounts snapshots;
  RecoveryCounts of_peers;
  PeerDumps peers;
  metrics::Registry::Collector collector;  // last: it reads the others
};

WarmStart::WarmStart(StreamStart& streams, metrics::Registry& registry, const Clock& clock,
                     StreamStart::Failed failed, const Options& options)
    : impl_(std::make_unique<Impl>(streams, registry, clock, std::move(failed), options)) {
  KVR_CHECK(options.Validate());
  streams.Hold();
}

WarmStart::~WarmStart() {
  Stop();
}

void WarmStart::Start() {
  Impl* const impl = impl_.get();
  impl->runtime.SpawnOn(kReading, [impl] { return impl->Run(); });
  impl->runtime.SpawnOn(kReleasing, [impl] { return impl->ReleaseWhenDue(); });
}

void WarmStart::Stop() {
  impl_->stopping = true;
  impl_->runtime.Stop();
}

std::string WarmStart::not_ready_reason() const {
  if (impl_->done || impl_->HasPassed(impl_->options.ready_wait)) return {};
  if (impl_->holding) {
    return fmt::format("recovering from the snapshot and peers: {} bytes read",
                       impl_->snapshots.bytes.value() + impl_->of_peers.bytes.value());
  }
  return "recovering from peers: none could be asked so far";
}

bool WarmStart::settled() const {
  if (impl_->holding || !impl_->file_read) return false;
  return impl_->streams.stats().waiting_ranks == 0 || impl_->HasPassed(impl_->options.settle_max);
}

}  // namespace kvr::service
