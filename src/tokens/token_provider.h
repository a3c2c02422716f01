// The token ids of a request's prompt.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "model/ids.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/task.h"
#include "openai/request.h"
#include "tokens/token_cache.h"

namespace kvr::tokens {

// Where the ids come from. The names are stable: headers and labels show them.
enum class TokenSource : std::uint8_t { kNone, kBody, kEngine, kCache };
inline constexpr std::array<std::string_view, 4> kTokenSourceNames = {"none", "body", "engine",
                                                                      "cache"};

// Why there are none. The names are stable.
enum class NoTokens : std::uint8_t {
  kHaveThem,
  kEmptyPrompt,
  kEmbeddings,   // the prompt is no text
  kMultimodal,   // token ids do not tell what the engine's block names cover
  kSwitchedOff,  // Options::ask_engines
  kNoEngine,     // nobody to ask
  kUnreachable,
  kTimeout,
  kUnsupported,           // the engine has no tokenize endpoint
  kRefused,               // the engine answered with another error
  kBadAnswer,             // no list of ids, or too long a one
  kTokenizerUnavailable,  // every engine failed to tokenize a moment ago, see Options
};
inline constexpr std::array<std::string_view, 12> kNoTokensNames = {
    "none",         "empty_prompt", "embeddings",  "multimodal",
    "switched_off", "no_engine",    "unreachable", "timeout",
    "unsupported",  "refused",      "bad_answer",  "tokenizer_unavailable"};

struct Tokens {
  // Borrows from `owner`, or from the request when the source is kBody.
  std::span<const TokenId> ids;
  TokenList owner;
  TokenSource source = TokenSource::kNone;
  NoTokens missing = NoTokens::kHaveThem;
  // The engine may render this prompt otherwise for serving than for its tokenize endpoint.
  bool approximate = false;
};

// Takes ids from the body when the prompt is ids, else asks an engine's POST /tokenize, remembering
// answers. Never fails a request: without ids it says why. Thread-safe; Get runs on I/O threads.
class TokenProvider {
 public:
  struct Options {
    bool ask_engines = true;
    Millis deadline{250};               // for all attempts of one request
    std::size_t engines_asked_max = 2;  // of one request
    std::size_t tokens_max = 4u << 20;  // of one answer
    Millis failed_pause{2'000};         // an engine that failed is not asked for so long
    Millis unsupported_pause{60'000};   // ... nor one without the endpoint
    TokenCache::Options cache = {};
  };

  // `client` and `clock` must outlive the provider.
  TokenProvider(net::HttpClient& client, const Clock& clock, const Options& options);

  // `body` is that of `request`; `engines` are the ones that serve its model, asked in turn. All
  // must stay valid until the task has ended.
  net::Task<Tokens> Get(const openai::Request& request, std::string_view body,
                        std::span<const net::Url> engines);

  [[nodiscard]] TokenCache::Stats cache_stats() const { return cache_.stats(); }

 private:
  struct Answer {
    TokenList tokens;
    NoTokens missing = NoTokens::kHaveThem;
    bool try_another = false;
  };

  net::Task<Answer> Ask(const net::Url& engine, const std::string& body, Millis limit);
  // The next engine to ask that did not fail a moment ago; null when there is none.
  const net::Url* NextEngine(std::span<const net::Url> engines) KVR_EXCLUDES(mutex_);
  void Pause(const net::Url& engine, NoTokens why) KVR_EXCLUDES(mutex_);

  net::HttpClient& client_;
  const Clock& clock_;
  const Options options_;
  TokenCache cache_;
  std::atomic<std::uint64_t> turn_{0};
  mutable Mutex mutex_;
  std::map<std::string, Nanos> paused_ KVR_GUARDED_BY(mutex_);  // engine → not asked until then
};

}  // namespace kvr::tokens
