// A thread of the ingest, and how others hand it work.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ingest/ingest.h"
#include "ingest/ingest_metrics.h"
#include "ingest/source.h"
#include "model/ids.h"
#include "net/event_socket.h"

namespace kvr::ingest {

// One thread with a poller and the sources of some workers. Thread-safe; the sources, targets and
// sockets are the thread's alone, and everybody else sends it work to do on them.
class IngestThread {
 public:
  IngestThread(std::size_t number, net::EventTransport& transport, const Clock& clock,
               IngestMetrics& metrics, const Ingest::Options& options);
  ~IngestThread();  // Stop()
  IngestThread(const IngestThread&) = delete;
  IngestThread& operator=(const IngestThread&) = delete;

  // As Ingest's. Each ends the turn that is under way and blocks until the thread has done it.
  Result<void> Add(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                   std::shared_ptr<fleet::RankHealth> health);
  Result<void> Join(Rank of, SourceSpec::Sharer sharer, std::optional<std::uint64_t> known_to);
  bool Remove(Rank rank);
  void Stop();

  // Of every rank, for a scrape.
  [[nodiscard]] std::vector<std::pair<Rank, Target>> targets() const KVR_EXCLUDES(targets_mutex_);
  [[nodiscard]] std::size_t sources() const {
    return source_count_.load(std::memory_order_relaxed);
  }

 private:
  using Work = std::function<void()>;

  // Runs `work` on the thread and waits for it. kOverloaded or kCancelled when it will not run.
  Result<void> Do(Work work);
  void Run();
  // What is waiting now; work that comes meanwhile lets the sources have a turn first.
  void RunWork();
  // Gives the sources their turns, one at least, until somebody calls. True when there may be more
  // to do.
  [[nodiscard]] bool TurnSources();
  // Uses what waits in the sockets, for a limited time.
  void Drain();
  [[nodiscard]] Nanos TimeToNextDeadline() const;
  // Tells the ranks of a source that is asked for its events what the transport knows of it.
  void PassNoteOn(const Source& source);

  Result<void> AddHere(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                       std::shared_ptr<fleet::RankHealth> health);
  Result<void> JoinHere(Rank of, SourceSpec::Sharer sharer, std::optional<std::uint64_t> known_to);
  bool RemoveHere(Rank rank);
  // The source through which the rank is followed, or the end.
  using Sources = std::map<Rank, std::unique_ptr<Source>>;
  [[nodiscard]] Sources::iterator SourceOf(Rank rank);
  // Drops the ranks of this worker that no source names any more.
  void DropOrphanTargets(WorkerId worker);
  void PublishTargets() KVR_EXCLUDES(targets_mutex_);

  const Clock& clock_;
  IngestMetrics& metrics_;
  const Ingest::Options options_;
  const std::unique_ptr<net::EventPoller> poller_;
  BoundedQueue<Work> work_;
  std::atomic<bool> refusing_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> called_{false};  // there is work, or it is time to stop
  std::atomic<std::size_t> source_count_{0};

  // The thread's. `sources_` after `targets_`, which they read.
  Targets targets_;
  Sources sources_;   // by the first of its ranks
  Rank last_turn_{};  // whose turn came last; after a call the next one goes on

  mutable Mutex targets_mutex_;
  std::vector<std::pair<Rank, Target>> published_ KVR_GUARDED_BY(targets_mutex_);
  std::thread thread_;
};

}  // namespace kvr::ingest
