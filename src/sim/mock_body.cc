#include "sim/mock_body.h"

#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/json_writer.h"

namespace kvr::sim {
namespace {

namespace json = simdjson::dom;
using openai::ApiError;
using openai::BadField;

tl::unexpected<ApiError> Bad(std::string param, std::string message) {
  return tl::unexpected<ApiError>(BadField(std::move(param), std::move(message)));
}

// The text of a message's content: a string, or parts of type text.
Result<std::string, ApiError> ContentText(json::element content) {
  std::string_view text;
  if (content.get(text) == simdjson::SUCCESS) return std::string(text);
  if (content.is_null()) return std::string();
  json::array parts;
  if (content.get(parts) != simdjson::SUCCESS) {
    return Bad("messages", "`content` must be a string or an array of parts");
  }
  std::string all;
  for (const json::element part : parts) {
    if (part["text"].get(text) != simdjson::SUCCESS) {
      return Bad("messages", "the mock engine reads only parts of type `text`");
    }
    all += text;
  }
  return all;
}

Result<std::vector<ChatMessage>, ApiError> Messages(json::element value) {
  json::array array;
  if (value.get(array) != simdjson::SUCCESS) return Bad("messages", "`messages` must be an array");
  std::vector<ChatMessage> messages;
  for (const json::element item : array) {
    ChatMessage message;
    std::string_view role;
    if (item["role"].get(role) != simdjson::SUCCESS) {
      return Bad("messages", "each message needs a `role`");
    }
    message.role = role;
    json::element content;
    if (item["content"].get(content) == simdjson::SUCCESS) {
      KVR_TRY(message.content, ContentText(content));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

Result<json::element, ApiError> Parse(json::parser& parser, std::string_view body) {
  json::element root;
  const auto error = parser.parse(body.data(), body.size()).get(root);
  if (error != simdjson::SUCCESS || !root.is_object()) {
    return Bad("", fmt::format("the body is no JSON object: {}", simdjson::error_message(error)));
  }
  return root;
}

Result<std::vector<TokenId>, ApiError> EncodeChat(json::element root,
                                                  const WordTokenizer& tokenizer) {
  bool add_generation_prompt = true;
  json::element value;
  if (root["add_generation_prompt"].get(value) == simdjson::SUCCESS &&
      value.get(add_generation_prompt) != simdjson::SUCCESS) {
    return Bad("add_generation_prompt", "`add_generation_prompt` must be true or false");
  }
  if (root["messages"].get(value) != simdjson::SUCCESS) {
    return Bad("messages", "`messages` is missing");
  }
  KVR_TRY(const std::vector<ChatMessage> messages, Messages(value));
  return tokenizer.Encode(RenderChat(messages, add_generation_prompt));
}

Result<std::vector<TokenId>, ApiError> EncodePrompt(json::element root,
                                                    const WordTokenizer& tokenizer) {
  std::string_view text;
  if (root["prompt"].get(text) == simdjson::SUCCESS) return tokenizer.Encode(text);
  if (root["prompt"].at(0).get(text) == simdjson::SUCCESS) return tokenizer.Encode(text);
  return Bad("prompt", "`prompt` must be a string, or there must be `messages`");
}

Result<void, ApiError> CheckTrue(const openai::Request& request) {
  if (request.prompts > 1) return Bad("prompt", "the mock engine takes one prompt a request");
  if (request.choices > 1) return Bad("n", "the mock engine makes one choice a request");
  if (request.form == openai::PromptForm::kEmbeddings) {
    return Bad("prompt_embeds", "the mock engine needs text or token ids");
  }
  if (!request.cache_salt.empty()) {
    return Bad("cache_salt", "the mock engine does not salt its cache");
  }
  return {};
}

}  // namespace

Result<GenerateRequest, ApiError> ParseGenerate(openai::Api api, std::string_view body,
                                                const WordTokenizer& tokenizer) {
  KVR_TRY(openai::Request request, openai::ParseRequest(api, body, {}));
  KVR_TRY_VOID(CheckTrue(request));
  GenerateRequest generate;
  generate.api = api;
  generate.model = std::move(request.model);
  generate.max_tokens = request.max_tokens;
  generate.stream = request.stream;
  generate.include_usage = request.include_usage;
  if (request.form == openai::PromptForm::kTokens) {
    generate.prompt = std::move(request.tokens);
    return generate;
  }
  json::parser parser;
  KVR_TRY(const json::element root, Parse(parser, body));
  if (request.form == openai::PromptForm::kMessages) {
    KVR_TRY(generate.prompt, EncodeChat(root, tokenizer));
  } else {
    KVR_TRY(generate.prompt, EncodePrompt(root, tokenizer));
  }
  return generate;
}

Result<std::vector<TokenId>, ApiError> ParseTokenize(std::string_view body,
                                                     const WordTokenizer& tokenizer) {
  json::parser parser;
  KVR_TRY(const json::element root, Parse(parser, body));
  if (root["messages"].error() == simdjson::SUCCESS) return EncodeChat(root, tokenizer);
  return EncodePrompt(root, tokenizer);
}

Result<std::vector<TokenId>, ApiError> ParseDetokenize(std::string_view body) {
  json::parser parser;
  KVR_TRY(const json::element root, Parse(parser, body));
  json::array array;
  if (root["tokens"].get(array) != simdjson::SUCCESS) {
    return Bad("tokens", "`tokens` must be an array of token ids");
  }
  std::vector<TokenId> tokens;
  for (const json::element item : array) {
    std::uint64_t token = 0;
    if (item.get(token) != simdjson::SUCCESS || !std::in_range<TokenId>(token)) {
      return Bad("tokens", "`tokens` must be an array of token ids");
    }
    tokens.push_back(static_cast<TokenId>(token));
  }
  return tokens;
}

namespace {

std::string UsageJson(const GenerateUsage& usage) {
  return fmt::format(R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}}}})",
                     usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens,
                     usage.completion_tokens, usage.cached_tokens);
}

std::string Head(std::string_view id, std::string_view object, std::int64_t created,
                 std::string_view model) {
  std::string head = R"({"id":)";
  AppendJsonString(head, id);
  head += fmt::format(R"(,"object":"{}","created":{},"model":)", object, created);
  AppendJsonString(head, model);
  return head + R"(,"choices":[)";
}

}  // namespace

AnswerWriter::AnswerWriter(openai::Api api, std::string_view id, std::string_view model,
                           std::int64_t created)
    : api_(api) {
  const bool chat = api == openai::Api::kChat;
  head_ = Head(id, chat ? "chat.completion" : "text_completion", created, model);
  chunk_head_ =
      "data: " + Head(id, chat ? "chat.completion.chunk" : "text_completion", created, model);
}

void AnswerWriter::AppendTokens(std::string& out, std::span<const TokenId> tokens, bool finished) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    text.clear();
    AppendTokenText(text, tokens[i]);
    AppendEvent(out, text, finished && i + 1 == tokens.size());
  }
  if (tokens.empty() && finished) AppendEvent(out, "", true);
}

// `text` is made of words that JSON needs no escapes for.
void AnswerWriter::AppendEvent(std::string& out, std::string_view text, bool last) {
  const std::string_view reason = last ? R"("length"}]})" : "null}]}";
  out += chunk_head_;
  if (api_ == openai::Api::kChat) {
    const std::string_view role = std::exchange(begun_, true) ? "" : R"("role":"assistant",)";
    fmt::format_to(std::back_inserter(out),
                   R"({{"index":0,"delta":{{{}"content":"{}"}},"logprobs":null,"finish_reason":)",
                   role, text);
  } else {
    fmt::format_to(std::back_inserter(out),
                   R"({{"index":0,"text":"{}","logprobs":null,"finish_reason":)", text);
  }
  out.append(reason).append("\n\n");
}

void AnswerWriter::AppendUsage(std::string& out, const GenerateUsage& usage) const {
  out += chunk_head_;
  out += R"(],"usage":)" + UsageJson(usage) + "}\n\n";
}

std::string AnswerWriter::Whole(std::string_view text, const GenerateUsage& usage) const {
  std::string out = head_;
  out += R"({"index":0,)";
  if (api_ == openai::Api::kChat) {
    out += R"("message":{"role":"assistant","content":)";
    AppendJsonString(out, text);
    out += '}';
  } else {
    out += R"("text":)";
    AppendJsonString(out, text);
  }
  out += R"(,"logprobs":null,"finish_reason":"length"}],"usage":)" + UsageJson(usage) + '}';
  return out;
}

}  // namespace kvr::sim
