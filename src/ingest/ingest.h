// Follows the event streams of all ranks and keeps their indexes true to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "fleet/rank_health.h"
#include "index/index_set.h"
#include "ingest/rank_stream.h"
#include "metrics/registry.h"
#include "model/ids.h"
#include "model/stream_position.h"
#include "net/event_socket.h"
#include "placement/event_translator.h"
#include "wire/event_decoder.h"

namespace kvr::ingest {

// One event stream and what it may feed.
struct SourceSpec {
  Rank rank;  // batches without a rank are its, also when it is not followed any more
  fleet::EventSource source;

  // The index holds blocks of `rank` and its sharers that somebody else knew, who had applied the
  // stream up to there. See RankStream::Adopt.
  struct Recovered {
    std::optional<StreamPosition> applied;
  };
  std::optional<Recovered> recovered;

  // Further ranks of the same worker that publish through this stream and have none of their own,
  // as far as they are known from the beginning; see Ingest::Join.
  struct Sharer {
    std::uint32_t dp_rank = 0;
    std::shared_ptr<fleet::RankHealth> health;
  };
  std::vector<Sharer> sharers;
};

// Thread-safe. Owns its threads: each has one poller and the sources of many workers; all sources
// of a worker stay on one thread, so that a rank's events come from one thread whichever stream
// carries them.
//
// A batch names its data-parallel rank. One that names another rank of the worker which is
// registered here (as a source or as a sharer) is applied to that rank; any other is rejected and
// counted. How a stream is kept in order and repaired is RankStream's.
class Ingest {
 public:
  struct Options {
    std::size_t threads = 2;
    std::size_t sources_max = 65'536;  // beyond: Add fails with kOverloaded
    std::size_t commands_max =
        4'096;  // Adds and Removes waiting for one thread; beyond: kOverloaded
    // What each socket of a source may have before the next source gets its turn: messages, and
    // time, which the message at hand may exceed. Whoever adds or removes a source ends a turn.
    std::size_t messages_per_turn = 256;
    Millis turn_max{10};
    // What has come when it is stopped is used, for so long at most. Nobody can ask TensorRT-LLM
    // for it again, and what an agent has read its routers are told.
    Millis drain_max{1'000};
    // Exposes dynamo_kvrouter_kv_cache_events_applied and _event_warnings beside our own names.
    bool reference_metrics = false;
    placement::UnmappedKeys unmapped_keys = placement::UnmappedKeys::kFold;
    placement::MemoryLimits memory;  // of each rank of each stream
    // What one message may bring. One of more events is refused, and so is each event that would
    // bring more blocks or tokens.
    struct MessageLimits {
      std::size_t events_max = wire::DecodeLimits{}.events_max;
      std::size_t blocks_max = wire::DecodeLimits{}.blocks_max;
      std::size_t tokens_max = wire::DecodeLimits{}.tokens_max;
    } message;
    // Of each event that cannot be decoded so many first bytes are kept for fleet::RejectedLog, at
    // most RejectedEvent::kBytesMax. They may hold tokens and cache salts, so none by default.
    std::size_t rejected_bytes_kept = 0;
    // Heap in which a rank's snapshot is gathered beside what is known, about 40 bytes a block. A
    // larger one is refused; see RankStream.
    std::size_t snapshot_bytes_max = std::size_t{512} << 20;
    RankStream::Options stream;

    [[nodiscard]] Result<void> Validate() const;
  };

  // `transport`, `clock` and `registry` must outlive the object.
  Ingest(net::EventTransport& transport, const Clock& clock, metrics::Registry& registry,
         const Options& options);
  ~Ingest();  // Stop()
  Ingest(const Ingest&) = delete;
  Ingest& operator=(const Ingest&) = delete;

  // What Add says of the endpoints by itself: kInvalidArgument.
  static Result<void> Check(const SourceSpec& spec);

  // Starts following `spec`. The ranks get their slots in `index` before the return; the engine
  // need not be up. `health` and `index` are shared with readers and kept until Remove.
  // kInvalidArgument: bad endpoint ("invalid ZMQ endpoint `X`: ...", "invalid replay endpoint `X`:
  // ..."). kAlreadyExists: the rank has a source. kOverloaded: a limit.
  // kCancelled: stopped. Blocks as Remove.
  Result<void> Add(SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                   std::shared_ptr<fleet::RankHealth> health);

  // From now on a rank is followed through the stream that is followed for `of`, another rank of
  // the worker, as if it had been a sharer from the beginning, if the stream has told nothing of it
  // yet. Else what was told is missing. With a replay endpoint the stream begins anew, and all its
  // ranks with it. Without, nobody can tell it again: the rank is degraded(no_replay_endpoint)
  // until the stream starts over, and the other ranks are not touched. `known_to`: the index holds
  // blocks of the rank that somebody else knew who had applied the stream up to there. They stay if
  // the stream began so, too, and are dropped if not. kNotFound: `of` is not followed.
  // kAlreadyExists, kOverloaded, kCancelled as Add. Blocks as Remove.
  Result<void> Join(Rank of, SourceSpec::Sharer sharer, std::optional<std::uint64_t> known_to);

  // Stops following the rank and drops its blocks from the index; a stream ends with the last of
  // its ranks. After the return no event changes any index in the name of that rank. False when it
  // was not followed. Blocks while the thread ends the message at hand and does what others asked
  // of it earlier.
  bool Remove(Rank rank);

  // Ends the threads, each when it has used what waits in its sockets, or after `drain_max`. Closes
  // all sockets. The blocks stay in their indexes. Idempotent.
  void Stop();

  [[nodiscard]] std::size_t sources() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::ingest
