// Tells operators what was rejected: keeps it with the rank, and says so in the log now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "fleet/rank_health.h"
#include "model/ids.h"
#include "placement/event_translator.h"
#include "wire/decode_error.h"

namespace kvr::ingest {

// A message as its stream handed it on.
struct StreamMessage {
  std::optional<std::uint64_t> sequence;
  std::span<const std::byte> payload;
};

// Of one stream; used by its thread. A line in the log comes at most once in kLogInterval for each
// rank and reason, and says how many events it stands for.
class RejectNotes {
 public:
  static constexpr Nanos kLogInterval = std::chrono::seconds(60);

  // Of each rejected event that could not be decoded the first `bytes_kept` bytes are kept; 0:
  // none. They may hold tokens and cache salts. `clock` must outlive the notes.
  RejectNotes(const Clock& clock, std::size_t bytes_kept)
      : clock_(clock), bytes_kept_(bytes_kept) {}

  // The dropped events of `batch`, which `translator` has just made of `message`: all are counted,
  // and of each reason one at least is kept and told.
  void NoteDropped(Rank rank, fleet::RankHealth& health, const StreamMessage& message,
                   const placement::PlacementBatch& batch,
                   const placement::EventTranslator& translator);
  // A whole message. `reason` is static.
  void NoteMessage(Rank rank, fleet::RankHealth& health, const StreamMessage& message,
                   std::string_view reason, std::string_view detail,
                   std::optional<std::size_t> offset = {});

 private:
  struct Quiet {
    Nanos until{};
    std::uint64_t events = 0;  // not told yet
  };

  void Log(Rank rank, std::string_view reason, std::string_view detail, std::uint64_t events,
           LogLevel level);

  const Clock& clock_;
  const std::size_t bytes_kept_;
  std::map<std::pair<std::uint32_t, std::string_view>, Quiet> quiet_;  // by rank and reason
};

}  // namespace kvr::ingest
