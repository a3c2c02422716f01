// Bodies of the mock engine. Byte 0 chooses the route; the rest is the body. What a router
// learns from /tokenize is what a completion is given; tokens survive the way to text and back.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_writer.h"
#include "openai/tokenize_body.h"
#include "sim/mock_body.h"
#include "sim/mock_fault_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::TokenId;
using kvr::openai::Api;

const kvr::sim::WordTokenizer kTokenizer(1000);

void CheckRefusal(const kvr::openai::ApiError& error) {
  KVR_CHECK(error.status == 400);
  KVR_CHECK(!error.message.empty());
}

void CheckTokens(const std::vector<TokenId>& tokens) {
  for (const TokenId token : tokens)
    KVR_CHECK(token < kTokenizer.vocabulary());
  const std::string text = kTokenizer.Decode(tokens);
  KVR_CHECK(kTokenizer.Encode(text) == tokens);
  std::string body;
  kvr::JsonWriter json(body);
  json.BeginObject();
  json.Field("prompt", text);
  json.EndObject();
  const auto again = kvr::sim::ParseTokenize(body, kTokenizer);
  KVR_CHECK(again && *again == tokens);
}

void Generate(Api api, std::string_view body) {
  const auto request = kvr::sim::ParseGenerate(api, body, kTokenizer);
  if (!request) return CheckRefusal(request.error());
  const auto openai = kvr::openai::ParseRequest(api, body, {});
  KVR_CHECK(openai.has_value());
  KVR_CHECK(request->model == openai->model && request->stream == openai->stream);
  if (openai->form == kvr::openai::PromptForm::kTokens) {
    KVR_CHECK(request->prompt == openai->tokens);
    return;
  }
  CheckTokens(request->prompt);
  const auto asked = kvr::openai::TokenizeBody(*openai, body);
  KVR_CHECK(asked.has_value());
  const auto told = kvr::sim::ParseTokenize(*asked, kTokenizer);
  KVR_CHECK(told && *told == request->prompt);
}

void Tokenize(std::string_view body) {
  const auto tokens = kvr::sim::ParseTokenize(body, kTokenizer);
  if (!tokens) return CheckRefusal(tokens.error());
  CheckTokens(*tokens);
}

void Detokenize(std::string_view body) {
  const auto tokens = kvr::sim::ParseDetokenize(body);
  if (!tokens) return CheckRefusal(tokens.error());
  std::string written;
  kvr::JsonWriter json(written);
  json.BeginObject();
  json.Key("tokens");
  json.BeginArray();
  for (const TokenId token : *tokens)
    json.Value(token);
  json.EndArray();
  json.EndObject();
  const auto again = kvr::sim::ParseDetokenize(written);
  KVR_CHECK(again && *again == *tokens);
}

void Fault(std::string_view body) {
  const auto fault = kvr::sim::ReadFaultBody(body);
  if (!fault) return CheckRefusal(fault.error());
  const auto in_range = [](const std::optional<std::uint64_t>& number) {
    return number.value_or(0) <= kvr::sim::kFaultNumberMax;
  };
  KVR_CHECK(in_range(fault->rank) && in_range(fault->drop_messages));
  KVR_CHECK(in_range(fault->event_delay_ms) && in_range(fault->error_requests));
  KVR_CHECK(in_range(fault->die_requests) && in_range(fault->die_after_tokens));
  const auto status = fault->error_status.value_or(503);
  KVR_CHECK(status >= 400 && status <= 599);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      Generate(Api::kCompletions, body);
      break;
    case 1:
      Generate(Api::kChat, body);
      break;
    case 2:
      Tokenize(body);
      break;
    case 3:
      Detokenize(body);
      break;
    default:
      Fault(body);
  }
  return 0;
}
