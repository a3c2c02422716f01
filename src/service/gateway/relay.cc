#include "service/gateway/relay.h"

#include <string>
#include <utility>

#include "openai/api_error.h"
#include "service/gateway/forwarding.h"
#include "service/media_type.h"

namespace kvr::service {
namespace {

openai::ApiError BrokenOff() {
  return openai::FromError({ErrorCode::kUpstream, "the engine broke off its answer"});
}

openai::ApiError Stopping() {
  return openai::FromError({ErrorCode::kCancelled, "the gateway is shutting down"});
}

std::string TerminalEvents(const openai::ApiError& error, bool between_events) {
  return (between_events ? "" : "\n\n") + ("data: " + openai::ErrorBody(error)) +
         "\n\ndata: [DONE]\n\n";
}

// How long an engine may take, after its client has all, to end an answer so that its connection
// can be used again.
constexpr Millis kEngineEndTime{250};

// Compressed bytes are passed on, but say nothing to us.
bool IsReadable(const net::HttpHeaders& headers) {
  const auto encoding = headers.Find("Content-Encoding");
  return !encoding || net::EqualsIgnoreCase(*encoding, "identity");
}

bool HasType(const net::HttpHeaders& headers, std::string_view type) {
  const auto value = headers.Find("Content-Type");
  return value && IsMediaType(*value, type);
}

}  // namespace

Relay::Relay(net::HttpExchange& exchange, Dispatched& answer, RequestRecord& record,
             const GatewayOptions& options)
    : exchange_(exchange),
      answer_(answer),
      record_(record),
      options_(options),
      scanner_({.line_bytes_max = options.stream_line_bytes_max}) {}

net::Task<std::optional<openai::Usage>> Relay::Run(const net::HttpHeaders& headers) {
  const net::HttpHeaders& from_engine = answer_.stream->headers();
  if (HasType(from_engine, "text/event-stream") && IsReadable(from_engine)) {
    co_await RunEvents(headers);
  } else {
    co_await RunPlain(headers);
  }
  co_return complete_ ? usage_ : std::nullopt;
}

net::Task<void> Relay::RunEvents(const net::HttpHeaders& headers) {
  const auto begun = co_await exchange_.BeginStream(answer_.stream->status(), headers);
  if (!begun) co_return;
  static const std::string last_words = TerminalEvents(Stopping(), false);
  exchange_.SetLastWords(last_words);
  for (;;) {
    Result<std::string_view> piece = TakeFirst();
    if (piece->empty()) {
      piece = co_await answer_.stream->Read();
    }
    if (!piece && IsCancel(piece.error())) co_return;
    if (!piece || piece->empty()) {
      const std::string_view rest = piece ? scanner_.Rest() : std::string_view();
      co_await EndEvents(!piece, rest);
      co_return;
    }
    EndFirstByte();
    const std::string_view lines = scanner_.Feed(*piece);
    Account();
    if (scanner_.saw_done()) {
      co_await EndEvents(false, lines);
      co_await answer_.stream->ReadOut(kEngineEndTime);
      co_return;
    }
    if (lines.empty()) continue;
    const auto written = co_await exchange_.Write(lines);
    if (!written) co_return;
  }
}

net::Task<void> Relay::EndEvents(bool broke, std::string_view rest) {
  answer_.decision.booking.Free();
  usage_ = scanner_.usage();
  record_.metrics().stream_lines_unread.Add(scanner_.unread_lines());
  record_.metrics().stream_lines_malformed.Add(scanner_.malformed());
  record_.metrics().usage_implausible.Add(scanner_.implausible());
  const bool ended =
      scanner_.saw_done() || scanner_.saw_error() || (!broke && scanner_.finished_choices() > 0);
  std::string last(rest);
  if (!ended) last += TerminalEvents(BrokenOff(), scanner_.between_events() && last.empty());
  if (!ended || scanner_.saw_error()) {
    record_.EndAs(ended ? Outcome::kEngineError : Outcome::kEngineAborted);
    if (!ended) record_.metrics().upstream_aborted.Add();
  } else {
    Complete();
  }
  if (!last.empty()) {
    const auto written = co_await exchange_.Write(last);
    if (!written) co_return;
  }
  const auto end = co_await exchange_.EndStream();
  static_cast<void>(end);  // a client that left now has all it asked for
}

net::Task<void> Relay::RunPlain(const net::HttpHeaders& headers) {
  net::HttpStream& stream = *answer_.stream;
  const bool readable = IsReadable(stream.headers());
  Result<std::string_view> piece = TakeFirst();
  if (piece->empty()) {
    piece = co_await stream.Read();
  }
  if (!piece && IsCancel(piece.error())) co_return;
  if (!piece) {
    co_await RespondBroken();
    co_return;
  }
  EndFirstByte();
  const auto begun =
      co_await exchange_.BeginStream(stream.status(), headers, stream.content_length());
  if (!begun) co_return;
  std::string body;  // to be searched for usage
  bool whole = readable;
  while (!piece->empty()) {
    answer_.decision.booking.PrefillDone();
    record_.FirstToken();
    whole = whole && body.size() + piece->size() <= options_.answer_bytes_read_max;
    if (whole) body += *piece;
    const auto written = co_await exchange_.Write(*piece);
    if (!written) co_return;
    piece = co_await stream.Read();
    if (!piece && IsCancel(piece.error())) co_return;
    if (!piece) {
      answer_.decision.booking.Free();
      record_.EndAs(Outcome::kEngineAborted);
      record_.metrics().upstream_aborted.Add();
      exchange_.Abort();
      co_return;
    }
  }
  answer_.decision.booking.Free();
  if (whole) usage_ = openai::UsageOfAnswer(body);
  if (usage_ && !openai::IsPlausible(*usage_)) {
    record_.metrics().usage_implausible.Add();
    usage_.reset();
  }
  if (usage_) record_.metrics().output_tokens.Add(usage_->completion_tokens);
  Complete();
  const auto end = co_await exchange_.EndStream();
  static_cast<void>(end);
}

net::Task<void> Relay::RespondBroken() {
  answer_.decision.booking.Free();
  record_.EndAs(Outcome::kEngineAborted);
  record_.metrics().upstream_aborted.Add();
  const openai::ApiError error = BrokenOff();
  net::HttpResponse response = net::JsonResponse(error.status, openai::ErrorBody(error));
  const auto sent = co_await exchange_.Respond(std::move(response));
  static_cast<void>(sent);
}

void Relay::Account() {
  if (!scanner_.saw_output()) return;
  if (!std::exchange(output_seen_, true)) {
    answer_.decision.booking.PrefillDone();
    record_.FirstToken();
  }
  const std::uint64_t output = scanner_.output_tokens();
  if (output <= counted_output_) return;
  const std::uint64_t more = output - counted_output_;
  answer_.decision.booking.AddOutput(more);
  record_.metrics().output_tokens.Add(more);
  counted_output_ = output;
}

std::string_view Relay::TakeFirst() {
  return std::exchange(answer_.first, std::nullopt).value_or(std::string_view());
}

void Relay::EndFirstByte() {
  if (!std::exchange(first_byte_seen_, true)) record_.EndStage(Stage::kFirstByte);
}

void Relay::Complete() {
  complete_ = answer_.stream->status() < 400;
  record_.EndAs(complete_ ? Outcome::kOk : Outcome::kEngineError);
}

}  // namespace kvr::service
