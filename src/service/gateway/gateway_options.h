// The limits and choices of a gateway.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "openai/request.h"
#include "service/gateway/engine_watch.h"

namespace kvr::service {

struct GatewayOptions {
  std::size_t in_flight_max = 1'024;      // beyond: 429
  std::size_t body_bytes_max = 8u << 20;  // beyond: 413
  std::size_t attempts_max = 3;           // engines tried for one request, the first included
  std::size_t stream_line_bytes_max = 1u << 20;  // longer lines are passed on unread
  std::size_t answer_bytes_read_max = 1u << 20;  // answers up to this are searched for usage
  EngineWatch::Options engine_watch;
  Millis retry_after{1'000};   // what refused clients are told
  bool serve_dump = false;     // GET /dump
  std::string instance_name;   // kInstanceHeader of /dump
  bool require_exact = false;  // /ready asks for at least one rank whose picture is exact
  openai::RequestLimits request;
  // LoRA adapters: the name clients ask for → the model of the engines that serve it.
  std::map<std::string, std::string, std::less<>> adapters;

  [[nodiscard]] Result<void> Validate() const;
};

}  // namespace kvr::service
