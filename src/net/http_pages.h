// Answers that are made on another thread than the one that sends them. For this module only.
#pragma once

#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/task.h"

namespace kvr::net {

// Makes the page on thread 0 of `pages` and sends it from the exchange's own, a thread of `io`.
// Takes the request out of the exchange. Should the handler be cancelled meanwhile, the page is
// made to its end and dropped; until then `io` must live.
Task<void> AnswerPage(IoRuntime& io, IoRuntime& pages, const HttpServer::Page& make,
                      HttpExchange& exchange);

}  // namespace kvr::net
