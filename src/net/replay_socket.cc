#include "net/replay_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/big_endian.h"
#include "net/zmq_publishing.h"

namespace kvr::net {
namespace {

constexpr std::uint64_t kEndMarker = ~std::uint64_t{0};
constexpr int kPartMessages = 64;          // to one peer in one turn
constexpr int kSourceParts = 16;           // ... which have to be made
constexpr int kTurnRequests = 256;         // read in one turn
constexpr int kUnreadRequests = 64;        // of one peer; beyond, its connection is not read
constexpr std::int64_t kPartBytes = 1024;  // of a request; the handshake's identity is 255 at most

}  // namespace

ReplaySocket::ReplaySocket(zmq::context_t& context, const EventPublisher::Options& options)
    : options_(options), socket_(context, zmq::socket_type::router) {
  socket_.set(zmq::sockopt::sndhwm, std::max(options.replay_high_water, 1));
  socket_.set(zmq::sockopt::rcvhwm, kUnreadRequests);
  socket_.set(zmq::sockopt::maxmsgsize, kPartBytes);
  // Without it a peer at its mark loses messages in silence; with it we are told, and wait.
  socket_.set(zmq::sockopt::router_mandatory, true);
  BindSocket(socket_, *options.replay_endpoint, Millis{0});
  endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
  fd_ = static_cast<int>(socket_.get(zmq::sockopt::fd));
}

void ReplaySocket::Keep(std::uint64_t sequence, zmq::message_t& payload) {
  ring_bytes_ += payload.size();
  ring_.emplace_back();
  ring_.back().sequence = sequence;
  ring_.back().payload.copy(payload);
  // An answer without messages says that nothing was published.
  while (ring_.size() > 1 &&
         (ring_.size() > options_.replay_messages_max || ring_bytes_ > options_.replay_bytes_max)) {
    ring_bytes_ -= ring_.front().payload.size();
    ring_.pop_front();
  }
}

void ReplaySocket::Forget() {
  ring_.clear();
  ring_bytes_ = 0;
  for (Answer& answer : answers_)
    answer.complete = true;
}

bool ReplaySocket::Turn(Nanos now, bool silent, AnswerSource* source) {
  std::string peer;
  std::optional<Request> request;
  for (int i = 0; i < kTurnRequests && TakeRequest(peer, request); ++i) {
    if (!request || silent) continue;
    if (request->wanted.empty() || source != nullptr) {
      Accept(std::move(peer), *std::move(request), now);
    }
  }
  if (silent) answers_.clear();
  bool more = false;
  std::erase_if(answers_, [&](Answer& answer) {
    const Step step = Advance(answer, now, source);
    more = more || step == Step::kMoved;
    if (step == Step::kOver) answer.parts.reset();
    return step == Step::kOver;
  });
  // Sending may have taken note of a request, of which the descriptor then says nothing.
  return more || (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
}

bool ReplaySocket::TakeRequest(std::string& peer, std::optional<Request>& request) {
  // [identity, "", start] or [identity, "", start, wanted]; anything else is ignored, as vLLM does
  // with all but the first.
  std::array<zmq::message_t, 4> parts;
  std::size_t count = 0;
  zmq::message_t part;
  do {
    if (zmq_msg_recv(part.handle(), socket_.handle(), ZMQ_DONTWAIT) < 0) return false;
    if (count < parts.size()) parts[count].copy(part);
    ++count;
  } while (part.more());
  request.reset();
  if (count < 3 || count > parts.size() || !parts[1].empty() || parts[2].size() != 8) return true;
  ++stats_.requests;
  peer.assign(static_cast<const char*>(parts[0].data()), parts[0].size());
  request = Request{};
  for (std::size_t i = 0; i < 8; ++i)
    request->start = request->start << 8 | static_cast<const std::uint8_t*>(parts[2].data())[i];
  request->wanted.assign(static_cast<const char*>(parts[3].data()), parts[3].size());
  return true;
}

void ReplaySocket::Accept(std::string peer, Request request, Nanos now) {
  const auto known = std::ranges::find(answers_, peer, &Answer::peer);
  if (known != answers_.end()) {
    known->again = std::move(request);
    return;
  }
  if (answers_.size() >= std::max<std::size_t>(options_.replay_peers_max, 1)) {
    answers_.erase(std::ranges::min_element(answers_, {}, &Answer::moved));
    ++stats_.given_up;
  }
  Answer& answer = answers_.emplace_back();
  answer.peer = std::move(peer);
  answer.moved = now;
  Begin(answer, std::move(request));
}

void ReplaySocket::Begin(Answer& answer, Request request) {
  answer.left.reset();
  if (cuts_ > 0 && request.wanted.empty()) {
    --cuts_;
    answer.left = cut_after_;
  }
  answer.wanted = std::move(request.wanted);
  answer.next = answer.wanted.empty() ? request.start : 0;
  answer.complete = ring_.empty() || ring_.back().sequence < request.start;
  if (!ring_.empty()) answer.last = ring_.back().sequence;
}

ReplaySocket::Step ReplaySocket::Advance(Answer& answer, Nanos now, AnswerSource* source) {
  if (answer.parts == nullptr && answer.wanted.empty()) return AdvanceMessages(answer, now);
  return AdvanceParts(answer, now, source);
}

ReplaySocket::Step ReplaySocket::AdvanceMessages(Answer& answer, Nanos now) {
  for (int i = 0; i < kPartMessages; ++i) {
    if (answer.left == 0) return Step::kOver;
    // What has left the ring meanwhile is left out.
    const auto kept = std::ranges::lower_bound(ring_, answer.next, {}, &Kept::sequence);
    const bool end = answer.complete || kept == ring_.end() || kept->sequence > answer.last;
    const Sent sent = end ? Send(answer.peer, kEndMarker, nullptr)
                          : Send(answer.peer, kept->sequence, &kept->payload);
    if (sent == Sent::kFull) return Stuck(answer, now);
    if (sent == Sent::kGone) return Step::kOver;
    answer.moved = now;
    if (answer.left) --*answer.left;
    if (end) return End(answer);
    answer.complete = kept->sequence >= answer.last;
    answer.next = kept->sequence + 1;
  }
  return Step::kMoved;
}

ReplaySocket::Step ReplaySocket::AdvanceParts(Answer& answer, Nanos now, AnswerSource* source) {
  if (answer.parts == nullptr) {
    const auto begun = [](const Answer& other) { return other.parts != nullptr; };
    if (static_cast<std::size_t>(std::ranges::count_if(answers_, begun)) >=
        std::max<std::size_t>(options_.source_answers_max, 1)) {
      return TellToWait(answer, now);
    }
    if (source != nullptr) answer.parts = source->Answer(answer.wanted);
    answer.wanted.clear();
    if (answer.parts == nullptr || !answer.parts->Next(answer.kind, answer.body)) {
      return End(answer);
    }
    ++stats_.source_answers;
  }
  for (int i = 0; i < kSourceParts; ++i) {
    const Sent sent = SendPartOf(answer, answer.kind, answer.next, answer.body);
    if (sent == Sent::kFull) return Stuck(answer, now);
    if (sent == Sent::kGone) return Step::kOver;
    answer.moved = now;
    stats_.source_answer_bytes += answer.body.size();
    ++answer.next;
    if (!answer.parts->Next(answer.kind, answer.body)) return End(answer);
  }
  return Step::kMoved;
}

ReplaySocket::Step ReplaySocket::TellToWait(Answer& answer, Nanos now) {
  if (now - answer.moved < options_.wait_interval) return Step::kStuck;
  const Sent sent = SendPartOf(answer, options_.wait_kind, 0, {});
  if (sent == Sent::kGone) return Step::kOver;
  answer.moved = now;
  return Step::kStuck;
}

ReplaySocket::Step ReplaySocket::Stuck(const Answer& answer, Nanos now) {
  if (now - answer.moved < options_.replay_stall_max) return Step::kStuck;
  ++stats_.given_up;
  return Step::kOver;
}

ReplaySocket::Step ReplaySocket::End(Answer& answer) {
  answer.parts.reset();
  if (!answer.again) return Step::kOver;
  Request next = *std::move(answer.again);
  answer.again.reset();
  Begin(answer, std::move(next));
  return Step::kMoved;
}

ReplaySocket::Sent ReplaySocket::SendPartOf(const Answer& answer, std::string_view kind,
                                            std::uint64_t number, std::string_view body) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  if (!SendPart(socket_, bytes(answer.peer), true)) {
    return zmq_errno() == EAGAIN ? Sent::kFull : Sent::kGone;
  }
  SendPart(socket_, {}, true);
  SendPart(socket_, bytes(kind), true);
  SendPart(socket_, BigEndian(number), true);
  SendPart(socket_, bytes(body), false);
  return Sent::kYes;
}

ReplaySocket::Sent ReplaySocket::Send(const std::string& peer, std::uint64_t sequence,
                                      zmq::message_t* payload) {
  // Only this part can be refused: a peer that has room for it has room for the message.
  if (!SendPart(socket_, std::as_bytes(std::span(peer)), true)) {
    return zmq_errno() == EAGAIN ? Sent::kFull : Sent::kGone;
  }
  SendPart(socket_, {}, true);
  if (options_.layout == ReplayLayout::kTopicSeqPayload) {
    const std::string_view topic = payload == nullptr ? "" : std::string_view(options_.topic);
    SendPart(socket_, std::as_bytes(std::span(topic)), true);
  }
  // An event plane's end says whose it is, as there may have been no message to say so.
  if (payload == nullptr && options_.publisher_id) {
    SendPart(socket_, BigEndian(*options_.publisher_id), true);
  }
  SendPart(socket_, BigEndian(sequence), true);
  if (payload == nullptr) {
    SendPart(socket_, {}, false);
  } else {
    SendShared(socket_, *payload, false);
  }
  return Sent::kYes;
}

}  // namespace kvr::net
