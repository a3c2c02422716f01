#include "service/agent/published_rank.h"

#include <utility>

namespace kvr::service {

Result<std::unique_ptr<PublishedRank>> PublishedRank::Open(const Options& options,
                                                           const Clock& clock) {
  net::EventPublisher::Options socket_options = options.socket;
  socket_options.publisher_id = options.publisher.publisher_id;
  socket_options.topic = options.publisher.topic;
  KVR_TRY(auto socket, net::EventPublisher::Create(socket_options));
  return std::unique_ptr<PublishedRank>(new PublishedRank(options, clock, std::move(socket)));
}

PublishedRank::PublishedRank(const Options& options, const Clock& clock,
                             std::unique_ptr<net::EventPublisher> socket)
    : rank_(options.publisher.rank),
      publisher_id_(options.publisher.publisher_id),
      socket_(std::move(socket)),
      publisher_(options.publisher, clock, *this) {}

void PublishedRank::Apply(std::size_t source, const PlacementEvent& event) {
  publish::Mutation mutation;
  mutation.event = event;
  const Lock lock(mutex_);
  publisher_.Apply(source, mutation);
}

void PublishedRank::EndList() {
  const Lock lock(mutex_);
  publisher_.EndList();
}

void PublishedRank::OnTick() {
  const Lock lock(mutex_);
  publisher_.OnTick();
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
  return publisher_.Query(start, end);
}

publish::RankPublisher::SnapshotAnswer PublishedRank::TakeSnapshot() {
  const Lock lock(mutex_);
  return publisher_.TakeSnapshot();
}

PublishedRank::Stats PublishedRank::stats() const {
  const Lock lock(mutex_);
  return {publisher_.stats(), publisher_.coalescer_stats(), publisher_.book_stats()};
}

// Never waits, so that it may be called with the lock held.
bool PublishedRank::Send(std::uint64_t sequence, std::span<const std::byte> envelope) {
  return socket_->TryPublishAt(sequence, envelope);
}

}  // namespace kvr::service
