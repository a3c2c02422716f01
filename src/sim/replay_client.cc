#include "sim/replay_client.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "net/http_client.h"
#include "net/io_runtime.h"
#include "net/task.h"
#include "openai/stream_scanner.h"
#include "sim/trace_tokens.h"

namespace kvr::sim {
namespace {

Nanos FromMs(double ms) {
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double, std::milli>(ms));
}

std::optional<std::uint64_t> NumberHeader(const net::HttpHeaders& headers, std::string_view name) {
  const auto text = headers.Find(name);
  if (!text) return std::nullopt;
  return ParseNumber<std::uint64_t>(*text);
}

// The run of one arm. Everything in it happens on one I/O thread.
class Run {
 public:
  Run(net::IoRuntime& runtime, const net::Url& router, const Trace& trace,
      const ReplayOptions& options, const ReplayProgress& progress)
      : runtime_(runtime),
        router_(router),
        trace_(trace),
        options_(options),
        progress_(progress),
        client_(runtime, ClientOptions(options)),
        records_(trace.requests.size()),
        waits_for_(trace.requests.size()),
        followers_(trace.requests.size()) {
    for (std::size_t i = 0; i < trace.requests.size(); ++i) {
      records_[i].index = i;
      const TraceRequest& request = trace.requests[i];
      waits_for_[i] = request.after.size();
      for (const std::size_t before : request.after)
        followers_[before].push_back(i);
      if (request.after.empty()) due_.emplace(FromMs(request.timestamp_ms), i);
    }
  }

  net::Task<void> Dispatch() {
    start_ = clock_.Now();
    while (ended_ < records_.size()) {
      const Nanos now = clock_.Now() - start_;
      while (!due_.empty() && due_.top().first <= now) {
        const auto [due, index] = due_.top();
        due_.pop();
        records_[index].due = due;
        Begin(index);
      }
      if (ended_ == records_.size()) break;
      if (due_.empty()) {
        co_await changed_.Wait();
      } else {
        co_await changed_.WaitFor(due_.top().first - (clock_.Now() - start_));
      }
    }
  }

  std::vector<RequestRecord> TakeRecords() { return std::move(records_); }

 private:
  static net::HttpClient::Options ClientOptions(const ReplayOptions& options) {
    net::HttpClient::Options client;
    client.read_timeout = options.silence_max;
    return client;
  }

  void Begin(std::size_t index) {
    if (in_flight_ >= options_.in_flight_max) {
      records_[index].error = "too many requests under way in the client";
      End(index);
      return;
    }
    ++in_flight_;
    runtime_.SpawnOn(0, [this, index] { return SendAndEnd(index); });
  }

  net::Task<void> SendAndEnd(std::size_t index) {
    co_await Send(records_[index]);
    records_[index].done = Since(records_[index]);
    --in_flight_;
    End(index);
  }

  net::Task<void> Send(RequestRecord& record) {
    net::HttpRequest request;
    request.method = "POST";
    request.target = "/v1/completions";
    request.headers.Add("Content-Type", "application/json");
    request.body = CompletionBody(trace_.requests[record.index], trace_.block_tokens, options_);
    record.sent = Since(record);
    auto opened = co_await client_.Open(router_, request);
    if (!opened) {
      record.error = opened.error().message;
      co_return;
    }
    net::HttpStream& stream = **opened;
    ReadHeaders(stream.headers(), record);
    if (stream.status() != 200) {
      record.error = fmt::format("status {}", stream.status());
      co_return;
    }
    co_await ReadStream(stream, record);
  }

  static void ReadHeaders(const net::HttpHeaders& headers, RequestRecord& record) {
    record.worker = headers.Find("x-kvroute-worker").value_or("?");
    record.dp_rank =
        static_cast<std::uint32_t>(NumberHeader(headers, "x-kvroute-dp-rank").value_or(0));
    record.predicted_cached_tokens = NumberHeader(headers, "x-kvroute-predicted-cached-tokens");
  }

  net::Task<void> ReadStream(net::HttpStream& stream, RequestRecord& record) {
    openai::StreamScanner scanner(openai::StreamScanner::Options{});
    while (true) {
      auto piece = co_await stream.Read();
      if (!piece) {
        record.error = piece.error().message;
        co_return;
      }
      if (piece->empty()) break;
      static_cast<void>(scanner.Feed(*piece));
      if (record.first_token == Nanos{0} && scanner.saw_output()) {
        record.first_token = Since(record);
      }
    }
    if (scanner.saw_error()) {
      record.error = "the stream carried an error";
    } else if (!scanner.saw_done()) {
      record.error = "the stream ended without [DONE]";
    } else if (!scanner.usage()) {
      record.error = "the stream carried no usage";
    } else {
      record.prompt_tokens = scanner.usage()->prompt_tokens;
      record.output_tokens = scanner.usage()->completion_tokens;
      record.actual_cached_tokens = scanner.usage()->cached_tokens;
    }
  }

  void End(std::size_t index) {
    ++ended_;
    if (!records_[index].error.empty()) ++errors_;
    for (const std::size_t follower : followers_[index]) {
      if (--waits_for_[follower] == 0) {
        due_.emplace(clock_.Now() - start_ + FromMs(trace_.requests[follower].delay_ms), follower);
      }
    }
    if (progress_) progress_(ended_, errors_);
    changed_.Notify();
  }

  [[nodiscard]] Nanos Since(const RequestRecord& record) const {
    return clock_.Now() - start_ - record.due;
  }

  using Due = std::pair<Nanos, std::size_t>;

  net::IoRuntime& runtime_;
  const net::Url& router_;
  const Trace& trace_;
  const ReplayOptions& options_;
  const ReplayProgress& progress_;
  const SystemClock clock_;
  net::HttpClient client_;
  net::Signal changed_;
  Nanos start_{0};
  std::vector<RequestRecord> records_;
  std::vector<std::size_t> waits_for_;
  std::vector<std::vector<std::size_t>> followers_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t in_flight_ = 0;
  std::size_t ended_ = 0;
  std::size_t errors_ = 0;
};

}  // namespace

std::string CompletionBody(const TraceRequest& request, std::uint32_t block_tokens,
                           const ReplayOptions& options) {
  const std::vector<TokenId> prompt =
      SynthesizePrompt(request, block_tokens, options.vocabulary, options.seed);
  std::string body;
  body.reserve(prompt.size() * 7 + 256);
  JsonWriter json(body);
  json.BeginObject();
  json.Field("model", options.model);
  json.Key("prompt");
  json.BeginArray();
  for (const TokenId token : prompt)
    json.Value(token);
  json.EndArray();
  json.Field("max_tokens", std::max<std::uint32_t>(request.output_tokens, 1));
  json.Field("stream", true);
  json.Key("stream_options");
  json.BeginObject();
  json.Field("include_usage", true);
  json.EndObject();
  json.EndObject();
  return body;
}

std::vector<RequestRecord> RunReplay(const net::Url& router, const Trace& trace,
                                     const ReplayOptions& options, const ReplayProgress& progress) {
  net::IoRuntime runtime(net::IoRuntime::Options{1, "replay"});
  Run run(runtime, router, trace, options, progress);
  runtime.RunBlocking([&run] { return run.Dispatch(); });
  runtime.Stop();  // no task is left that could still touch `run`
  return run.TakeRecords();
}

}  // namespace kvr::sim
