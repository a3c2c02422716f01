// Errors in the shape that OpenAI clients expect.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace kvr::openai {

struct ApiError {
  int status = 400;     // of the HTTP answer
  std::string type;     // "invalid_request_error", "server_error", "rate_limit_error"
  std::string code;     // stable, for programs
  std::string message;  // what, where and how to mend it; never a piece of a prompt
  std::string param;    // the field at fault; empty when there is none
};

// A 400 about one field.
ApiError BadField(std::string param, std::string message, std::string code = "invalid_value");

// Status, type and code follow from `error.code`.
ApiError FromError(const Error& error);

// An error that a server finds by itself, in its words; the type follows from `status`.
ApiError FromStatus(int status, std::string_view code, std::string_view message);

// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string ErrorBody(const ApiError& error);

}  // namespace kvr::openai
