// Where events are to be had: sockets of engines, and servers that are asked for them.
#pragma once

#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace kvr::net {

// Whether `endpoint` is "trtllm+" and a URL, under which TensorRT-LLM answers.
bool IsPolled(std::string_view endpoint);
// The URL of a polled endpoint. kInvalidArgument: "invalid polled endpoint `X`: ...".
Result<Url> PolledUrl(std::string_view endpoint);

// As CheckEndpoint for connecting, and polled endpoints besides.
Result<void> CheckEventEndpoint(std::string_view endpoint);

}  // namespace kvr::net
