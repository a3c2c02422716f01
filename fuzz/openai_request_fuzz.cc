// Completion bodies. Byte 0 chooses the API; the rest is the body. Whatever is accepted must give a
// tokenize request that is itself an accepted body of the same prompt form and model.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "openai/request.h"
#include "openai/tokenize_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

using kvr::openai::Api;
using kvr::openai::PromptForm;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Api api = data[0] % 2 == 0 ? Api::kCompletions : Api::kChat;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto request = kvr::openai::ParseRequest(api, body, {});
  if (!request) {
    KVR_CHECK(request.error().status == 400);
    KVR_CHECK(!request.error().message.empty());
    KVR_CHECK(!kvr::openai::ErrorBody(request.error()).empty());
    return 0;
  }
  const auto tokenize = kvr::openai::TokenizeBody(*request, body);
  const bool has_text =
      request->form == PromptForm::kMessages || request->form == PromptForm::kText;
  KVR_CHECK(tokenize.has_value() == has_text);
  if (!tokenize) return 0;
  const auto again = kvr::openai::ParseRequest(api, *tokenize, {});
  KVR_CHECK(again.has_value());
  KVR_CHECK(again->form == request->form);
  KVR_CHECK(again->model == request->model);
  KVR_CHECK(again->empty_prompt == request->empty_prompt);
  return 0;
}
