#include "openai/tokenize_body.h"

#include <array>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/text.h"

namespace kvr::openai {
namespace {

namespace dom = simdjson::dom;
namespace ondemand = simdjson::ondemand;

// Fields with the same name and meaning in the serving and the tokenize request.
constexpr std::array<std::string_view, 11> kChatFields = {"model",
                                                          "messages",
                                                          "tools",
                                                          "tool_choice",
                                                          "documents",
                                                          "reasoning_effort",
                                                          "chat_template",
                                                          "chat_template_kwargs",
                                                          "add_generation_prompt",
                                                          "continue_final_message",
                                                          "add_special_tokens"};
constexpr std::array<std::string_view, 2> kTextFields = {"model", "add_special_tokens"};

void AppendField(std::string& out, std::string_view key, std::string_view raw) {
  out += out.empty() ? "{\"" : ",\"";
  out += key;
  out += "\":";
  out += raw;
}

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  for (const std::string_view known : names) {
    if (known == name) return true;
  }
  return false;
}

// `prompt` as one string: itself, or the first of an array.
simdjson::simdjson_result<std::string_view> FirstText(ondemand::value prompt) {
  ondemand::json_type type{};
  if (const auto error = prompt.type().get(type)) return error;
  if (type == ondemand::json_type::string) return simdjson::to_json_string(prompt);
  ondemand::value first;
  if (const auto error = prompt.at(0).get(first)) return error;
  return simdjson::to_json_string(first);
}

}  // namespace

std::optional<std::string> TokenizeBody(const Request& request, std::string_view body) {
  const bool chat = request.form == PromptForm::kMessages;
  if (!chat && request.form != PromptForm::kText) return std::nullopt;
  const simdjson::padded_string padded(body);
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS) return std::nullopt;
  if (document.get_object().get(object) != simdjson::SUCCESS) return std::nullopt;

  const auto fields = chat ? std::span<const std::string_view>(kChatFields)
                           : std::span<const std::string_view>(kTextFields);
  std::string out;
  out.reserve(body.size());
  for (auto entry : object) {
    ondemand::field field;
    std::string_view key;
    if (std::move(entry).get(field) != simdjson::SUCCESS) return std::nullopt;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS) return std::nullopt;
    const bool prompt = !chat && key == "prompt";
    if (!prompt && !Contains(fields, key)) continue;
    ondemand::value value = field.value();
    std::string_view raw;
    auto text = prompt ? FirstText(value) : simdjson::to_json_string(value);
    if (std::move(text).get(raw) != simdjson::SUCCESS) return std::nullopt;
    AppendField(out, key, Trim(raw));  // the raw text of scalars ends with white space
  }
  if (out.empty()) return std::nullopt;
  out += '}';
  return out;
}

Result<std::vector<TokenId>> ParseTokenizeAnswer(std::string_view answer, std::size_t tokens_max) {
  dom::parser parser;
  dom::array tokens;
  if (parser.parse(answer.data(), answer.size())["tokens"].get(tokens) != simdjson::SUCCESS) {
    return Fail(ErrorCode::kUpstream, "the tokenize answer has no array `tokens`");
  }
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const dom::element token : tokens) {
    std::uint64_t id = 0;
    if (token.get(id) != simdjson::SUCCESS || id > std::numeric_limits<TokenId>::max()) {
      return Fail(ErrorCode::kUpstream, fmt::format("`tokens`[{}] is no token id", ids.size()));
    }
    if (ids.size() >= tokens_max) {
      return Fail(ErrorCode::kTooLarge, fmt::format("more than {} tokens", tokens_max));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace kvr::openai
