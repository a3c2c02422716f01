// Sockets that a test fills and empties by hand, for a source in virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/big_endian.h"
#include "base/result.h"
#include "net/event_socket.h"

namespace kvr::ingest {

using TestMessage = std::vector<std::string>;  // frames

inline std::string NumberFrame(std::uint64_t sequence) {
  const auto bytes = BigEndian(sequence);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What a socket shares with the engine's side of it.
struct TestPipe {
  std::deque<TestMessage> messages;
  std::deque<net::LinkEvent> links;
  std::deque<TestMessage> requests;  // of a dealer
};

class TestSocket final : public net::EventSocket {
 public:
  explicit TestSocket(std::shared_ptr<TestPipe> pipe) : pipe_(std::move(pipe)) {}

  bool Receive(net::Frames& frames) override {
    frames.Clear();
    if (pipe_->messages.empty()) return false;
    for (const std::string& part : pipe_->messages.front()) {
      const auto bytes = std::as_bytes(std::span(part));
      frames.Add().assign(bytes.begin(), bytes.end());
    }
    pipe_->messages.pop_front();
    return true;
  }
  bool Send(std::span<const std::span<const std::byte>> parts) override {
    TestMessage request;
    for (const auto part : parts)
      request.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
    pipe_->requests.push_back(std::move(request));
    return true;
  }
  bool NextLinkEvent(net::LinkEvent& event) override {
    if (pipe_->links.empty()) return false;
    event = pipe_->links.front();
    pipe_->links.pop_front();
    return true;
  }

 private:
  std::shared_ptr<TestPipe> pipe_;
};

// Of one source.
class TestPoller final : public net::EventPoller {
 public:
  Result<std::unique_ptr<net::EventSocket>> Subscribe(const std::string&,
                                                      const std::string&) override {
    return std::unique_ptr<net::EventSocket>(std::make_unique<TestSocket>(live));
  }
  Result<std::unique_ptr<net::EventSocket>> Dealer(const std::string&) override {
    replay = std::make_shared<TestPipe>();  // the socket before it, and what it was sent, is gone
    return std::unique_ptr<net::EventSocket>(std::make_unique<TestSocket>(replay));
  }
  void Wait(Nanos) override {}
  void Wake() override {}

  std::shared_ptr<TestPipe> live = std::make_shared<TestPipe>();
  std::shared_ptr<TestPipe> replay = std::make_shared<TestPipe>();
};

}  // namespace kvr::ingest
