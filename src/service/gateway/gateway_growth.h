// For tests: whether memory grows with the number of requests.
#pragma once

#include <cstddef>

namespace kvr::service::testing {

struct Growth {
  std::size_t requests = 0;
  std::size_t failed = 0;           // other than 200, or cut short
  std::size_t resident_before = 0;  // bytes, after a tenth of the requests
  std::size_t resident_after = 0;
  bool idle = false;   // nothing booked and nothing in flight afterwards
  double counted = 0;  // kvr_gateway_requests_total, outcome ok
};

// Sends `requests` requests, streams and plain answers in turn, over a few kept connections.
Growth MeasureGrowth(std::size_t requests);

// What resident memory may grow by in a run of any length. Sanitizers keep freed memory back.
std::size_t GrowthBytesMax();

}  // namespace kvr::service::testing
