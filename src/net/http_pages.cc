#include "net/http_pages.h"

#include <exception>
#include <memory>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "net/io_runtime_impl.h"

namespace kvr::net {
namespace {

// Shared by the task and the other thread. What the latter writes is read only after it was posted
// back; `finished` and `done` are the task's thread's.
struct AsideJob {
  std::function<void()> work;
  std::exception_ptr error;
  bool finished = false;
  Signal done;
};

// Shared likewise, since a cancelled handler does not wait for its page.
struct PageJob {
  HttpServer::Page make;
  HttpRequest request;
  HttpResponse response;
};

}  // namespace

Task<void> RunAside(IoRuntime& io, IoRuntime& aside, std::function<void()> work) {
  const auto executor = co_await boost::asio::this_coro::executor;
  const std::size_t thread = io.impl().IndexOf(executor);
  const auto job = std::make_shared<AsideJob>();
  job->work = std::move(work);
  aside.Post(0, [job, &io, thread] {
    try {
      job->work();
    } catch (...) {
      job->error = std::current_exception();
    }
    io.Post(thread, [job] {
      job->finished = true;
      job->done.Notify();
    });
  });
  while (!job->finished) {
    co_await job->done.Wait();
  }
  // Out of the job, which the other thread may let go last: what is thrown is this one's alone.
  const std::exception_ptr error = std::exchange(job->error, nullptr);
  if (error) std::rethrow_exception(error);
}

Task<void> AnswerPage(HttpServer& server, const HttpServer::Page& make, HttpExchange& exchange) {
  const auto job = std::make_shared<PageJob>();
  job->make = make;
  job->request = std::move(exchange.request());
  std::function<void()> work = [job] { job->response = job->make(job->request); };
  co_await server.Aside(std::move(work));
  const auto sent = co_await exchange.Respond(std::move(job->response));
  static_cast<void>(sent);  // a client that is gone is nobody's error
}

}  // namespace kvr::net
