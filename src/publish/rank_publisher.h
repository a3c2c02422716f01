// One rank's events on their way to the routers: merged, numbered, kept and packed into messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/ids.h"
#include "publish/block_book.h"
#include "publish/coalescer.h"
#include "publish/event_ring.h"
#include "publish/mutation.h"
#include "publish/snapshot.h"
#include "publish/source_names.h"
#include "wire/router_event.h"

namespace kvr::publish {

// Where messages go. Called from within the calls of RankPublisher.
class Outlet {
 public:
  virtual ~Outlet() = default;
  // The envelope of message `sequence`, borrowed for the call. False when it was dropped: whoever
  // follows the stream sees a gap.
  virtual bool Send(std::uint64_t sequence, std::span<const std::byte> envelope) = 0;
};

// Events come from one or several sources in lists, as engines send them, and go out as messages of
// RouterEvents. Event ids begin with 1, message numbers with 0; neither is ever used twice, nor
// left out, whatever becomes of the message.
//
// Every list ends a message; so does a clear, and what is full. An event is split only when it
// alone is more than a message may have: it then goes out as several, each stored behind the one
// before.
//
// Not thread-safe. Allocates nothing once warm, but for the table of blocks as it grows.
class RankPublisher final : private MutationSink {
 public:
  // A longer session id is left out: an event of one block must fit any message.
  static constexpr std::size_t kSessionBytesMax = 1'024;
  static constexpr std::size_t kMessageBytesMin = 4'096;

  struct Options {
    Rank rank{};
    // Whose events are merged. With one the blocks keep its names, with more they are called by
    // their sequence hashes.
    std::size_t sources = 1;
    std::uint64_t publisher_id = 0;  // of this life of the publisher
    std::string topic = "kv-events";
    std::size_t message_events_max = 128;
    std::size_t message_blocks_max = 8'192;  // a larger event goes alone
    // Of the events of a message, encoded; so that so many messages have so many bytes at most,
    // wherever they wait. At least kMessageBytesMin.
    std::size_t message_bytes_max = 64u << 10;
    // A snapshot that was built is used again as long as no more than so many events came since.
    std::size_t snapshot_tail_max = 512;
    // Snapshots in memory: the last one built and older ones that somebody is still reading. At the
    // limit the last one is used with a longer tail, as far as its events are kept.
    std::size_t snapshots_max = 3;
    Coalescer::Options coalescer;
    BlockBook::Options book;
    EventRing::Options ring;

    [[nodiscard]] Result<void> Validate() const;
  };

  struct Stats {
    std::uint64_t received_events = 0;   // from the sources
    std::uint64_t published_events = 0;  // numbered
    std::uint64_t published_blocks = 0;  // in them, stored and removed
    std::uint64_t messages = 0;          // handed to the outlet
    std::uint64_t dropped_messages = 0;  // ... and refused by it
    std::uint64_t dropped_events = 0;    // in them
    std::uint64_t snapshots_built = 0;
    std::uint64_t snapshots_reused = 0;
    std::size_t blocks = 0;                           // held now
    std::array<std::size_t, kTierCount> blocks_in{};  // ... in each tier
    std::size_t ring_events = 0;                      // kept now
    std::size_t ring_bytes = 0;
    std::uint64_t last_event_id = 0;
    // Of several sources; see SourceNames.
    std::uint64_t unplaced_blocks = 0;
    std::uint64_t refused_blocks = 0;
    std::uint64_t unknown_names = 0;
  };

  // Where the stream is: what is before is numbered and sent.
  struct Position {
    std::uint64_t next_sequence = 0;  // of the next message
    std::uint64_t last_event_id = 0;
    std::size_t blocks = 0;  // held
    bool complete = true;    // all that the rank holds was published; see Snapshot
  };

  // What is needed to know all that the rank holds.
  struct SnapshotAnswer {
    std::shared_ptr<const Snapshot> base;
    std::string tail;  // events behind base->cursor, encoded
    std::size_t tail_events = 0;
    std::uint64_t last = 0;  // the last event that is in the answer
    Position position;       // the answer is of this moment
  };

  struct EventsAnswer {
    EventRing::Range range;
    std::string events;  // range.count encoded events
  };

  // `outlet` and `clock` must outlive the publisher.
  RankPublisher(const Options& options, const Clock& clock, Outlet& outlet);

  // The next event of a list of `source`, which is below Options::sources. It counts as the rank's,
  // whatever rank it names. Ends the list of another source that is under way.
  void Apply(std::size_t source, const Mutation& mutation);
  // The list of `source` is over, if one is under way.
  void EndList(std::size_t source);
  // Whether the source told of a block since it was last cleared.
  [[nodiscard]] bool Knows(std::size_t source) const { return book_.Knows(source); }
  [[nodiscard]] bool in_list() const { return list_of_.has_value(); }
  // When OnTick is due; none while nothing is pending.
  [[nodiscard]] std::optional<Nanos> deadline() const { return coalescer_.deadline(); }
  // Nothing within a list, which is told whole.
  void OnTick();
  // Sends all that is pending. For the end, and before somebody looks.
  void Flush();

  // Ask between lists. Both flush first, so that the numbers they name are those of what is known.
  // A snapshot is kOverloaded when Options::snapshots_max are being read and none can be used.
  EventsAnswer Query(std::optional<std::uint64_t> start, std::optional<std::uint64_t> end);
  Result<SnapshotAnswer> TakeSnapshot();
  // What is pending goes on waiting: it is behind the numbers, and only `blocks` counts it.
  [[nodiscard]] Position Locate() const;

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] Stats stats() const;
  [[nodiscard]] const Coalescer::Stats& coalescer_stats() const { return coalescer_.stats(); }
  [[nodiscard]] const BlockBook::Stats& book_stats() const { return book_.stats(); }

 private:
  // From the coalescer.
  void Take(const Mutation& mutation) override;
  // As two events of half the blocks.
  void TakeHalves(const Mutation& mutation);
  void SendMessage();
  [[nodiscard]] bool Complete() const;
  [[nodiscard]] bool CanReuse(std::uint64_t tail_max) const;
  Result<void> BuildSnapshot();

  // Between the names and the book.
  struct Renamed final : MutationSink {
    explicit Renamed(RankPublisher& publisher) : owner(publisher) {}
    void Take(const Mutation& mutation) override;
    RankPublisher& owner;
    std::size_t source = 0;
  };
  // Between the book and the coalescer.
  struct Merged final : MutationSink {
    explicit Merged(RankPublisher& publisher) : owner(publisher) {}
    void Take(const Mutation& mutation) override;
    RankPublisher& owner;
  };

  const Options options_;
  const Clock& clock_;
  Outlet& outlet_;
  Renamed renamed_;
  Merged merged_;
  std::vector<SourceNames> names_;  // none for a lone source
  BlockBook book_;
  Coalescer coalescer_;
  EventRing ring_;
  Stats stats_;
  Nanos now_{0};                        // of the call under way
  std::optional<std::size_t> list_of_;  // the source whose list is under way

  wire::RouterBatch scratch_;  // the event at hand
  std::string event_;          // ... encoded
  std::string events_;         // of the message under way, without the list's head
  std::size_t message_events_ = 0;
  std::size_t message_blocks_ = 0;
  std::string payload_;
  std::string envelope_;
  std::uint64_t next_sequence_ = 0;
  std::shared_ptr<const Snapshot> snapshot_;          // the last one built
  std::vector<std::weak_ptr<const Snapshot>> older_;  // that somebody may be reading
};

}  // namespace kvr::publish
