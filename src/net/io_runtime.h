// The I/O threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/task.h"

namespace kvr::net {

// Runs tasks on a fixed number of threads, each with its own event loop. A task stays on the thread
// it started on, so that what belongs to one connection needs no lock.
//
// Thread-safe. Destroyed after every server and client that uses it.
class IoRuntime {
 public:
  struct Options {
    std::size_t threads = 1;
    std::string thread_name = "io";
  };

  explicit IoRuntime(const Options& options);
  ~IoRuntime();  // Stop()
  IoRuntime(const IoRuntime&) = delete;
  IoRuntime& operator=(const IoRuntime&) = delete;

  [[nodiscard]] std::size_t threads() const;

  // Runs `task` on the next thread in turn, or on a given one. A task that lets an exception escape
  // is a bug of ours: it is logged and the process goes on. After Stop it is dropped.
  void Spawn(std::function<Task<void>()> task);
  void SpawnOn(std::size_t thread, std::function<Task<void>()> task);
  // Runs a plain function on a given thread.
  void Post(std::size_t thread, std::function<void()> work);
  // Runs `task` and blocks the calling thread, which must not be an I/O thread, until it ended or
  // was dropped.
  void RunBlocking(std::function<Task<void>()> task);

  // Cancels what is still running and joins the threads. Idempotent.
  void Stop();

  struct Impl;
  [[nodiscard]] Impl& impl() { return *impl_; }  // for this module only

 private:
  std::unique_ptr<Impl> impl_;
};

// For use inside a task: wakes after `duration`, or at once when the task is cancelled (false).
Task<bool> Sleep(Nanos duration);

// A gate between tasks of one thread: Wait() suspends until Notify(). Not thread-safe: all calls
// from tasks of one I/O thread. Several waiters are all woken. A Notify without a waiter is not
// kept, so test the condition before waiting. A wait of a cancelled task unwinds it at once; one
// whose signal is destroyed ends as if it was notified too late.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  void Notify();
  Task<void> Wait();
  // False when `timeout` passed first.
  Task<bool> WaitFor(Nanos timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::net
