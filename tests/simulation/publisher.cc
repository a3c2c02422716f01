#include "simulation/publisher.h"

#include <algorithm>
#include <utility>

#include "base/big_endian.h"
#include "ingest/message.h"

namespace kvr::simulation {
namespace {

constexpr Nanos kRepeatFirst = Millis(1'000);
constexpr int kRepeatsMax = 6;
constexpr int kPartMessages = 8;  // of an answer, at once

std::vector<std::byte> Bytes(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> Number(std::uint64_t number) {
  return Bytes(BigEndian(number));
}

}  // namespace

Publisher::Publisher(Network& network, const Options& options)
    : network_(network), options_(options), next_sequence_(options.first_sequence) {
  network_.Listen(*this);
}

Publisher::~Publisher() {
  network_.Close(*this);
}

std::uint64_t Publisher::Publish(std::span<const std::byte> payload) {
  const std::uint64_t sequence = next_sequence_;
  PublishAt(sequence, payload);
  return sequence;
}

void Publisher::PublishAt(std::uint64_t sequence, std::span<const std::byte> payload) {
  next_sequence_ = sequence + 1;
  queue_.push_back({sequence, Bytes(payload)});
  if (!held_) SendQueued();
}

bool Publisher::TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) {
  next_sequence_ = sequence + 1;
  Job job{sequence, Bytes(payload)};
  const bool room = queue_.size() < options_.queue_max;
  job.left_out = !room;
  if (!room) network_.Withhold(*this);
  if (queue_.size() < options_.queue_max + options_.replay_messages_max) {
    queue_.push_back(std::move(job));
    job = {};
  }
  if (last_lost_) keeps_all_ = false;
  last_lost_.reset();
  if (!job.payload.empty()) last_lost_ = std::move(job);
  if (!held_) SendQueued();
  return room;
}

std::uint64_t Publisher::Lose(std::span<const std::byte> payload, bool keep_for_replay) {
  const std::uint64_t sequence = next_sequence_++;
  network_.Withhold(*this);
  if (keep_for_replay) {
    Keep({sequence, Bytes(payload)});
  } else {
    keeps_all_ = false;
  }
  return sequence;
}

void Publisher::SendRaw(std::span<const std::span<const std::byte>> frames) {
  Message message;
  for (const auto& frame : frames)
    message.push_back(Bytes(frame));
  network_.Broadcast(*this, message);
}

void Publisher::SetHeld(bool held) {
  held_ = held;
  if (!held_) SendQueued();
}

void Publisher::SendQueued() {
  if (last_lost_) queue_.push_back(std::move(*last_lost_));
  last_lost_.reset();
  // The last of all goes out, though it found the queue full: it shows that others did not.
  if (!queue_.empty()) queue_.back().left_out = false;
  for (Job& job : queue_)
    SendOne(job);
  queue_.clear();
}

void Publisher::SendOne(Job& job) {
  newest_ = job;
  if (!job.left_out) SendNewest(true);
  Keep(std::move(job));
}

void Publisher::SendNewest(bool first_time) {
  const bool room = network_.Broadcast(*this, LiveFrames(newest_));
  if (!first_time) return;
  if (!room) {
    ++stats_.at_mark;
    repeats_left_ = options_.repeats ? kRepeatsMax : 0;
  }
  repeat_pause_ = kRepeatFirst;
  PlanRepeat();
}

void Publisher::PlanRepeat() {
  ++repeat_plan_;
  if (repeats_left_ == 0) return;
  network_.agenda().After(repeat_pause_,
                          [this, plan = repeat_plan_, alive = std::weak_ptr<bool>(alive_)] {
                            if (alive.expired() || plan != repeat_plan_) return;
                            --repeats_left_;
                            ++stats_.repeats;
                            repeat_pause_ *= 2;
                            SendNewest(false);
                            PlanRepeat();
                          });
}

void Publisher::Keep(Job job) {
  ring_.push_back(std::move(job));
  if (ring_.size() <= options_.replay_messages_max) return;
  ring_.pop_front();
  keeps_all_ = false;
}

void Publisher::Answer(const std::weak_ptr<Link>& to, std::uint64_t first,
                       const std::string& wanted) {
  if (silent_ || options_.replay_endpoint.empty()) return;
  ++stats_.replay_requests;
  Reply reply;
  reply.to = to;
  reply.next = first;
  reply.complete = ring_.empty() || ring_.back().sequence < first;
  if (!ring_.empty()) reply.last = ring_.back().sequence;
  if (!wanted.empty()) {
    if (answers_ != nullptr) reply.parts = answers_->Answer(wanted);
    if (!reply.parts) return;
  }
  if (network_.Chance(network_.faults.cut_answer)) reply.left = network_.rng().Below(12);
  Advance(std::move(reply));
}

void Publisher::Advance(Reply reply) {
  for (int i = 0; i < kPartMessages; ++i) {
    if (silent_ || reply.to.expired()) return;
    if (reply.left && (*reply.left)-- == 0) return;
    if (!(reply.parts ? SendPart(reply) : SendNext(reply))) return;
  }
  const bool slow = network_.Chance(network_.faults.slow_answer);
  const Nanos pause = slow ? Millis(network_.rng().Below(1'500)) : Nanos{10'000};
  network_.agenda().After(
      pause, [this, reply = std::move(reply), alive = std::weak_ptr<bool>(alive_)]() mutable {
        if (!alive.expired()) Advance(std::move(reply));
      });
}

bool Publisher::SendNext(Reply& reply) {
  const auto kept = std::lower_bound(
      ring_.begin(), ring_.end(), reply.next,
      [](const Job& job, std::uint64_t sequence) { return job.sequence < sequence; });
  if (reply.complete || kept == ring_.end() || kept->sequence > reply.last) {
    network_.Reply(reply.to, ReplayFrames(ingest::kEndSequence, {}));
    return false;
  }
  // The first finds room.
  const bool hole = reply.number++ > 0 && network_.Chance(network_.faults.hole_in_answer);
  if (!hole || !holes_.insert(kept->sequence).second) {
    network_.Reply(reply.to, ReplayFrames(kept->sequence, kept->payload));
  }
  reply.complete = kept->sequence >= reply.last;
  reply.next = kept->sequence + 1;
  return true;
}

bool Publisher::SendPart(Reply& reply) {
  std::string kind;
  std::string body;
  if (!reply.parts->Next(kind, body)) return false;
  const std::uint64_t number = reply.number++;
  if (network_.Chance(network_.faults.hole_in_answer)) return true;
  network_.Reply(reply.to, {{},
                            Bytes(std::as_bytes(std::span(kind))),
                            Number(number),
                            Bytes(std::as_bytes(std::span(body)))});
  return true;
}

Message Publisher::LiveFrames(const Job& job) const {
  Message message{Bytes(std::as_bytes(std::span(options_.topic)))};
  if (!options_.publisher_id) {
    message.push_back(Number(job.sequence));
    message.push_back(job.payload);
    return message;
  }
  message.push_back(Number(*options_.publisher_id));
  message.push_back(Number(job.sequence));
  std::vector<std::byte> frame{std::byte{1}};
  for (std::size_t i = 0; i < 4; ++i)
    frame.push_back(static_cast<std::byte>(job.payload.size() >> (24 - 8 * i)));
  frame.insert(frame.end(), job.payload.begin(), job.payload.end());
  message.push_back(std::move(frame));
  return message;
}

Message Publisher::ReplayFrames(std::uint64_t sequence, std::span<const std::byte> payload) const {
  Message message{{}};
  if (options_.layout == net::ReplayLayout::kTopicSeqPayload) {
    message.push_back(Bytes(std::as_bytes(std::span(options_.topic))));
  }
  const bool end = sequence == ingest::kEndSequence;
  if (end && options_.publisher_id) message.push_back(Number(*options_.publisher_id));
  message.push_back(Number(sequence));
  message.push_back(Bytes(payload));
  return message;
}

}  // namespace kvr::simulation
