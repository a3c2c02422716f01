#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zmq.hpp>

#include "net/event_socket.h"
#include "net/wake_fd.h"

namespace kvr::net {
namespace {

// Frames beyond these are read and dropped: no message of the protocol has more, and a peer must
// not decide how much we keep. One more than any legal count, so that the count still says "wrong".
constexpr std::size_t kFramesMax = 8;

int Ms(Millis value) {
  return static_cast<int>(std::min<Millis::rep>(value.count(), INT_MAX));
}

// One connection and, for subscriptions, the report of how it fares.
struct Wire {
  zmq::socket_t socket;
  zmq::socket_t monitor;  // empty for dealers, and for inproc, which has no link to watch
};

// What a socket was made for, to make it again.
struct Plan {
  std::string endpoint;
  zmq::socket_type type;
  std::string topic_prefix;

  // inproc reports no link events, so a subscription there counts as connected from the start.
  [[nodiscard]] bool inproc() const { return endpoint.starts_with("inproc://"); }
  [[nodiscard]] bool watched() const { return type == zmq::socket_type::sub && !inproc(); }
};

class ZmqSocket;

class ZmqPoller final : public EventPoller {
 public:
  ZmqPoller(zmq::context_t& context, const ZmqOptions& options, std::atomic<std::uint64_t>& names)
      : context_(context), options_(options), names_(names) {}

  Result<std::unique_ptr<EventSocket>> Subscribe(const std::string& endpoint,
                                                 const std::string& topic_prefix) override {
    return Make({endpoint, zmq::socket_type::sub, topic_prefix});
  }
  Result<std::unique_ptr<EventSocket>> Dealer(const std::string& endpoint) override {
    return Make({endpoint, zmq::socket_type::dealer, {}});
  }

  void Wait(Nanos timeout) override {
    // Rounded up: a wait that ends just before a deadline would be repeated at once, spinning.
    const auto wait = std::chrono::ceil<Millis>(std::max(timeout, Nanos{0}));
    // An error (EINTR) leaves the caller's loop to look around and come back.
    const int ready = zmq_poll(items_.data(), static_cast<int>(items_.size()), Ms(wait));
    if (ready > 0 && (items_.front().revents & ZMQ_POLLIN) != 0) wake_.Clear();
  }
  void Wake() override { wake_.Wake(); }

  [[nodiscard]] const ZmqOptions& options() const { return options_; }

  // Connects as planned and watches the result. Throws zmq::error_t.
  Wire Open(const Plan& plan) {
    Wire wire{zmq::socket_t(context_, plan.type), {}};
    zmq::socket_t& socket = wire.socket;
    socket.set(zmq::sockopt::linger, 0);
    const bool dealer = plan.type == zmq::socket_type::dealer;
    socket.set(zmq::sockopt::rcvhwm,
               dealer ? options_.replay_high_water : options_.receive_high_water);
    socket.set(zmq::sockopt::maxmsgsize, options_.message_bytes_max);
    socket.set(zmq::sockopt::reconnect_ivl, Ms(options_.reconnect_first));
    socket.set(zmq::sockopt::reconnect_ivl_max, Ms(options_.reconnect_max));
    socket.set(zmq::sockopt::heartbeat_ivl, Ms(options_.heartbeat_interval));
    socket.set(zmq::sockopt::heartbeat_timeout, Ms(options_.heartbeat_timeout));
    socket.set(zmq::sockopt::heartbeat_ttl, Ms(options_.heartbeat_timeout));
    socket.set(zmq::sockopt::tcp_keepalive, 1);
    // Only for a literal: with it on, a name that resolves to both families would be tried in
    // IPv6 alone.
    if (plan.endpoint.starts_with("tcp://[")) socket.set(zmq::sockopt::ipv6, 1);
    if (plan.type == zmq::socket_type::sub) {
      socket.set(zmq::sockopt::subscribe, plan.topic_prefix);
    }
    // Attached before connect, so that no report is missed.
    if (plan.watched()) wire.monitor = MakeMonitor(socket);
    socket.connect(plan.endpoint);
    items_.push_back({socket.handle(), 0, ZMQ_POLLIN, 0});
    if (wire.monitor) items_.push_back({wire.monitor.handle(), 0, ZMQ_POLLIN, 0});
    return wire;
  }

  void Close(Wire& wire) {
    std::erase_if(items_, [&](const zmq_pollitem_t& item) {
      return item.socket != nullptr &&
             (item.socket == wire.socket.handle() || item.socket == wire.monitor.handle());
    });
    if (wire.monitor) zmq_socket_monitor(wire.socket.handle(), nullptr, 0);
    wire = {};
  }

 private:
  Result<std::unique_ptr<EventSocket>> Make(Plan plan);

  zmq::socket_t MakeMonitor(zmq::socket_t& socket) {
    const std::string name =
        fmt::format("inproc://link-{}", names_.fetch_add(1, std::memory_order_relaxed));
    if (zmq_socket_monitor(socket.handle(), name.c_str(), kMonitored) != 0) throw zmq::error_t();
    zmq::socket_t monitor(context_, zmq::socket_type::pair);
    monitor.set(zmq::sockopt::linger, 0);
    monitor.connect(name);
    return monitor;
  }

  // The handshake rather than the TCP connection tells that an engine is there: an accepting port
  // may be anything.
  static constexpr int kMonitored =
      ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_DELAYED |
      ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
      ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

  zmq::context_t& context_;
  const ZmqOptions options_;
  std::atomic<std::uint64_t>& names_;
  WakeFd wake_;
  std::vector<zmq_pollitem_t> items_{{nullptr, wake_.fd(), ZMQ_POLLIN, 0}};
};

class ZmqSocket final : public EventSocket {
 public:
  ZmqSocket(ZmqPoller& poller, Plan plan, Wire wire)
      : poller_(poller),
        plan_(std::move(plan)),
        wire_(std::move(wire)),
        announce_(plan_.inproc()),
        revive_pause_(poller.options().reconnect_first) {}
  ~ZmqSocket() override { poller_.Close(wire_); }

  bool Receive(Frames& frames) override;
  bool Send(std::span<const std::span<const std::byte>> parts) override;
  bool NextLinkEvent(LinkEvent& event) override;

 private:
  void ReviveWhenDead();

  ZmqPoller& poller_;
  const Plan plan_;
  Wire wire_;
  zmq::message_t part_;
  bool announce_;  // inproc: say once that it is connected
  bool connected_ = false;
  // When the connection ended without the transport trying again by itself. It gives up for good
  // after a protocol error: an oversized message, or a peer that does not speak ZMTP.
  std::optional<Nanos> dead_since_;
  Millis revive_pause_;
  SystemClock clock_;
};

Result<std::unique_ptr<EventSocket>> ZmqPoller::Make(Plan plan) {
  KVR_TRY_VOID(CheckEndpoint(plan.endpoint, true));
  try {
    Wire wire = Open(plan);
    return std::unique_ptr<EventSocket>(
        std::make_unique<ZmqSocket>(*this, std::move(plan), std::move(wire)));
  } catch (const zmq::error_t& error) {
    // What the grammar lets pass but no address can be: a host with a blank, a path that is too
    // long.
    if (error.num() == EINVAL || error.num() == ENAMETOOLONG) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("invalid ZMQ endpoint `{}`: {}", plan.endpoint, error.what()));
    }
    const ErrorCode code = error.num() == EMFILE ? ErrorCode::kOverloaded : ErrorCode::kIo;
    return Fail(code, fmt::format("cannot connect to `{}`: {}", plan.endpoint, error.what()));
  }
}

bool ZmqSocket::Receive(Frames& frames) {
  frames.Clear();
  while (true) {
    if (zmq_msg_recv(part_.handle(), wire_.socket.handle(), ZMQ_DONTWAIT) < 0) {
      // The parts of one message arrive together, so an error can only come before the first.
      frames.Clear();
      ReviveWhenDead();
      return false;
    }
    if (frames.size() < kFramesMax) {
      const auto* data = static_cast<const std::byte*>(part_.data());
      frames.Add().assign(data, data + part_.size());
    }
    if (!part_.more()) return true;
  }
}

bool ZmqSocket::Send(std::span<const std::span<const std::byte>> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int more = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
    // Only the first part can be refused: the transport takes a message whole.
    if (zmq_send(wire_.socket.handle(), parts[i].data(), parts[i].size(), ZMQ_DONTWAIT | more) <
        0) {
      return false;
    }
  }
  return true;
}

bool ZmqSocket::NextLinkEvent(LinkEvent& event) {
  if (announce_) {
    announce_ = false;
    event = LinkEvent::kConnected;
    return true;
  }
  if (!wire_.monitor) return false;
  zmq::message_t head;
  while (zmq_msg_recv(head.handle(), wire_.monitor.handle(), ZMQ_DONTWAIT) >= 0) {
    std::uint16_t what = 0;
    if (head.size() >= sizeof what) std::memcpy(&what, head.data(), sizeof what);
    zmq::message_t address;
    if (head.more()) zmq_msg_recv(address.handle(), wire_.monitor.handle(), ZMQ_DONTWAIT);
    if (what == ZMQ_EVENT_CONNECT_DELAYED || what == ZMQ_EVENT_CONNECT_RETRIED) {
      dead_since_.reset();
      continue;
    }
    const bool connected = what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (connected) {
      dead_since_.reset();
      revive_pause_ = poller_.options().reconnect_first;
    } else if (!dead_since_) {
      dead_since_ = clock_.Now();
    }
    if (connected && connected_) continue;
    if (!connected && !connected_) {  // broken before its handshake
      event = LinkEvent::kRefused;
      return true;
    }
    connected_ = connected;
    event = connected ? LinkEvent::kConnected : LinkEvent::kDisconnected;
    return true;
  }
  return false;
}

// Called when nothing is left to receive, so that closing loses nothing.
void ZmqSocket::ReviveWhenDead() {
  if (!dead_since_ || clock_.Now() < *dead_since_ + revive_pause_) return;
  revive_pause_ = std::min(2 * revive_pause_, poller_.options().reconnect_max);
  try {
    Wire fresh = poller_.Open(plan_);
    poller_.Close(wire_);
    wire_ = std::move(fresh);
    dead_since_.reset();
  } catch (const zmq::error_t&) {
    dead_since_ = clock_.Now();  // no socket left; again after the pause
  }
}

class ZmqTransport final : public EventTransport {
 public:
  explicit ZmqTransport(const ZmqOptions& options) : options_(options) {
    // The default of 1023 is too few: a stream needs four sockets, for itself, its replay and the
    // two ends of its monitor.
    context_.set(zmq::ctxopt::max_sockets, context_.get(zmq::ctxopt::socket_limit));
  }

  std::unique_ptr<EventPoller> MakePoller() override {
    return std::make_unique<ZmqPoller>(context_, options_, names_);
  }

 private:
  const ZmqOptions options_;
  zmq::context_t context_;
  std::atomic<std::uint64_t> names_{0};  // relaxed: only has to be unique
};

}  // namespace

std::unique_ptr<EventTransport> MakeZmqTransport(const ZmqOptions& options) {
  return std::make_unique<ZmqTransport>(options);
}

}  // namespace kvr::net
