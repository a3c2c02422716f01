#include "net/timed_socket.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr auto kNever = TimePoint::max();
constexpr std::size_t kFirstCapacity = 4096;

}  // namespace

bool OutOfResources(const boost::system::error_code& error) {
  namespace errc = boost::system::errc;
  return error == asio::error::no_descriptors || error == asio::error::no_buffer_space ||
         error == asio::error::no_memory || error == errc::too_many_files_open_in_system ||
         error == errc::address_not_available;
}

Gather::Gather(std::initializer_list<std::string_view> pieces) {
  KVR_CHECK(pieces.size() <= kPieces);
  std::size_t at = kPieces - pieces.size();
  for (const std::string_view piece : pieces)
    pieces_[at++] = asio::const_buffer(piece.data(), piece.size());
  Consume(0);
}

void Gather::Consume(std::size_t bytes) {
  while (first_ < kPieces && bytes >= pieces_[first_].size())
    bytes -= pieces_[first_++].size();
  if (first_ < kPieces) pieces_[first_] += bytes;
}

asio::mutable_buffer ReadBuffer::Prepare() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (capacity_ - end_ < kFirstCapacity / 2 && begin_ > 0) {
    std::memmove(memory_.get(), memory_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (capacity_ - end_ < kFirstCapacity / 2 && capacity_ < bytes_max_) {
    const std::size_t capacity = std::min(bytes_max_, std::max(kFirstCapacity, capacity_ * 2));
    auto memory = std::make_unique<char[]>(capacity);
    if (end_ > 0) std::memcpy(memory.get(), memory_.get(), end_);
    memory_ = std::move(memory);
    capacity_ = capacity;
  }
  return {memory_.get() + end_, capacity_ - end_};
}

void ReadBuffer::Shrink() {
  if (!empty() || capacity_ <= kFirstCapacity) return;
  memory_.reset();
  capacity_ = begin_ = end_ = 0;
}

// The timer is armed once and looks at the deadline when it fires, so that an operation which ends
// in time costs no more than storing two numbers.
struct TimedSocket::State : std::enable_shared_from_this<State> {
  explicit State(asio::ip::tcp::socket s) : socket(std::move(s)), timer(socket.get_executor()) {}

  void Arm() {
    armed_for = deadline;
    timer.expires_at(armed_for);  // ends an earlier wait, which finds armed_for changed
    timer.async_wait([self = shared_from_this(), mine = armed_for](ErrorCode error) {
      if (error || self->armed_for != mine) return;
      self->armed_for = kNever;
      if (self->deadline == kNever) return;
      if (Clock::now() < self->deadline) {
        self->Arm();
      } else {
        self->expired = true;
        ErrorCode ignored;
        self->socket.cancel(ignored);
      }
    });
  }

  asio::ip::tcp::socket socket;
  asio::steady_timer timer;
  TimePoint deadline = kNever;
  TimePoint armed_for = kNever;
  bool expired = false;
};

class TimedSocket::Deadline {
 public:
  Deadline(State& state, TimePoint at) : state_(state) {
    state_.deadline = at;
    if (at < state_.armed_for) state_.Arm();
  }
  ~Deadline() { state_.deadline = kNever; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  [[nodiscard]] ErrorCode Explain(ErrorCode error) const {
    return error && state_.expired ? ErrorCode(asio::error::timed_out) : error;
  }

 private:
  State& state_;
};

TimedSocket::TimedSocket(asio::ip::tcp::socket socket)
    : state_(std::make_shared<State>(std::move(socket))) {}

TimedSocket::~TimedSocket() {
  Close();
}

asio::ip::tcp::socket& TimedSocket::raw() {
  return state_->socket;
}

void TimedSocket::Configure() {
  ErrorCode ignored;
  state_->socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  state_->socket.set_option(asio::socket_base::keep_alive(true), ignored);
  state_->socket.non_blocking(true, ignored);
}

Task<TimedSocket::ErrorCode> TimedSocket::Connect(const asio::ip::tcp::endpoint& peer,
                                                  TimePoint deadline) {
  const Deadline guard(*state_, deadline);
  const auto [error] =
      co_await state_->socket.async_connect(peer, asio::as_tuple(asio::use_awaitable));
  co_return guard.Explain(error);
}

Task<TimedSocket::ErrorCode> TimedSocket::ReadSome(asio::mutable_buffer room, TimePoint deadline,
                                                   std::size_t& bytes) {
  const Deadline guard(*state_, deadline);
  const auto [error, count] =
      co_await state_->socket.async_read_some(room, asio::as_tuple(asio::use_awaitable));
  bytes = error ? 0 : count;
  co_return guard.Explain(error);
}

bool TimedSocket::TryWrite(Gather& data, ErrorCode& error) {
  while (!data.empty()) {
    data.Consume(state_->socket.write_some(data.left(), error));
    if (error == asio::error::would_block) {
      error = {};
      return false;
    }
    if (error) return true;
  }
  return true;
}

Task<TimedSocket::ErrorCode> TimedSocket::Drain(Gather& data, Millis silence_max) {
  ErrorCode error;
  while (!TryWrite(data, error)) {
    const Deadline guard(*state_, After(silence_max));
    const auto [wait_error] = co_await state_->socket.async_wait(
        asio::socket_base::wait_write, asio::as_tuple(asio::use_awaitable));
    if (wait_error) co_return guard.Explain(wait_error);
  }
  co_return error;
}

void TimedSocket::Close() {
  state_->timer.cancel();
  ErrorCode ignored;
  state_->socket.close(ignored);
}

void TimedSocket::Reset() {
  ErrorCode ignored;
  state_->socket.set_option(asio::socket_base::linger(true, 0), ignored);
  Close();
}

}  // namespace kvr::net
