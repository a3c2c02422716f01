// Event streams that are not pushed: `trtllm+http://host:port` is asked for its events again and
// again, and looks to the rest of ingest like a subscription. See net/event_endpoint.h.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "net/event_socket.h"
#include "net/http_client.h"
#include "net/io_runtime.h"

namespace kvr::ingest {

struct PollOptions {
  Millis interval{100};     // between two requests when the last one brought nothing new
  Millis retry_first{200};  // after a failure; doubles
  Millis retry_max{5'000};
  Millis timeout{10'000};                   // of one request
  std::size_t body_bytes_max = 128u << 20;  // an engine writes about 60 bytes a token
  // Messages that wait for the reader. With so many no more are asked for: what the engine keeps is
  // safer there.
  std::size_t messages_max = 1'024;
};

// A transport for both kinds of endpoints: polled ones are served here, all others by `direct`.
//
// Asking drains the engine's buffer, so each engine must have one reader only, and an answer that
// breaks off, is too long or is no list is a loss: the numbers then leave one out, which the reader
// sees as a gap. A request that was never sent, or that was answered with an error status, loses
// nothing. Both count as a lost link. `direct`, `runtime` and `clock` must outlive the transport
// and its pollers; the runtime is stopped before the transport is destroyed.
std::unique_ptr<net::EventTransport> MakePollTransport(net::EventTransport& direct,
                                                       net::IoRuntime& runtime,
                                                       const PollOptions& options);

}  // namespace kvr::ingest
