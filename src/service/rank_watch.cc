#include "service/rank_watch.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "model/rank_state.h"
#include "net/io_runtime.h"

namespace kvr::service {
namespace {

using fleet::RankCount;
using Status = fleet::RankHealth::Status;

std::string Name(Status status) {
  std::string name(RankStateName(status.state));
  if (status.reason != StateReason::kNone) {
    name += fmt::format(" ({})", StateReasonName(status.reason));
  }
  return name;
}

std::string NameOf(Rank rank) {
  return fmt::format("worker {} rank {}", Raw(rank.worker), rank.dp_rank);
}

bool IsWorse(Status before, Status now) {
  if (now.state == RankState::kExact) return false;
  return before.state == RankState::kExact || before.state == RankState::kDegraded ||
         now.state == RankState::kDegraded || now.reason == StateReason::kDisconnected ||
         now.reason == StateReason::kRefused;
}

// A first replay ends by itself, well or not.
bool IsPassing(Status before, Status now) {
  return now.reason == StateReason::kReplaying && before.state != RankState::kExact;
}

}  // namespace

RankWatch::RankWatch(const Options& options, const fleet::Catalog& catalog, const Clock& clock,
                     std::function<void(WorkerId)> on_loss)
    : options_(options), catalog_(catalog), clock_(clock), on_loss_(std::move(on_loss)) {}

net::Task<void> RankWatch::Run() {
  for (;;) {
    const bool slept = co_await net::Sleep(options_.interval);
    if (!slept) co_return;
    const std::vector<Note> notes = Look();
    for (const Note& note : notes)
      LogAt(note.warns ? LogLevel::kWarn : LogLevel::kInfo, "{}", note.text);
  }
}

std::vector<RankWatch::Note> RankWatch::Look() {
  const Nanos now = clock_.Now();
  const auto fleet = catalog_.snapshot();
  Forget(*fleet);
  std::vector<Note> notes;
  for (const auto& worker : fleet->workers) {
    for (const auto& entry : worker->ranks) {
      if (!entry.events) continue;  // nothing is expected of it
      Seen& seen = SeenOf(entry, now);
      const std::uint64_t losses = entry.health->count(RankCount::kDisconnects);
      if (losses > seen.losses && on_loss_) on_loss_(entry.rank.worker);
      seen.losses = losses;
      if (notes.size() >= options_.notes_max) continue;
      if (auto note = NoteOf(entry, seen, now)) notes.push_back(*std::move(note));
    }
  }
  return notes;
}

void RankWatch::Forget(const fleet::Snapshot& fleet) {
  if (version_ == fleet.version) return;
  version_ = fleet.version;
  std::erase_if(seen_, [&fleet](const auto& entry) { return fleet.Find(entry.first) == nullptr; });
}

RankWatch::Seen& RankWatch::SeenOf(const fleet::RankEntry& entry, Nanos now) {
  Seen& seen = seen_[entry.rank];
  if (seen.health == entry.health) return seen;
  seen = {};  // new, or registered anew
  seen.health = entry.health;
  seen.told = {RankState::kBlind, StateReason::kConnecting};
  seen.first = now;
  return seen;
}

std::optional<RankWatch::Note> RankWatch::NoteOf(const fleet::RankEntry& entry, Seen& seen,
                                                 Nanos now) {
  const fleet::RankHealth& health = *entry.health;
  const Status status = health.status();
  const std::string& endpoint = entry.events->endpoint;
  if (status.reason == StateReason::kConnecting || status.reason == StateReason::kNoEventSource) {
    if (seen.impatient || now - seen.first < options_.patience) return std::nullopt;
    seen.impatient = true;
    const std::string known = health.feed_note();
    return Note{
        entry.rank, true,
        fmt::format("{}: no connection to its event stream {} yet, {} s after the start; {}",
                    NameOf(entry.rank), endpoint,
                    std::chrono::duration_cast<std::chrono::seconds>(now - seen.first).count(),
                    known.empty() ? "is the host name right, and does the engine publish there?"
                                  : std::string_view(known))};
  }
  const std::uint64_t restarts = health.count(RankCount::kRestarts) - seen.restarts;
  const std::uint64_t losses = health.count(RankCount::kDisconnects) - seen.disconnects;
  const bool changed = status.state != seen.told.state || status.reason != seen.told.reason;
  if ((!changed && restarts + losses == 0) || IsPassing(seen.told, status)) return std::nullopt;
  // To be exact again is good news, whatever happened on the way.
  const bool mended = changed && status.state == RankState::kExact;
  const bool warns = !mended && (restarts + losses > 0 || IsWorse(seen.told, status));
  if (warns && seen.warned_at && now - *seen.warned_at < options_.warn_pause) return std::nullopt;
  std::string text = fmt::format("{}: {}", NameOf(entry.rank),
                                 changed ? fmt::format("{} -> {}", Name(seen.told), Name(status))
                                         : fmt::format("{} again", Name(status)));
  if (losses > 0) text += fmt::format(", lost streams: {}", losses);
  if (restarts > 0) text += fmt::format(", engine restarts: {}", restarts);
  const std::string detail = health.detail();
  if (status.state != RankState::kExact && !detail.empty()) text += ": " + detail;
  text += fmt::format("; events from {}", endpoint);
  seen.told = status;
  seen.restarts += restarts;
  seen.disconnects += losses;
  if (warns) seen.warned_at = now;
  return Note{entry.rank, warns, std::move(text)};
}

}  // namespace kvr::service
