// A TCP socket whose waits have a deadline. For this module only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/clock.h"
#include "net/io_runtime_impl.h"
#include "net/task.h"

namespace kvr::net {

// Whether an operation failed for want of something on our side, of which the peer knows nothing:
// file descriptors, memory, or local ports.
bool OutOfResources(const boost::system::error_code& error);

// Up to three pieces of memory to send as one, and how much of them is left.
class Gather {
 public:
  static constexpr std::size_t kPieces = 3;

  Gather(std::initializer_list<std::string_view> pieces);
  [[nodiscard]] bool empty() const { return first_ == kPieces; }
  [[nodiscard]] std::span<const boost::asio::const_buffer> left() const {
    return std::span(pieces_).subspan(first_);
  }
  void Consume(std::size_t bytes);

 private:
  std::array<boost::asio::const_buffer, kPieces> pieces_;
  std::size_t first_ = 0;
};

// Bytes received and not yet parsed, in one contiguous piece. Grows to a maximum; its memory stays
// put between Prepare and Commit.
class ReadBuffer {
 public:
  explicit ReadBuffer(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  [[nodiscard]] std::string_view view() const { return {memory_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] bool full() const { return size() >= bytes_max_; }
  // Room for more bytes; empty when full.
  boost::asio::mutable_buffer Prepare();
  // Gives the memory of a big message back, when nothing is in it.
  void Shrink();
  void Commit(std::size_t bytes) { end_ += bytes; }
  void Consume(std::size_t bytes) { begin_ += bytes; }

 private:
  const std::size_t bytes_max_;
  std::unique_ptr<char[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// Used by one I/O thread. One reader and one writer at a time, which share the deadline: it belongs
// to whichever task waits. A wait that outlives it ends with asio::error::timed_out; the socket is
// of no further use then. A wait of a cancelled task ends with operation_aborted.
class TimedSocket {
 public:
  using ErrorCode = boost::system::error_code;

  explicit TimedSocket(boost::asio::ip::tcp::socket socket);
  ~TimedSocket();
  TimedSocket(const TimedSocket&) = delete;
  TimedSocket& operator=(const TimedSocket&) = delete;

  [[nodiscard]] boost::asio::ip::tcp::socket& raw();

  Task<ErrorCode> Connect(const boost::asio::ip::tcp::endpoint& peer, TimePoint deadline);
  // Applies what every connection of ours wants: no delay, no blocking calls.
  void Configure();

  // Waits for bytes and receives them. `bytes` is how many; 0 with an error.
  Task<ErrorCode> ReadSome(boost::asio::mutable_buffer room, TimePoint deadline,
                           std::size_t& bytes);

  // Sends what the kernel takes now. True when all is gone or the socket failed; false: call Drain.
  bool TryWrite(Gather& data, ErrorCode& error);
  // Sends the rest; `silence_max` bounds each wait in which the peer takes nothing.
  Task<ErrorCode> Drain(Gather& data, Millis silence_max);

  // Closes in good order, or with a reset so that the peer cannot take it for an end.
  void Close();
  void Reset();

 private:
  struct State;
  class Deadline;

  const std::shared_ptr<State> state_;
};

}  // namespace kvr::net
