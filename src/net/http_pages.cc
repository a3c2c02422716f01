#include "net/http_pages.h"

#include <exception>
#include <memory>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "net/io_runtime_impl.h"

namespace kvr::net {
namespace {

// Shared by the handler and the page's thread. What the latter writes is read only after it was
// posted back; `made` and `done` are the handler's thread's.
struct PageJob {
  HttpRequest request;
  HttpResponse response;
  std::exception_ptr error;
  bool made = false;
  Signal done;
};

}  // namespace

Task<void> AnswerPage(IoRuntime& io, IoRuntime& pages, const HttpServer::Page& make,
                      HttpExchange& exchange) {
  const auto executor = co_await boost::asio::this_coro::executor;
  const std::size_t thread = io.impl().IndexOf(executor);
  const auto job = std::make_shared<PageJob>();
  job->request = std::move(exchange.request());
  pages.Post(0, [job, make, &io, thread] {
    try {
      job->response = make(job->request);
    } catch (...) {
      job->error = std::current_exception();
    }
    io.Post(thread, [job] {
      job->made = true;
      job->done.Notify();
    });
  });
  while (!job->made) {
    co_await job->done.Wait();
  }
  if (job->error) std::rethrow_exception(job->error);
  const auto sent = co_await exchange.Respond(std::move(job->response));
  static_cast<void>(sent);  // a client that is gone is nobody's error
}

}  // namespace kvr::net
