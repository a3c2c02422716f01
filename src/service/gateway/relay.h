// Passes an engine's answer on to the client, byte for byte and as it comes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/http_server.h"
#include "net/task.h"
#include "openai/stream_scanner.h"
#include "openai/usage.h"
#include "service/gateway/dispatcher.h"
#include "service/gateway/gateway_metrics.h"
#include "service/gateway/gateway_options.h"

namespace kvr::service {

// One answer. Keeps the booking true: prefill is done at the first output, output is added as it
// comes, and the load is given back before the client can see the end. Sets the record's outcome
// unless the client went away.
//
// An event stream is passed on in whole lines and ends at the engine's [DONE]. When the engine
// breaks it off, or ends it without any sign of an end, the client gets one event with an `error`,
// then [DONE]; a stream that already ended gets nothing more. The same when the server stops in the
// middle. An answer that is no stream is cut off, or becomes a 502 when no byte of it was there
// yet.
class Relay {
 public:
  // All must outlive the relay.
  Relay(net::HttpExchange& exchange, Dispatched& answer, RequestRecord& record,
        const GatewayOptions& options);

  // `headers` go before the body. The plausible usage that the engine reported, when the answer
  // came to an end and is below 400.
  net::Task<std::optional<openai::Usage>> Run(const net::HttpHeaders& headers);

  // The answer reached its end and is below 400.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  net::Task<void> RunEvents(const net::HttpHeaders& headers);
  // `rest` is the last of it to be passed on.
  net::Task<void> EndEvents(bool broke, std::string_view rest);
  net::Task<void> RunPlain(const net::HttpHeaders& headers);
  net::Task<void> RespondBroken();
  // What the dispatcher has read; empty the second time.
  std::string_view TakeFirst();
  void Account();
  void EndFirstByte();
  void Complete();

  net::HttpExchange& exchange_;
  Dispatched& answer_;
  RequestRecord& record_;
  const GatewayOptions& options_;
  openai::StreamScanner scanner_;
  std::uint64_t counted_output_ = 0;
  std::optional<openai::Usage> usage_;
  bool first_byte_seen_ = false;
  bool output_seen_ = false;
  bool complete_ = false;
};

}  // namespace kvr::service
