// For benchmarks: many streams at once, and how long each waited for its first byte.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/io_runtime.h"

namespace kvr::net::testing {

struct StreamLoad {
  Url peer;
  HttpRequest request;
  std::size_t streams = 1;   // at a time
  std::size_t requests = 1;  // in all
  Nanos length{0};           // of a stream, about: the first ones are spread over it
};

// Each of `streams` clients sends one request, reads its answer to the end and sends the next, on
// kept connections, until `requests` were sent. Returns the microseconds from before Open to the
// return of the first Read. `runtime` has one thread, which is not the caller's.
std::vector<double> TimesToFirstByte(IoRuntime& runtime, HttpClient& client,
                                     const StreamLoad& load);

// `values` is not empty and is reordered.
double Quantile(std::vector<double>& values, double q);

}  // namespace kvr::net::testing
