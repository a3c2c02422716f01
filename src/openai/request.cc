#include "openai/request.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

namespace kvr::openai {
namespace {

namespace dom = simdjson::dom;

constexpr std::uint64_t kTokenMax = std::numeric_limits<TokenId>::max();

tl::unexpected<ApiError> Bad(std::string_view param, std::string message,
                             std::string code = "invalid_value") {
  return tl::unexpected<ApiError>(
      BadField(std::string(param), std::move(message), std::move(code)));
}

tl::unexpected<ApiError> BadJson(simdjson::error_code error) {
  if (error == simdjson::DEPTH_ERROR) {
    return Bad("", "the body nests deeper than this server reads; flatten it", "bad_json");
  }
  return Bad("", fmt::format("the body is no valid JSON: {}", simdjson::error_message(error)),
             "bad_json");
}

// Parsing writes some ten bytes of scratch for each byte of the body. Keeping them spares asking
// the kernel for fresh pages with every request, which costs more than the parsing; what is larger
// than this gets a parser of its own, so that a thread keeps about 10 MiB at most.
constexpr std::size_t kKeptBytesMin = 4u << 10;
constexpr std::size_t kKeptBytesMax = 1u << 20;

dom::parser& KeptParser() {
  thread_local dom::parser parser;
  return parser;
}

// The fields this reader knows. An enumerator indexes kNames and `Fields`.
enum Field : std::size_t {
  kModel,
  kPrompt,
  kMessages,
  kInputIds,
  kPromptEmbeds,
  kStream,
  kStreamOptions,
  kMaxTokens,
  kMaxCompletionTokens,
  kN,
  kCacheSalt,
  kTruncate,
  kDocuments,
  kReasoningEffort,
  kVllmXargs,
  kExtraArgs,
  kFieldCount,
};
constexpr std::array<std::string_view, kFieldCount> kNames = {"model",
                                                              "prompt",
                                                              "messages",
                                                              "input_ids",
                                                              "prompt_embeds",
                                                              "stream",
                                                              "stream_options",
                                                              "max_tokens",
                                                              "max_completion_tokens",
                                                              "n",
                                                              "cache_salt",
                                                              "truncate_prompt_tokens",
                                                              "documents",
                                                              "reasoning_effort",
                                                              "vllm_xargs",
                                                              "extra_args"};

// Known fields of the body; null counts as absent.
class Fields {
 public:
  static Result<Fields, ApiError> Collect(dom::object object) {
    Fields fields;
    std::array<bool, kFieldCount> seen{};
    for (const dom::key_value_pair pair : object) {
      for (std::size_t i = 0; i < kFieldCount; ++i) {
        if (pair.key != kNames[i]) continue;
        if (seen[i]) return Bad(kNames[i], fmt::format("`{}` is given twice", kNames[i]));
        seen[i] = true;
        if (!pair.value.is_null()) fields.values_[i] = pair.value;
      }
    }
    return fields;
  }

  [[nodiscard]] bool Has(Field field) const { return values_[field].has_value(); }
  [[nodiscard]] const dom::element& operator[](Field field) const { return *values_[field]; }

  Result<void, ApiError> Read(Field field, bool& out) const {
    if (Has(field) && values_[field]->get(out) != simdjson::SUCCESS) {
      return Bad(kNames[field], fmt::format("`{}` must be true or false", kNames[field]));
    }
    return {};
  }

  Result<void, ApiError> Read(Field field, std::size_t bytes_max, std::string& out) const {
    if (!Has(field)) return {};
    std::string_view text;
    if (values_[field]->get(text) != simdjson::SUCCESS) {
      return Bad(kNames[field], fmt::format("`{}` must be a string", kNames[field]));
    }
    if (text.size() > bytes_max) {
      return Bad(kNames[field],
                 fmt::format("`{}` is longer than {} bytes", kNames[field], bytes_max));
    }
    out = text;
    return {};
  }

  // Absent leaves `out` alone.
  Result<void, ApiError> Read(Field field, std::int64_t min, std::int64_t max,
                              std::optional<std::int64_t>& out) const {
    if (!Has(field)) return {};
    std::int64_t number = 0;
    if (values_[field]->get(number) != simdjson::SUCCESS || number < min || number > max) {
      return Bad(kNames[field],
                 fmt::format("`{}` must be an integer from {} to {}", kNames[field], min, max));
    }
    out = number;
    return {};
  }

 private:
  std::array<std::optional<dom::element>, kFieldCount> values_;
};

constexpr std::int64_t kUint32Max = std::numeric_limits<std::uint32_t>::max();

// Appends the ids of one array to `out` when it is given, and counts them in any case.
Result<void, ApiError> ReadIds(Field field, dom::array array, std::size_t ids_max,
                               std::size_t& count, std::vector<TokenId>* out) {
  if (out != nullptr) out->reserve(std::min(array.size(), ids_max));
  for (const dom::element item : array) {
    std::uint64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS || id > kTokenMax) {
      return Bad(kNames[field],
                 fmt::format("`{}` holds something that is no token id (0 to {}) at {}",
                             kNames[field], kTokenMax, count));
    }
    if (++count > ids_max) {
      return Bad(kNames[field],
                 fmt::format("`{}` holds more than {} token ids", kNames[field], ids_max),
                 "too_large");
    }
    if (out != nullptr) out->push_back(static_cast<TokenId>(id));
  }
  return {};
}

Result<void, ApiError> ReadTokenBatch(Field field, dom::array batch, const RequestLimits& limits,
                                      Request& request) {
  std::size_t count = 0;
  std::size_t index = 0;
  for (const dom::element item : batch) {
    dom::array ids;
    if (item.get(ids) != simdjson::SUCCESS) {
      return Bad(kNames[field], fmt::format("`{}` mixes arrays with other things", kNames[field]));
    }
    KVR_TRY_VOID(
        ReadIds(field, ids, limits.tokens_max, count, index++ == 0 ? &request.tokens : nullptr));
  }
  request.form = PromptForm::kTokens;
  request.empty_prompt = request.tokens.empty();
  return {};
}

Result<void, ApiError> ReadTextBatch(dom::array batch, Request& request) {
  bool first = true;
  for (const dom::element item : batch) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS) {
      return Bad("prompt", "`prompt` mixes strings with other things");
    }
    if (std::exchange(first, false)) request.empty_prompt = text.empty();
  }
  request.form = PromptForm::kText;
  return {};
}

Result<void, ApiError> ReadPromptArray(Field field, dom::array array, const RequestLimits& limits,
                                       Request& request) {
  const dom::array::iterator first = array.begin();
  if (!(first != array.end())) {
    return Bad(kNames[field], fmt::format("`{}` is an empty array", kNames[field]));
  }
  const dom::element head = *first;
  if (head.is_string() || head.is_array()) {
    request.prompts = array.size();
    if (request.prompts > limits.prompts_max) {
      return Bad(kNames[field],
                 fmt::format("more than {} prompts in one request", limits.prompts_max),
                 "too_large");
    }
  }
  if (head.is_string() && field == kPrompt) return ReadTextBatch(array, request);
  if (head.is_array() && field == kPrompt) return ReadTokenBatch(field, array, limits, request);
  std::size_t count = 0;
  KVR_TRY_VOID(ReadIds(field, array, limits.tokens_max, count, &request.tokens));
  request.form = PromptForm::kTokens;
  return {};
}

Result<void, ApiError> ReadPrompt(const Fields& fields, const RequestLimits& limits,
                                  Request& request) {
  if (!fields.Has(kPrompt)) {
    if (!fields.Has(kPromptEmbeds)) {
      return Bad("prompt", "`prompt` is missing", "missing_field");
    }
    request.form = PromptForm::kEmbeddings;
    return {};
  }
  if (fields.Has(kPromptEmbeds)) {
    request.form = PromptForm::kEmbeddings;
  }
  const dom::element& prompt = fields[kPrompt];
  std::string_view text;
  dom::array array;
  if (prompt.get(text) == simdjson::SUCCESS) {
    if (request.form != PromptForm::kEmbeddings) request.form = PromptForm::kText;
    request.empty_prompt = text.empty();
    return {};
  }
  if (prompt.get(array) != simdjson::SUCCESS) {
    return Bad("prompt",
               "`prompt` must be a string, an array of strings, of token ids or of arrays of "
               "token ids");
  }
  return ReadPromptArray(kPrompt, array, limits, request);
}

bool HasOtherThanText(const dom::element& message) {
  dom::array parts;
  if (message["content"].get(parts) != simdjson::SUCCESS) return false;
  for (const dom::element part : parts) {
    std::string_view type;
    if (part.is_string()) continue;
    if (part["type"].get(type) != simdjson::SUCCESS) return true;
    if (type != "text" && type != "refusal" && type != "thinking") return true;
  }
  return false;
}

Result<void, ApiError> ReadMessages(const Fields& fields, const RequestLimits& limits,
                                    Request& request) {
  if (!fields.Has(kMessages)) return Bad("messages", "`messages` is missing", "missing_field");
  dom::array messages;
  if (fields[kMessages].get(messages) != simdjson::SUCCESS) {
    return Bad("messages", "`messages` must be an array of objects");
  }
  std::size_t count = 0;
  for (const dom::element message : messages) {
    if (!message.is_object()) return Bad("messages", "`messages` must be an array of objects");
    if (++count > limits.messages_max) {
      return Bad("messages", fmt::format("more than {} messages", limits.messages_max),
                 "too_large");
    }
    request.multimodal = request.multimodal || HasOtherThanText(message);
  }
  if (count == 0) return Bad("messages", "`messages` is an empty array");
  request.form = PromptForm::kMessages;
  return {};
}

Result<void, ApiError> ReadChat(const Fields& fields, const RequestLimits& limits,
                                Request& request) {
  request.template_extras = fields.Has(kDocuments) || fields.Has(kReasoningEffort);
  KVR_TRY_VOID(ReadMessages(fields, limits, request));
  if (!fields.Has(kInputIds)) return {};
  dom::array ids;
  if (fields[kInputIds].get(ids) != simdjson::SUCCESS) {
    return Bad("input_ids", "`input_ids` must be an array of token ids");
  }
  return ReadPromptArray(kInputIds, ids, limits, request);
}

Result<void, ApiError> ReadNumbers(const Fields& fields, Request& request) {
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> choices;
  std::optional<std::int64_t> truncate;
  KVR_TRY_VOID(fields.Read(kMaxTokens, 0, kUint32Max, max_tokens));
  KVR_TRY_VOID(fields.Read(kMaxCompletionTokens, 0, kUint32Max, max_tokens));
  KVR_TRY_VOID(fields.Read(kN, 1, 1'024, choices));
  KVR_TRY_VOID(fields.Read(kTruncate, -1, kUint32Max, truncate));
  if (max_tokens) request.max_tokens = static_cast<std::uint32_t>(*max_tokens);
  if (choices) request.choices = static_cast<std::uint32_t>(*choices);
  if (truncate && *truncate > 0) {
    request.truncate_prompt_tokens = static_cast<std::uint32_t>(*truncate);
  }
  return {};
}

Result<void, ApiError> ReadTexts(const Fields& fields, std::size_t bytes_max, Request& request) {
  if (!fields.Has(kModel)) return Bad("model", "`model` is missing", "missing_field");
  KVR_TRY_VOID(fields.Read(kModel, bytes_max, request.model));
  if (request.model.empty()) return Bad("model", "`model` is empty");
  KVR_TRY_VOID(fields.Read(kCacheSalt, bytes_max, request.cache_salt));
  return {};
}

Result<void, ApiError> ReadStream(const Fields& fields, Request& request) {
  KVR_TRY_VOID(fields.Read(kStream, request.stream));
  if (!fields.Has(kStreamOptions)) return {};
  if (!fields[kStreamOptions].is_object()) {
    return Bad("stream_options", "`stream_options` must be an object");
  }
  bool include_usage = false;
  if (fields[kStreamOptions]["include_usage"].get(include_usage) == simdjson::SUCCESS) {
    request.include_usage = include_usage;
  }
  return {};
}

// vLLM's way to have blocks announced again that it did not store again. They look like further
// copies, so that an index would never see their last one go.
constexpr std::string_view kReportMode = "kv_cache_report_mode";

Result<void, ApiError> RefuseReportMode(const Fields& fields) {
  for (const Field field : {kVllmXargs, kExtraArgs}) {
    dom::object object;
    if (!fields.Has(field) || fields[field].get(object) != simdjson::SUCCESS) continue;
    for (const dom::key_value_pair pair : object) {
      if (pair.key != kReportMode || pair.value.is_null()) continue;
      return Bad(kNames[field],
                 fmt::format("`{}` makes an engine announce blocks that it does not store, so that "
                             "nobody can tell which it holds; leave it out",
                             kReportMode));
    }
  }
  return {};
}

// Engines keep the end of a prompt that is too long.
void Truncate(Request& request) {
  if (!request.truncate_prompt_tokens) return;
  const std::size_t keep = *request.truncate_prompt_tokens;
  if (request.tokens.size() <= keep) return;
  request.tokens.erase(request.tokens.begin(),
                       request.tokens.end() - static_cast<std::ptrdiff_t>(keep));
}

}  // namespace

std::string_view ApiName(Api api) {
  return api == Api::kChat ? "chat" : "completions";
}

std::string_view ApiPath(Api api) {
  return api == Api::kChat ? "/v1/chat/completions" : "/v1/completions";
}

Result<Request, ApiError> ParseRequest(Api api, std::string_view body,
                                       const RequestLimits& limits) {
  dom::parser own;
  dom::parser& parser = body.size() <= kKeptBytesMax ? KeptParser() : own;
  if (parser.capacity() < body.size() || parser.max_depth() != limits.depth_max) {
    const std::size_t capacity = std::max(std::bit_ceil(body.size()), kKeptBytesMin);
    if (const auto error = parser.allocate(capacity, limits.depth_max)) return BadJson(error);
  }
  dom::element root;
  if (const auto error = parser.parse(body.data(), body.size()).get(root)) return BadJson(error);
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return Bad("", "the body must be a JSON object", "bad_json");
  }
  KVR_TRY(const Fields fields, Fields::Collect(object));
  Request request;
  request.api = api;
  KVR_TRY_VOID(ReadTexts(fields, limits.name_bytes_max, request));
  KVR_TRY_VOID(ReadStream(fields, request));
  KVR_TRY_VOID(ReadNumbers(fields, request));
  KVR_TRY_VOID(RefuseReportMode(fields));
  if (api == Api::kChat) {
    KVR_TRY_VOID(ReadChat(fields, limits, request));
  } else {
    KVR_TRY_VOID(ReadPrompt(fields, limits, request));
  }
  Truncate(request);
  return request;
}

}  // namespace kvr::openai
