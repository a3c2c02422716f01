// The two sockets an event consumer needs, behind interfaces that a simulator replaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/reused_lists.h"

namespace kvr::net {

// The parts of one message. Reused from message to message so that receiving allocates nothing once
// the parts are warm, but for those of extraordinary size (ReusedLists); valid until the next
// receive.
class Frames {
 public:
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::span<const std::byte> operator[](std::size_t i) const { return parts_[i]; }
  void Clear() {
    count_ = 0;
    if (looks_.IsDue()) [[unlikely]]
      GiveBack();
  }
  std::vector<std::byte>& Add() {
    if (count_ == parts_.size()) parts_.emplace_back();
    parts_[count_].clear();
    return parts_[count_++];
  }

 private:
  void GiveBack() {
    if (parts_.size() > kPartsKeptMax) std::vector<std::vector<std::byte>>().swap(parts_);
    for (std::vector<std::byte>& part : parts_) {
      if (part.capacity() > ReusedLists::kKeptBytesMax) std::vector<std::byte>().swap(part);
    }
  }

  static constexpr std::size_t kPartsKeptMax = 64;  // no message of ours has more than a few

  std::vector<std::vector<std::byte>> parts_;
  std::size_t count_ = 0;
  ReusedLists looks_;
};

// What happened to the connection under a socket, as far as the transport tells.
enum class LinkEvent : std::uint8_t {
  kConnected,
  kDisconnected,
  kRefused,  // something answers there and hangs up, or is no socket of the kind that was asked for
};

// One socket connected to one peer. The peer need not exist yet: connecting goes on in the
// background and starts again after any loss, as long as Receive and NextLinkEvent are called now
// and then. Used by one thread.
class EventSocket {
 public:
  virtual ~EventSocket() = default;
  // False when nothing is there now. Messages larger than the factory's limit never arrive: the
  // transport closes the connection.
  virtual bool Receive(Frames& frames) = 0;
  // Sends all parts or nothing; never blocks. False when it would have to wait.
  virtual bool Send(std::span<const std::span<const std::byte>> parts) = 0;
  // The next change of the link since the last call, oldest first; false when there is none.
  virtual bool NextLinkEvent(LinkEvent& event) = 0;
};

// Makes sockets and waits for any of them. Everything made by one poller belongs to the thread that
// uses the poller; only Wake may come from another one. Sockets are destroyed before their poller.
class EventPoller {
 public:
  virtual ~EventPoller() = default;
  // `topic_prefix` filters; empty takes everything. kInvalidArgument for a bad endpoint.
  virtual Result<std::unique_ptr<EventSocket>> Subscribe(const std::string& endpoint,
                                                         const std::string& topic_prefix) = 0;
  virtual Result<std::unique_ptr<EventSocket>> Dealer(const std::string& endpoint) = 0;
  // Returns when a socket has a message or link event, at Wake, or after `timeout`.
  virtual void Wait(Nanos timeout) = 0;
  virtual void Wake() = 0;
  // For people: why nothing comes from an endpoint that is subscribed to, or what of it was lost;
  // empty when nobody knows of anything.
  virtual std::string NoteOf(const std::string& /*endpoint*/) { return {}; }
};

// One per process or simulation; thread-safe; outlives its pollers.
class EventTransport {
 public:
  virtual ~EventTransport() = default;
  virtual std::unique_ptr<EventPoller> MakePoller() = 0;
};

// Checks `scheme://address` for tcp, ipc and inproc. `connecting` refuses wildcards and port 0.
// kInvalidArgument: "invalid ZMQ endpoint `X`: " and what is wrong with it.
Result<void> CheckEndpoint(std::string_view endpoint, bool connecting);

// The most a socket may hold unread is its high-water mark times message_bytes_max: 64 GiB for a
// subscription by default, against some MiB in practice. ZeroMQ counts messages and limits parts,
// so a peer that sends messages of many large parts can exceed that; engines are trusted so far.
struct ZmqOptions {
  // Messages of a subscription. At it nothing more is read from the connection: the publisher
  // queues up to its own mark, then drops, which is seen as a gap.
  int receive_high_water = 512;
  // Messages of a dealer. The engine's ROUTER drops what it cannot send, so this holds a whole
  // replay of the 10'000 messages that engines keep.
  int replay_high_water = 16'384;
  // A part beyond it ends the connection, and a replay that has one never ends. So it is above what
  // decoders take (wire::DecodeLimits), which refuse a message and count it.
  std::int64_t message_bytes_max = 128 << 20;
  Millis reconnect_first{100};
  Millis reconnect_max{5'000};
  Millis heartbeat_interval{5'000};
  Millis heartbeat_timeout{15'000};
};
std::unique_ptr<EventTransport> MakeZmqTransport(const ZmqOptions& options);

}  // namespace kvr::net
