#include "net/io_runtime.h"

#include <exception>
#include <utility>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "base/latch.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_name.h"
#include "net/io_runtime_impl.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;

// Keeps the callable alive as long as the coroutine it made.
Task<void> RunRoot(std::function<Task<void>()> make) {
  co_await make();
}

void LogEscaped(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& e) {
    if (e.code() != asio::error::operation_aborted) KVR_ERROR("task failed: {}", e.what());
  } catch (const std::exception& e) {
    KVR_ERROR("task failed: {}", e.what());
  } catch (...) {
    KVR_ERROR("task failed with an unknown exception");
  }
}

}  // namespace

IoThread::IoThread() : work_(asio::make_work_guard(io_)) {}
IoThread::~IoThread() = default;

void IoThread::Run() {
  io_.run();
}

std::shared_ptr<RootTask> IoThread::Start(std::function<Task<void>()> make) {
  auto root = std::make_shared<RootTask>();
  if (stopping_) {
    root->ended_ = true;
    return root;
  }
  roots_.insert(root);
  asio::co_spawn(
      io_, RunRoot(std::move(make)),
      asio::bind_cancellation_slot(root->signal_.slot(),
                                   [this, root](std::exception_ptr error) { Ended(root, error); }));
  return root;
}

void IoThread::Ended(const std::shared_ptr<RootTask>& root, const std::exception_ptr& error) {
  root->ended_ = true;
  roots_.erase(root);
  if (error) LogEscaped(error);
  if (stopping_ && roots_.empty()) io_.stop();
}

void IoThread::BeginStop() {
  stopping_ = true;
  if (roots_.empty()) {
    io_.stop();
    return;
  }
  const auto roots = roots_;  // a cancelled task may end at once and change the set
  for (const auto& root : roots)
    root->Cancel();
}

std::size_t IoRuntime::Impl::IndexOf(const asio::any_io_executor& executor) const {
  const auto& context = asio::query(executor, asio::execution::context);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (&context == &threads[i]->io()) return i;
  }
  CheckFailed(__FILE__, __LINE__, "task runs on a thread of another runtime");
}

IoRuntime::IoRuntime(const Options& options) : impl_(std::make_unique<Impl>()) {
  KVR_CHECK(options.threads > 0);
  for (std::size_t i = 0; i < options.threads; ++i)
    impl_->threads.push_back(std::make_unique<IoThread>());
  for (std::size_t i = 0; i < options.threads; ++i) {
    impl_->running.emplace_back(
        [thread = impl_->threads[i].get(), name = fmt::format("{}{}", options.thread_name, i)] {
          SetThreadName(name);
          thread->Run();
        });
  }
}

IoRuntime::~IoRuntime() {
  Stop();
}

std::size_t IoRuntime::threads() const {
  return impl_->threads.size();
}

void IoRuntime::Spawn(std::function<Task<void>()> task) {
  // Relaxed: only which thread is next depends on it.
  SpawnOn(impl_->next.fetch_add(1, std::memory_order_relaxed) % threads(), std::move(task));
}

void IoRuntime::SpawnOn(std::size_t thread, std::function<Task<void>()> task) {
  IoThread& target = *impl_->threads.at(thread);
  Post(thread, [&target, task = std::move(task)] { target.Start(task); });
}

void IoRuntime::Post(std::size_t thread, std::function<void()> work) {
  const Lock lock(impl_->mutex);
  if (!impl_->closed) asio::post(impl_->threads.at(thread)->io(), std::move(work));
}

void IoRuntime::RunBlocking(std::function<Task<void>()> task) {
  Latch latch;
  {
    // Every copy of the closure shares the token; the last one to go opens the latch, so that a
    // task which is dropped counts as ended too.
    std::shared_ptr<void> token(nullptr, [&latch](void*) { latch.Set(); });
    Spawn([token = std::move(token), task = std::move(task)] { return task(); });
  }
  latch.Wait();
}

void IoRuntime::Stop() {
  {
    const Lock lock(impl_->mutex);
    if (std::exchange(impl_->stopping, true)) return;
  }
  for (const auto& thread : impl_->threads)
    asio::post(thread->io(), [target = thread.get()] { target->BeginStop(); });
  for (auto& thread : impl_->running)
    thread.join();
  {
    const Lock lock(impl_->mutex);
    impl_->closed = true;
  }
  // What was posted meanwhile is run here, where it finds a stopping thread and lets go.
  for (const auto& thread : impl_->threads) {
    thread->io().restart();
    thread->io().poll();
  }
}

}  // namespace kvr::net
