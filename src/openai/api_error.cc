#include "openai/api_error.h"

#include <utility>

#include "base/json_writer.h"

namespace kvr::openai {
namespace {

std::string_view TypeOf(int status) {
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

ApiError BadField(std::string param, std::string message, std::string code) {
  return {400, std::string(TypeOf(400)), std::move(code), std::move(message), std::move(param)};
}

ApiError FromError(const Error& error) {
  const int status = HttpStatus(error.code);
  return FromStatus(status, CodeName(error.code), error.message);
}

ApiError FromStatus(int status, std::string_view code, std::string_view message) {
  return {status, std::string(TypeOf(status)), std::string(code), std::string(message), {}};
}

std::string ErrorBody(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("error");
  json.BeginObject();
  json.Field("message", std::string_view(error.message));
  json.Field("type", std::string_view(error.type));
  json.Key("param");
  if (error.param.empty()) {
    json.Null();
  } else {
    json.Value(std::string_view(error.param));
  }
  json.Field("code", std::string_view(error.code));
  json.EndObject();
  json.EndObject();
  return out;
}

}  // namespace kvr::openai
