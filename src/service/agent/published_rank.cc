#include "service/agent/published_rank.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "wire/snapshot_seal.h"

namespace kvr::service {

int PublishedRank::Options::send_high_water() const {
  const std::size_t full = send_bytes_max / publisher.message_bytes_max;
  const auto most = static_cast<std::size_t>(socket.send_high_water);
  return static_cast<int>(std::clamp<std::size_t>(full, 1, most));
}

Result<std::unique_ptr<PublishedRank>> PublishedRank::Open(const Options& options,
                                                           const Clock& clock) {
  net::EventPublisher::Options socket_options = options.socket;
  socket_options.publisher_id = options.publisher.publisher_id;
  socket_options.topic = options.publisher.topic;
  socket_options.send_high_water = options.send_high_water();
  socket_options.wait_kind = wire::kSnapshotWait;
  // So that those who read over the socket never find too many snapshots being read.
  socket_options.source_answers_max = options.publisher.snapshots_max;
  KVR_TRY(auto socket, net::EventPublisher::Create(socket_options));
  return std::make_unique<PublishedRank>(options.publisher, clock, std::move(socket));
}

PublishedRank::PublishedRank(const publish::RankPublisher::Options& options, const Clock& clock,
                             std::unique_ptr<net::EventPublisher> socket)
    : rank_(options.rank),
      publisher_id_(options.publisher_id),
      clock_(clock),
      publisher_(options, clock, *this),
      socket_(std::move(socket)) {
  socket_->SetAnswers(this);
}

void PublishedRank::Apply(std::size_t source, const PlacementEvent& event) {
  publish::Mutation mutation;
  mutation.event = event;
  const Lock lock(mutex_);
  if ((refused_ >> source & 1u) != 0 && event.kind != PlacementKind::kCleared) {
    ++refused_events_;
    return;
  }
  while (askers_ > 0 && !publisher_.in_list())
    asked_.Wait(mutex_);
  publisher_.Apply(source, mutation);
}

void PublishedRank::EndList(std::size_t source) {
  const Lock lock(mutex_);
  publisher_.EndList(source);
  if (!publisher_.in_list()) list_ended_.NotifyAll();
}

bool PublishedRank::Refuse(std::size_t source) {
  const Lock lock(mutex_);
  if ((refused_ >> source & 1u) != 0) return false;
  refused_ = static_cast<std::uint8_t>(refused_ | 1u << source);
  if (publisher_.Knows(source)) {
    publish::Mutation clear;
    clear.event.kind = PlacementKind::kCleared;
    publisher_.Apply(source, clear);
  }
  return true;
}

void PublishedRank::Accept(std::size_t source) {
  const Lock lock(mutex_);
  refused_ = static_cast<std::uint8_t>(refused_ & ~(1u << source));
}

bool PublishedRank::refuses() const {
  const Lock lock(mutex_);
  return refused_ != 0;
}

void PublishedRank::BeginAsking() {
  ++askers_;
  while (publisher_.in_list())
    list_ended_.Wait(mutex_);
}

void PublishedRank::EndAsking() {
  if (--askers_ == 0) asked_.NotifyAll();
}

Nanos PublishedRank::OnTick(Nanos most) {
  constexpr Nanos kSoon = Millis{1};
  if (!mutex_.try_lock()) return kSoon;
  publisher_.OnTick();
  const auto deadline = publisher_.deadline();
  mutex_.unlock();
  // What comes after now has as much time at least.
  if (!deadline) return most;
  return std::min(most, std::max(kSoon, *deadline - clock_.Now()));
}

void PublishedRank::Flush() {
  {
    const Lock lock(mutex_);
    publisher_.Flush();
  }
  socket_->Flush();
}

publish::RankPublisher::EventsAnswer PublishedRank::Query(std::optional<std::uint64_t> start,
                                                          std::optional<std::uint64_t> end) {
  const Lock lock(mutex_);
  BeginAsking();
  auto answer = publisher_.Query(start, end);
  EndAsking();
  return answer;
}

Result<publish::RankPublisher::SnapshotAnswer> PublishedRank::TakeSnapshot() {
  const Lock lock(mutex_);
  BeginAsking();
  auto answer = publisher_.TakeSnapshot();
  EndAsking();
  return answer;
}

publish::RankPublisher::Position PublishedRank::Locate() {
  const Lock lock(mutex_);
  BeginAsking();
  const auto position = publisher_.Locate();
  EndAsking();
  return position;
}

void PublishedRank::SetAnswers(net::AnswerSource* answers) {
  const Lock lock(answers_mutex_);
  answers_ = answers;
}

std::unique_ptr<net::AnswerParts> PublishedRank::Answer(std::string_view wanted) {
  const Lock lock(answers_mutex_);
  return answers_ == nullptr ? nullptr : answers_->Answer(wanted);
}

PublishedRank::Stats PublishedRank::stats() const {
  const auto socket = socket_->stats();
  const Lock lock(mutex_);
  return {publisher_.stats(), publisher_.coalescer_stats(), publisher_.book_stats(),
          refused_events_, socket};
}

// Never waits, so that it may be called with the lock held.
bool PublishedRank::Send(std::uint64_t sequence, std::span<const std::byte> envelope) {
  return socket_->TryPublishAt(sequence, envelope);
}

}  // namespace kvr::service
