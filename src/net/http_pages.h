// Work of handlers that is done on another thread than their own. For this module only.
#pragma once

#include <functional>

#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/task.h"

namespace kvr::net {

// From a task of `io`: runs `work` on thread 0 of `aside` and goes on on the task's own thread;
// throws what `work` threw. Should the task be cancelled meanwhile, `work` is done to its end;
// until then `io` must live.
Task<void> RunAside(IoRuntime& io, IoRuntime& aside, std::function<void()> work);

// Makes the page aside and sends it. Takes the request out of the exchange.
Task<void> AnswerPage(HttpServer& server, const HttpServer::Page& make, HttpExchange& exchange);

}  // namespace kvr::net
