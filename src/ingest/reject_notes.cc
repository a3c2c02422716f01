#include "ingest/reject_notes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "placement/drop_text.h"

namespace kvr::ingest {
namespace {

std::string FirstBytes(std::span<const std::byte> payload, std::size_t begin, std::size_t count) {
  const auto from = payload.subspan(std::min(begin, payload.size()));
  const auto part = from.first(std::min(count, from.size()));
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

// Which of the events are kept: the last of each reason, so that a flood of one hides no other;
// then the last ones, as far as there is room. In their order.
std::vector<std::size_t> WorthKeeping(std::span<const placement::DroppedEvent> dropped) {
  constexpr std::size_t kMax = fleet::RejectedLog::kEventsMax;
  static_assert(placement::kDropReasonCount <= kMax);
  std::array<bool, placement::kDropReasonCount> told{};
  std::vector<std::size_t> firsts;
  for (std::size_t i = dropped.size(); i-- > 0;) {
    bool& known = told[static_cast<std::size_t>(dropped[i].reason)];
    if (!known) firsts.push_back(i);
    known = true;
  }
  std::vector<std::size_t> kept = firsts;
  for (std::size_t i = dropped.size(); i-- > 0 && kept.size() < kMax;) {
    if (!std::binary_search(firsts.begin(), firsts.end(), i, std::greater<>())) kept.push_back(i);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace

void RejectNotes::NoteDropped(Rank rank, fleet::RankHealth& health, const StreamMessage& message,
                              const placement::PlacementBatch& batch,
                              const placement::EventTranslator& translator) {
  if (batch.dropped.empty()) return;
  std::array<std::uint64_t, placement::kDropReasonCount> counts{};
  for (const placement::DroppedEvent& dropped : batch.dropped)
    ++counts[static_cast<std::size_t>(dropped.reason)];
  for (std::size_t i = 0; i < counts.size(); ++i)
    health.rejected().Count(placement::kDropReasonNames[i], counts[i]);

  const wire::EventBatch& decoded = translator.decoded();
  for (const std::size_t i : WorthKeeping(batch.dropped)) {
    const placement::DroppedEvent& dropped = batch.dropped[i];
    fleet::RejectedEvent event;
    event.reason = placement::DropReasonName(dropped.reason);
    event.detail = placement::DropDetail(dropped, decoded, translator.options().block_size);
    event.sequence = message.sequence;
    event.index = dropped.index;
    event.payload_bytes = message.payload.size();
    event.received = clock_.WallTime();
    const auto bad =
        std::find_if(decoded.bad.begin(), decoded.bad.end(),
                     [&](const wire::BadEvent& each) { return each.index == dropped.index; });
    if (bad != decoded.bad.end()) {
      event.offset = bad->error.offset;
      event.bytes = FirstBytes(message.payload, bad->begin, bytes_kept_);
    }
    std::uint64_t& untold = counts[static_cast<std::size_t>(dropped.reason)];
    if (untold > 0) {
      Log(rank, event.reason, event.detail, untold,
          placement::IsRoutine(dropped.reason) ? LogLevel::kDebug : LogLevel::kWarn);
      untold = 0;
    }
    health.rejected().Keep(std::move(event));
  }
}

void RejectNotes::NoteMessage(Rank rank, fleet::RankHealth& health, const StreamMessage& message,
                              std::string_view reason, std::string_view detail,
                              std::optional<std::size_t> offset) {
  health.rejected().Count(reason);
  fleet::RejectedEvent event;
  event.reason = reason;
  event.detail = detail;
  event.sequence = message.sequence;
  event.offset = offset;
  event.payload_bytes = message.payload.size();
  event.received = clock_.WallTime();
  event.bytes = FirstBytes(message.payload, 0, bytes_kept_);
  Log(rank, reason, detail, 1, LogLevel::kWarn);
  health.rejected().Keep(std::move(event));
}

void RejectNotes::Log(Rank rank, std::string_view reason, std::string_view detail,
                      std::uint64_t events, LogLevel level) {
  if (!LogEnabled(level)) return;
  const Nanos now = clock_.Now();
  Quiet& quiet = quiet_[{rank.dp_rank, reason}];
  quiet.events += events;
  if (now < quiet.until) return;
  const std::string_view open = detail.empty() ? "" : " (";
  const std::string_view close = detail.empty() ? "" : ")";
  LogAt(level, "worker {} dp_rank {}: rejected {} events since the last such line: {}{}{}{}",
        Raw(rank.worker), rank.dp_rank, quiet.events, reason, open, detail, close);
  quiet = {now + kLogInterval, 0};
}

}  // namespace kvr::ingest
