// Event streams that are not pushed: `trtllm+http://host:port` is asked for its events again and
// again, and looks to the rest of ingest like a subscription. See net/event_endpoint.h.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/http_client.h"
#include "net/io_runtime.h"

namespace kvr::ingest {

struct PollOptions {
  Millis interval{100};     // between two requests when the last one brought nothing new
  Millis retry_first{200};  // after a failure; doubles
  Millis retry_max{5'000};
  // How long an engine may be silent, before an answer or within it: an engine writes all of a list
  // before it sends the first byte.
  Millis timeout{60'000};
  Millis answer_max{600'000};  // of one answer; then it is taken as endless
  // Messages that wait for the reader, and their bytes. With so many nothing more is read: what the
  // engine keeps is safer there.
  std::size_t messages_max = 1'024;
  std::size_t bytes_max = 16u << 20;
};

// A transport for both kinds of endpoints: polled ones are served here, all others by `direct`.
//
// Asking drains the engine's buffer, so each engine must have one reader only, no request is sent
// twice, and of an answer that breaks off, is no list or does not come the rest is lost, which the
// reader sees at once: an empty message behind a gap. A request that was never sent, or that was
// answered with an error status, loses nothing. All of them count as a lost link, an error status
// as a refused one, and NoteOf says why. Answers are read as they come, so that they may be of any
// length, and a slow reader makes the engine wait. `direct`, `runtime` and `registry`
// (null: nothing is counted) must outlive the transport and its pollers; the runtime is stopped
// before the transport is destroyed.
std::unique_ptr<net::EventTransport> MakePollTransport(net::EventTransport& direct,
                                                       net::IoRuntime& runtime,
                                                       const PollOptions& options,
                                                       metrics::Registry* registry = nullptr);

}  // namespace kvr::ingest
