// Tells the log when the picture of a rank gets worse and when it is exact again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "fleet/rank_health.h"
#include "model/ids.h"
#include "net/task.h"

namespace kvr::service {

// Compares every rank's health with what was last said of it. What came and went between two looks
// is told by the counts of restarts and lost streams. Used by one task.
class RankWatch {
 public:
  struct Options {
    Millis interval{1'000};      // between two looks
    Millis warn_pause{10'000};   // between two warnings about one rank; what changes meanwhile is
                                 // told together
    Millis patience{10'000};     // for a first connection; then it is warned of once
    std::size_t notes_max = 32;  // of one look; the others are told by the next ones
  };

  // A line for the log.
  struct Note {
    Rank rank;
    bool warns = false;  // else it is information
    std::string text;
  };

  // `catalog` and `clock` must outlive the watch. `on_loss` hears of each worker whose stream was
  // lost since the look before.
  RankWatch(const Options& options, const fleet::Catalog& catalog, const Clock& clock,
            std::function<void(WorkerId)> on_loss = nullptr);

  [[nodiscard]] std::vector<Note> Look();

  // Looks and logs until the task is cancelled.
  net::Task<void> Run();

 private:
  struct Seen {
    std::shared_ptr<const fleet::RankHealth> health;
    fleet::RankHealth::Status told;
    std::uint64_t restarts = 0;     // told
    std::uint64_t disconnects = 0;  // told
    std::uint64_t losses = 0;       // disconnects that on_loss was told
    Nanos first{};                  // when the rank was first seen
    std::optional<Nanos> warned_at;
    bool impatient = false;  // said that there never was a connection
  };

  void Forget(const fleet::Snapshot& fleet);
  Seen& SeenOf(const fleet::RankEntry& entry, Nanos now);
  [[nodiscard]] std::optional<Note> NoteOf(const fleet::RankEntry& entry, Seen& seen, Nanos now);

  const Options options_;
  const fleet::Catalog& catalog_;
  const Clock& clock_;
  const std::function<void(WorkerId)> on_loss_;
  std::uint64_t version_ = 0;  // of the catalog
  std::map<Rank, Seen> seen_;  // at most one a rank of the catalog
};

}  // namespace kvr::service
