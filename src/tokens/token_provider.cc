#include "tokens/token_provider.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "openai/tokenize_body.h"

namespace kvr::tokens {
namespace {

using openai::PromptForm;

Tokens None(NoTokens why) {
  Tokens tokens;
  tokens.missing = why;
  return tokens;
}

// What the request itself decides: ids in the body, or a reason why there can be none.
std::optional<Tokens> FromRequest(const openai::Request& request) {
  if (request.multimodal) return None(NoTokens::kMultimodal);
  if (request.form == PromptForm::kEmbeddings) return None(NoTokens::kEmbeddings);
  if (request.empty_prompt) return None(NoTokens::kEmptyPrompt);
  if (request.form != PromptForm::kTokens) return std::nullopt;
  Tokens tokens;
  tokens.ids = request.tokens;
  tokens.source = TokenSource::kBody;
  return tokens;
}

Tokens FromList(const openai::Request& request, TokenList list, TokenSource source) {
  if (list->empty()) return None(NoTokens::kEmptyPrompt);
  Tokens tokens;
  tokens.ids = *list;
  if (request.truncate_prompt_tokens && *request.truncate_prompt_tokens < list->size()) {
    tokens.ids = tokens.ids.last(*request.truncate_prompt_tokens);
  }
  tokens.owner = std::move(list);
  tokens.source = source;
  tokens.approximate = request.template_extras;
  return tokens;
}

NoTokens WhyFailed(const Error& error) {
  switch (error.code) {
    case ErrorCode::kTimeout:
      return NoTokens::kTimeout;
    case ErrorCode::kTooLarge:
      return NoTokens::kBadAnswer;
    default:
      return NoTokens::kUnreachable;
  }
}

NoTokens WhyRefused(int status) {
  return status == 404 || status == 405 || status == 501 ? NoTokens::kUnsupported
                                                         : NoTokens::kRefused;
}

net::HttpRequest TokenizeRequest(const std::string& body) {
  net::HttpRequest request;
  request.method = "POST";
  request.target = "/tokenize";
  request.headers.Add("Content-Type", "application/json");
  request.body = body;
  return request;
}

}  // namespace

TokenProvider::TokenProvider(net::HttpClient& client, const Clock& clock, const Options& options)
    : client_(client), clock_(clock), options_(options), cache_(options.cache) {}

net::Task<Tokens> TokenProvider::Get(const openai::Request& request, std::string_view body,
                                     std::span<const net::Url> engines) {
  if (auto tokens = FromRequest(request)) co_return *std::move(tokens);
  if (!options_.ask_engines) co_return None(NoTokens::kSwitchedOff);
  const auto input = openai::TokenizeBody(request, body);
  if (!input) co_return None(NoTokens::kRefused);
  if (TokenList known = cache_.Find(*input)) {
    co_return FromList(request, std::move(known), TokenSource::kCache);
  }

  const Nanos end = clock_.Now() + options_.deadline;
  NoTokens missing = engines.empty() ? NoTokens::kNoEngine : NoTokens::kTokenizerUnavailable;
  for (std::size_t asked = 0; asked < options_.engines_asked_max; ++asked) {
    const auto left = std::chrono::ceil<Millis>(end - clock_.Now());
    if (left <= Millis{0}) co_return None(NoTokens::kTimeout);
    const net::Url* engine = NextEngine(engines);
    if (engine == nullptr) break;
    Answer answer = co_await Ask(*engine, *input, left);
    if (answer.tokens) {
      cache_.Put(*input, answer.tokens);
      co_return FromList(request, std::move(answer.tokens), TokenSource::kEngine);
    }
    missing = answer.missing;
    if (!answer.try_another) break;
    Pause(*engine, missing);
  }
  co_return None(missing);
}

net::Task<TokenProvider::Answer> TokenProvider::Ask(const net::Url& engine, const std::string& body,
                                                    Millis limit) {
  const net::HttpRequest request = TokenizeRequest(body);
  auto response = co_await client_.FetchWithin(limit, engine, request);
  Answer answer;
  if (!response) {
    answer.missing = WhyFailed(response.error());
    // A cancelled request says nothing about the engine, nor does one that lacked a descriptor.
    answer.try_another = answer.missing != NoTokens::kBadAnswer &&
                         response.error().code != ErrorCode::kOverloaded &&
                         response.error().code != ErrorCode::kCancelled &&
                         response.error().code != ErrorCode::kClientGone;
    co_return answer;
  }
  if (response->status != 200) {
    answer.missing = WhyRefused(response->status);
    // A 4xx is about this prompt: another engine would say the same.
    answer.try_another = answer.missing == NoTokens::kUnsupported || response->status >= 500;
    co_return answer;
  }
  auto ids = openai::ParseTokenizeAnswer(response->body, options_.tokens_max);
  if (!ids) {
    answer.missing = NoTokens::kBadAnswer;
    co_return answer;
  }
  answer.tokens = std::make_shared<const std::vector<TokenId>>(*std::move(ids));
  co_return answer;
}

const net::Url* TokenProvider::NextEngine(std::span<const net::Url> engines) {
  if (engines.empty()) return nullptr;
  // Relaxed: only the spread over engines depends on it.
  const std::size_t first = turn_.fetch_add(1, std::memory_order_relaxed) % engines.size();
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const net::Url& engine = engines[(first + i) % engines.size()];
    const auto paused = paused_.find(engine.authority());
    if (paused == paused_.end() || paused->second <= now) return &engine;
  }
  return nullptr;
}

void TokenProvider::Pause(const net::Url& engine, NoTokens why) {
  const Millis pause =
      why == NoTokens::kUnsupported ? options_.unsupported_pause : options_.failed_pause;
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  std::erase_if(paused_, [now](const auto& entry) { return entry.second <= now; });
  paused_[engine.authority()] = now + pause;
}

}  // namespace kvr::tokens
