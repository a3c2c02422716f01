#include "service/recovery/snapshot_writer.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_name.h"
#include "service/recovery/binary_dump_writer.h"
#include "service/recovery/snapshot_file.h"

namespace kvr::service {
namespace {

constexpr std::size_t kPieceBytes = 256u << 10;
constexpr Nanos kLogInterval = std::chrono::seconds(60);

// The names are the `outcome` label.
enum class Outcome : std::uint8_t {
  kWritten,
  kEarly,   // not written: what was known before is not taken over yet
  kLocked,  // not written: another process writes the file
  kFailed,
};
constexpr std::array<std::string_view, 4> kOutcomeNames = {"written", "early", "locked", "failed"};

}  // namespace

Result<void> SnapshotWriter::Options::Validate() const {
  if (interval > Millis{0}) return {};
  return Fail(ErrorCode::kInvalidArgument, "snapshot.interval_ms must be positive");
}

struct SnapshotWriter::Impl {
  Impl(const Parts& given, const Options& wanted)
      : parts(given),
        options(wanted),
        bytes(parts.registry.AddGauge("kvr_snapshot_bytes", "Length of the last snapshot written")),
        written_at(parts.registry.AddGauge("kvr_snapshot_timestamp_seconds",
                                           "When the last snapshot was written, 0: never")),
        duration(parts.registry.AddGauge("kvr_snapshot_write_milliseconds",
                                         "How long the last snapshot took to write")) {
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      outcomes[i] = &parts.registry.AddCounter("kvr_snapshot_writes_total",
                                               "Turns to write a snapshot, by outcome",
                                               {{"outcome", std::string(kOutcomeNames[i])}});
    }
  }

  void Run() {
    while (WaitForTurn())
      TakeTurn(false);
    TakeTurn(true);
  }

  // False when it is time to end.
  bool WaitForTurn() KVR_EXCLUDES(mutex) {
    const auto due = std::chrono::steady_clock::now() + options.interval;
    const Lock lock(mutex);
    while (!stopping.load(std::memory_order_relaxed)) {
      if (!changed.WaitUntil(mutex, due)) return !stopping.load(std::memory_order_relaxed);
    }
    return false;
  }

  void TakeTurn(bool last) {
    const Nanos begun = parts.clock.Now();
    const auto outcome = Write(last);
    if (!outcome) {
      Count(Outcome::kFailed);
      Warn(outcome.error().message);
      return;
    }
    Count(*outcome);
    if (*outcome != Outcome::kWritten) return;
    duration.Set(std::chrono::floor<Millis>(parts.clock.Now() - begun).count());
    written_at.Set(std::chrono::floor<std::chrono::seconds>(parts.clock.WallTime()).count());
  }

  Result<Outcome> Write(bool last) {
    if (!parts.recovered()) return Outcome::kEarly;
    if (!lock_of_file) {
      auto taken = SnapshotLock::Take(options.path);
      if (!taken && taken.error().code == ErrorCode::kUnavailable) {
        Warn(taken.error().message);
        return Outcome::kLocked;
      }
      if (!taken) return tl::make_unexpected(std::move(taken).error());
      lock_of_file.emplace(*std::move(taken));
    }
    KVR_TRY_VOID(CheckReplaceable(options.path, kDumpMagic));
    KVR_TRY(auto file, SnapshotFile::Begin(options.path));
    BinaryDumpWriter dump(parts.indexes.List(), parts.catalog.snapshot(), parts.clock.WallTime());
    for (std::string piece; dump.Next(kPieceBytes, piece);) {
      KVR_TRY_VOID(file.Append(piece));
      // The last one is newer.
      if (!last && stopping.load(std::memory_order_relaxed)) return Outcome::kEarly;
    }
    KVR_TRY_VOID(file.Commit());
    bytes.Set(static_cast<std::int64_t>(file.bytes()));
    if (last) KVR_INFO("snapshot {}: {} bytes", options.path, file.bytes());
    return Outcome::kWritten;
  }

  void Count(Outcome outcome) { outcomes[static_cast<std::size_t>(outcome)]->Add(); }

  void Warn(std::string_view why) {
    std::uint64_t more = 0;
    if (!limit.Pass(parts.clock.Now(), more)) return;
    KVR_WARN("no snapshot: {}; {} more since the last such line", why, more);
  }

  const Parts parts;
  const Options options;
  metrics::Gauge& bytes;
  metrics::Gauge& written_at;
  metrics::Gauge& duration;
  std::array<metrics::Counter*, kOutcomeNames.size()> outcomes{};
  LogLimiter limit{kLogInterval};
  std::optional<SnapshotLock> lock_of_file;
  // Relaxed: it orders nothing; who waits looks again under the lock.
  std::atomic<bool> stopping{false};
  Mutex mutex;
  CondVar changed;
  std::thread thread;
};

SnapshotWriter::SnapshotWriter(const Parts& parts, const Options& options)
    : impl_(std::make_unique<Impl>(parts, options)) {
  KVR_CHECK(options.Validate());
}

SnapshotWriter::~SnapshotWriter() {
  Stop();
}

void SnapshotWriter::Start() {
  impl_->thread = std::thread([impl = impl_.get()] {
    SetThreadName("snapshot");
    impl->Run();
  });
}

void SnapshotWriter::Stop() {
  if (!impl_->thread.joinable()) return;
  {
    const Lock lock(impl_->mutex);
    impl_->stopping.store(true, std::memory_order_relaxed);
  }
  impl_->changed.NotifyAll();
  impl_->thread.join();
}

}  // namespace kvr::service
