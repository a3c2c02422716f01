#include "fleet/rank_health.h"

namespace kvr::fleet {

std::string RankHealth::detail() const {
  const Lock lock(mutex_);
  const Status now = status();
  if (feed_note_.empty() || now.state == RankState::kExact) return detail_;
  // There the detail only guesses.
  const bool guessed =
      now.reason == StateReason::kConnecting || now.reason == StateReason::kRefused;
  return guessed ? feed_note_ : detail_ + "; " + feed_note_;
}

std::string RankHealth::feed_note() const {
  const Lock lock(mutex_);
  return feed_note_;
}

void RankHealth::SetFeedNote(std::string_view note) {
  note = note.substr(0, kDetailBytesMax);
  const Lock lock(mutex_);
  if (feed_note_ != note) feed_note_ = note;
}

void RankHealth::SetStatus(Status status, std::string_view detail, Nanos now) {
  detail = detail.substr(0, kDetailBytesMax);
  const Lock lock(mutex_);
  const std::uint16_t packed = Pack(status);
  if (packed == status_.load(std::memory_order_relaxed) && detail == detail_) return;
  detail_ = detail;
  status_.store(packed, std::memory_order_relaxed);
  changed_at_.store(now.count(), std::memory_order_relaxed);
}

std::optional<StreamPosition> RankHealth::position() const {
  const Lock lock(mutex_);
  return position_;
}

void RankHealth::SetPosition(const std::optional<StreamPosition>& position) {
  const Lock lock(mutex_);
  position_ = position;
}

void RankHealth::SetWatermark(std::optional<std::uint64_t> watermark) {
  if (watermark) watermark_.store(*watermark, std::memory_order_relaxed);
  has_watermark_.store(watermark.has_value(), std::memory_order_relaxed);
}

}  // namespace kvr::fleet
