// What an I/O thread is made of. For this module only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_set>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "base/mutex.h"
#include "net/io_runtime.h"

namespace kvr::net {

// A task that no other task awaits, with the handle to cancel it. Used by its I/O thread only.
class RootTask {
 public:
  // Ends the pending await of the task; its next one unwinds it. Nothing after it has ended.
  void Cancel() {
    if (!ended_) signal_.emit(boost::asio::cancellation_type::terminal);
  }

 private:
  friend class IoThread;
  boost::asio::cancellation_signal signal_;
  bool ended_ = false;
};

class IoThread {
 public:
  IoThread();
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& io() { return io_; }
  void Run();  // the thread's body

  // On this thread only. Runs `make()`; once the thread is stopping it is dropped instead.
  std::shared_ptr<RootTask> Start(std::function<Task<void>()> make);
  // On this thread only. Cancels what runs; Run returns when all of it has ended.
  void BeginStop();

 private:
  void Ended(const std::shared_ptr<RootTask>& root, const std::exception_ptr& error);

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unordered_set<std::shared_ptr<RootTask>> roots_;
  bool stopping_ = false;
};

struct IoRuntime::Impl {
  std::vector<std::unique_ptr<IoThread>> threads;
  std::vector<std::jthread> running;
  std::atomic<std::size_t> next{0};

  Mutex mutex;
  bool stopping KVR_GUARDED_BY(mutex) = false;
  bool closed KVR_GUARDED_BY(mutex) = false;  // nothing posted from here on would ever run

  // Which thread an executor belongs to; it must be one of ours.
  [[nodiscard]] std::size_t IndexOf(const boost::asio::any_io_executor& executor) const;
};

using TimePoint = std::chrono::steady_clock::time_point;

// Now plus `duration`, or the end of time when that is later than a clock can say.
template <typename Rep, typename Period>
TimePoint After(std::chrono::duration<Rep, Period> duration) {
  const TimePoint now = std::chrono::steady_clock::now();
  const auto left = std::chrono::floor<std::chrono::duration<Rep, Period>>(TimePoint::max() - now);
  return duration > left ? TimePoint::max() : now + duration;
}

}  // namespace kvr::net
