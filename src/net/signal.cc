#include <algorithm>
#include <chrono>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include "net/io_runtime.h"
#include "net/io_runtime_impl.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;

}  // namespace

Task<bool> Sleep(Nanos duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, After(duration));
  const auto [error] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return !error;
}

// A waiter lives on the frame of its task, which may be destroyed before or after the signal; each
// side therefore unlinks itself.
struct Signal::Impl {
  struct Waiter {
    Waiter(Impl& signal, const asio::any_io_executor& executor, TimePoint deadline)
        : owner(&signal), timer(executor, deadline) {
      owner->waiters.push_back(this);
    }
    ~Waiter() {
      if (owner != nullptr) std::erase(owner->waiters, this);
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    Impl* owner;
    bool notified = false;
    asio::steady_timer timer;
  };

  std::vector<Waiter*> waiters;

  Task<bool> WaitUntil(TimePoint deadline);
};

Task<bool> Signal::Impl::WaitUntil(TimePoint deadline) {
  Waiter waiter(*this, co_await asio::this_coro::executor, deadline);
  co_await waiter.timer.async_wait(asio::as_tuple(asio::use_awaitable));
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none)
    throw boost::system::system_error(asio::error::operation_aborted, "Signal");
  co_return waiter.notified;
}

Signal::Signal() : impl_(std::make_unique<Impl>()) {}

Signal::~Signal() {
  for (Impl::Waiter* waiter : impl_->waiters) {
    waiter->owner = nullptr;
    waiter->timer.cancel();
  }
}

void Signal::Notify() {
  for (Impl::Waiter* waiter : impl_->waiters) {
    waiter->notified = true;
    waiter->timer.cancel();
  }
}

Task<void> Signal::Wait() {
  co_await impl_->WaitUntil(TimePoint::max());
}

Task<bool> Signal::WaitFor(Nanos timeout) {
  co_return co_await impl_->WaitUntil(After(timeout));
}

}  // namespace kvr::net
