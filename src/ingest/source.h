// One event stream at work: its sockets, its order, its translator, and the index it feeds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "fleet/rank_health.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/ingest_metrics.h"
#include "ingest/rank_snapshot.h"
#include "ingest/rank_stream.h"
#include "ingest/reject_notes.h"
#include "model/ids.h"
#include "net/event_socket.h"
#include "placement/event_translator.h"

namespace kvr::ingest {

// Where the events of one rank go.
struct Target {
  std::shared_ptr<index::PartitionIndex> index;
  RankSlot slot{};
  std::shared_ptr<fleet::RankHealth> health;
};

// The ranks that are known to one thread. The sources of the thread read it at each batch, so an
// erased rank gets nothing more, whichever stream speaks of it.
using Targets = std::map<Rank, Target>;

// When a source hands the thread back although more has arrived.
struct TurnLimits {
  std::size_t messages_max = 1;               // of each socket
  Nanos time_max = std::chrono::seconds(1);   // of each socket; the message at hand may exceed it
  const std::atomic<bool>* called = nullptr;  // set when somebody else needs the thread; or null
};

// Belongs to one thread. Not thread-safe.
class Source final : private StreamSink {
 public:
  // Opens the subscription. `spec.rank` is in `targets`. `poller`, `targets`, `metrics` and `clock`
  // must outlive the source. kInvalidArgument and kIo as EventPoller::Subscribe.
  static Result<std::unique_ptr<Source>> Open(SourceSpec spec,
                                              std::shared_ptr<fleet::RankHealth> health,
                                              const Ingest::Options& options,
                                              net::EventPoller& poller, const Targets& targets,
                                              IngestMetrics& metrics, const Clock& clock);
  ~Source() override;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Takes messages of each socket, one at least if there is one. True when there may be more.
  bool Turn(const TurnLimits& limits);
  // When Turn is due at the latest although nothing arrives.
  [[nodiscard]] std::optional<Nanos> deadline() const { return stream_->deadline(); }

  // Another rank of the worker, which is in `targets`, publishes through the stream, too; see
  // Ingest::Join. On an error, which is of a new subscription, nothing has changed.
  Result<void> Join(Rank rank, std::shared_ptr<fleet::RankHealth> health, bool adopted);
  // Whether one who knew the rank up to that message of the stream knew all that was told of it.
  [[nodiscard]] bool GoesOnFrom(Rank rank, std::uint64_t message) const;
  // The rank gets nothing any more. It is not the only one.
  void Leave(Rank rank);

  [[nodiscard]] const SourceSpec& spec() const { return spec_; }
  [[nodiscard]] const RankStream& stream() const { return *stream_; }
  // That publish through the stream: at least one, in the order in which they joined.
  [[nodiscard]] std::vector<Rank> ranks() const;

 private:
  Source(SourceSpec spec, std::shared_ptr<fleet::RankHealth> health, const Ingest::Options& options,
         net::EventPoller& poller, const Targets& targets, std::uint32_t block_size,
         IngestMetrics& metrics, const Clock& clock);

  struct Follower {
    Rank rank;
    std::shared_ptr<fleet::RankHealth> health;
  };
  // What is wrong with the events of one rank although none is missing.
  struct Defect {
    // What heals: as the translator says, and, of a stream that brought nothing of its own rank
    // yet, whose events it brings.
    std::uint32_t wrong_block_size = 0;
    std::optional<placement::UnclearGroup> unclear_group;
    std::string foreign;
    // What stays until the stream starts over or the engine clears the rank.
    StateReason reason = StateReason::kNone;
    std::string detail;
  };

  Outcome Apply(std::uint64_t sequence, std::span<const std::byte> payload) override;
  [[nodiscard]] std::string_view undecodable() const override { return undecodable_; }
  void Clear() override;
  void NoteLoss() override;
  void StartReplay(std::uint64_t from) override;
  void StopReplay() override;
  void StartSnapshot() override;
  void AskState() override;
  bool BeginSnapshot(std::uint64_t blocks) override;
  Piece AddPiece(std::span<const std::byte> events) override;
  [[nodiscard]] std::uint64_t gathered() const override { return snapshot_->blocks(); }
  void Swap(std::uint64_t last_event) override;
  bool Empties(std::span<const std::byte> payload) override;
  void SetState(RankState state, StateReason reason, std::string_view detail) override;

  void StartStream();
  // Begins as at first, with another subscription.
  Result<void> Restart();
  // The rank, which has missed something, has the side groups of the others, all empty.
  void DeclareGroups(Rank rank);
  // The stream has told something of a rank, and nobody got it.
  void NoteMissed(std::uint32_t dp_rank);
  [[nodiscard]] bool Missed(Rank rank) const {
    return missed_any_ || missed_.contains(rank.dp_rank);
  }
  // Sends a request over a fresh socket: where to begin and, unless it is empty, what is wanted.
  void Request(std::uint64_t from, std::string_view wanted);
  // What became of an event that was handed to the index.
  void NoteApplied(const PlacementEvent& event, const index::ApplyResult& result);
  // The target of a rank of which a message speaks; null, and noted, when there is none.
  const Target* Feed(Rank rank, const StreamMessage& message);
  // `target` is that of `rank`, which most events are of.
  void ApplyEvents(Rank rank, const Target* target, const StreamMessage& message);
  // Finds events that were lost before anybody numbered their message.
  void CheckNumbers(Rank rank);
  // Counts what became of each event of the batch, which is of `rank`.
  void CountEvents(Rank rank);
  // Event numbers below `next` are dealt with, those not yet counted as `fate` says.
  void PassEventsTo(std::uint64_t next, fleet::EventFate fate);
  [[nodiscard]] fleet::RankLedger* LedgerOf(Rank rank) const;
  void ForgetCounts();
  // The same of what the side groups of one rank hold.
  void ForgetSideCounts(Rank rank);
  // ... of the ranks whose removals may be among what the batch, which is of `rank`, lost.
  void ForgetLost(Rank rank);
  // Of every rank that got events. `drop_groups`: what its cache groups are is forgotten, too.
  void ClearBlocks(bool drop_groups);
  // ... which they were named wrongly by.
  void ForgetBlocks();
  void NoteDropped(Rank rank);
  // What the batch says of the rank as a whole.
  void NoteRank(Rank rank);
  // The message, or an event of it, names a rank that is not registered.
  void NoteForeign(const StreamMessage& message, std::uint32_t dp_rank);
  // What came is of `whose`, which is nothing of ours.
  void NoteSilence(std::string_view whose, std::string_view advice);
  // The live message at hand was refused for its frames.
  void NoteFraming();
  // What the rank is told is wrong: its state is degraded until the stream starts over.
  void ForgetDefect(Rank rank);
  void NoteDefect(Rank rank, StateReason reason, std::string_view detail);
  void NoteDefectOfAll(StateReason reason, std::string_view detail);
  [[nodiscard]] bool HasDefect(Rank rank) const;
  void PublishStatus();
  void PublishStats();

  const SourceSpec spec_;
  net::EventPoller& poller_;
  const Targets& targets_;
  IngestMetrics& metrics_;
  const Clock& clock_;
  std::vector<Follower> followers_;  // the owner and the sharers, as long as they stay
  // Ranks of which the stream told something since the last clear that nobody got.
  std::set<std::uint32_t> missed_;
  bool missed_any_ = false;  // it may be any
  bool adopted_ = false;     // what was told first was applied by somebody else
  std::unique_ptr<net::EventSocket> live_;
  std::unique_ptr<net::EventSocket> replay_;  // of the request that is under way
  std::optional<RankSnapshot> snapshot_;      // ... as far as it came
  const std::size_t snapshot_bytes_max_;
  net::Frames frames_;
  placement::EventTranslator translator_;
  placement::PlacementBatch batch_;
  std::vector<RankSlot> touched_;  // by the message at hand
  std::string_view undecodable_;   // why the last message was that was
  RejectNotes notes_;
  std::set<Rank> fed_;              // ranks that got events since the last clear
  std::map<Rank, Defect> defects_;  // found since the last clear
  std::uint64_t next_event_ = 1;    // of a publisher of RouterEvents
  // That number is what the next event must have: nothing was lost since, nor is of others.
  bool numbered_ = false;
  bool shares_numbers_ = false;  // the stream has events of others, which may number theirs apart
  const RankStream::Options stream_options_;
  StreamStats published_;
  placement::TranslatorStats translated_;  // as published
  // Of the stream.
  fleet::RankHealth::Status status_;
  std::string detail_;
  std::unique_ptr<RankStream> stream_;  // never null; it calls this object from its constructor
};

}  // namespace kvr::ingest
