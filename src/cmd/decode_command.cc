#include "cmd/decode_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <simdjson.h>

#include "base/hex.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "base/text.h"
#include "cmd/decode_json.h"
#include "cmd/decode_text.h"
#include "cmd/parse_words.h"
#include "fleet/catalog.h"
#include "ingest/live_frames.h"
#include "ingest/rank_stream.h"
#include "net/event_socket.h"
#include "placement/drop_text.h"
#include "placement/event_translator.h"
#include "wire/capture_file.h"
#include "wire/event_decoder.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute decode";
// A longer line is answered with an error: twice the largest payload, and some.
constexpr std::size_t kLineBytesMax = std::size_t{132} << 20;

// Lines of a file, without their ends.
class LineReader {
 public:
  explicit LineReader(std::FILE* in) : in_(in) {}

  // False at the end. A line beyond kLineBytesMax is given as its first bytes, `cut` set.
  bool Next(std::string& line, bool& cut) {
    line.clear();
    cut = false;
    bool any = false;
    for (int c = 0; (c = NextByte()) != EOF;) {
      any = true;
      if (c == '\n') break;
      cut = line.size() >= kLineBytesMax;
      if (!cut) line.push_back(static_cast<char>(c));
    }
    return any;
  }

 private:
  int NextByte() {
    if (at_ == have_) {
      have_ = std::fread(room_.data(), 1, room_.size(), in_);
      at_ = 0;
      if (have_ == 0) return EOF;
    }
    return static_cast<unsigned char>(room_[at_++]);
  }

  std::FILE* in_;
  std::array<char, 65536> room_;
  std::size_t at_ = 0;
  std::size_t have_ = 0;
};

struct Frame {
  std::optional<std::string> name;
  std::vector<std::byte> payload;
};

// A line is hex digits, or a JSON object with the field `hex` and perhaps `name`.
Result<void> ReadFrame(std::string_view line, simdjson::dom::parser& parser, Frame& frame) {
  std::string_view hex = line;
  if (line.starts_with('{')) {
    simdjson::dom::element object;
    if (parser.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) {
      return Fail(ErrorCode::kBadJson, "the line starts like JSON and is none");
    }
    std::string_view name;
    if (object["name"].get(name) == simdjson::SUCCESS) frame.name = name;
    if (object["hex"].get(hex) != simdjson::SUCCESS) {
      return Fail(ErrorCode::kUnprocessable, "the JSON object has no text field `hex`");
    }
  }
  KVR_TRY(frame.payload, FromHex(hex));
  return {};
}

// Prints one answer a payload: a JSON line, or with `explain` a paragraph.
class Printer {
 public:
  explicit Printer(bool explain) : explain_(explain) {}

  // The answer to one payload; whether it is a batch. `head` writes what is known of it beside the
  // payload: JSON fields, or the words behind `title`.
  template <typename Head>
  bool Payload(std::span<const std::byte> payload, placement::EventTranslator& translator,
               std::string_view title, Head head) {
    const placement::TranslatorStats before = translator.stats();
    const auto done = translator.Translate(payload, batch_);
    if (!done) {
      translator.ForgetCounts();  // there may have been removals
      Error(title, head,
            fmt::format("no event batch: {} at byte {} of {}",
                        placement::BatchErrorName(done.error().code), done.error().offset,
                        payload.size()));
      return false;
    }
    const DecodedBatch decoded(translator, batch_, before);
    if (explain_) {
      const std::string rank =
          batch_.dp_rank ? fmt::format("rank {}", *batch_.dp_rank) : "no rank named";
      const std::size_t events =
          translator.decoded().events.size() + translator.decoded().bad.size();
      fmt::format_to(std::back_inserter(out_), "{}: {} bytes, {}, ts {}, {} event{}\n", title,
                     payload.size(), rank, batch_.ts, events, events == 1 ? "" : "s");
      ExplainBatch(decoded, salts_, out_);
      return true;
    }
    JsonWriter json(out_);
    json.BeginObject();
    head(json);
    json.Field("ok", true);
    WriteBatch(json, decoded, salts_);
    json.EndObject();
    out_ += '\n';
    return true;
  }

  // The answer to a message that its stream does not hand on.
  template <typename Head>
  void PassedOver(std::string_view title, Head head, std::string_view why) {
    if (explain_) {
      fmt::format_to(std::back_inserter(out_), "{}: passed over: {}\n", title, why);
      return;
    }
    JsonWriter json(out_);
    json.BeginObject();
    head(json);
    json.Field("ok", true);
    json.Field("passed_over", why);
    json.EndObject();
    out_ += '\n';
  }

  // The answer to what is no payload.
  template <typename Head>
  void Error(std::string_view title, Head head, std::string_view message) {
    ++errors_;
    if (explain_) {
      fmt::format_to(std::back_inserter(out_), "{}: dropped whole: {}\n", title, message);
      return;
    }
    JsonWriter json(out_);
    json.BeginObject();
    head(json);
    json.Field("ok", false);
    json.Field("error", message);
    json.EndObject();
    out_ += '\n';
  }

  [[nodiscard]] bool explain() const { return explain_; }
  [[nodiscard]] std::size_t errors() const { return errors_; }
  // A line between answers; only where people read.
  void Remark(std::string_view text) {
    if (explain_) fmt::format_to(std::back_inserter(out_), "{}\n", text);
  }

  // False when standard output takes no more.
  bool Flush() {
    const bool good = std::fwrite(out_.data(), 1, out_.size(), stdout) == out_.size();
    out_.clear();
    return good;
  }

 private:
  const bool explain_;
  std::size_t errors_ = 0;
  SaltNames salts_;
  placement::PlacementBatch batch_;
  std::string out_;
};

int CannotRead(std::string_view what) {
  std::fprintf(stderr, "%s: cannot read %s\n", kName.data(), std::string(what).c_str());
  return 1;
}

int FoundNothing(std::string_view what) {
  std::fprintf(stderr, "%s: there is no frame in %s\n", kName.data(), std::string(what).c_str());
  return 1;
}

// Each line is decoded on its own unless all are one stream.
int DecodeLines(std::FILE* in, std::string_view what, const placement::TranslatorOptions& options,
                bool stream, Printer& printer) {
  placement::EventTranslator translator(options);
  simdjson::dom::parser parser;
  const auto reader = std::make_unique<LineReader>(in);
  std::string line;
  bool cut = false;
  std::size_t count = 0;
  while (reader->Next(line, cut)) {
    const std::string_view text = Trim(line);
    if (text.empty()) continue;
    Frame frame;
    const auto read = cut ? Fail(ErrorCode::kTooLarge, "the line is too long to be a frame")
                          : ReadFrame(text, parser, frame);
    const auto head = [&frame](JsonWriter& json) {
      if (frame.name) json.Field("name", *frame.name);
    };
    const std::string title =
        fmt::format("frame {}{}{}", ++count, frame.name ? " " : "", frame.name.value_or(""));
    if (!stream) translator = placement::EventTranslator(options);
    if (read) {
      printer.Payload(frame.payload, translator, title, head);
    } else {
      printer.Error(title, head, read.error().message);
    }
    if (!printer.Flush()) return 1;
  }
  if (std::ferror(in) != 0) return CannotRead(what);
  if (printer.errors() < count) return 0;
  if (count == 0) return FoundNothing(what);
  std::fprintf(stderr,
               "%s: none of the %zu lines of %s is an event batch; a line is one payload as "
               "hex, or JSON with a field `hex`\n",
               kName.data(), count, std::string(what).c_str());
  return 1;
}

// One recorded stream, followed as an indexer without a replay endpoint follows it: the same code
// says what is a gap, a restart, a repetition or a stray.
class RecordedStream : public ingest::StreamSink {
 public:
  RecordedStream(const placement::TranslatorOptions& options, Printer& printer)
      : translator_(options), printer_(printer), stream_({}, ingest::Backlog::kNone, *this) {}

  // Prints what becomes of the message; `first` is when the capture began.
  void Take(const wire::CaptureMessage& message, Nanos first);

 private:
  Outcome Apply(std::uint64_t sequence, std::span<const std::byte> payload) override;
  void Clear() override { translator_.Reset(); }
  void NoteLoss() override { translator_.ForgetCounts(); }
  // Nothing can be asked for.
  void StartReplay(std::uint64_t /*from*/) override {}
  void StopReplay() override {}
  void StartSnapshot() override {}
  void AskState() override {}
  bool BeginSnapshot(std::uint64_t /*blocks*/) override { return false; }
  Piece AddPiece(std::span<const std::byte> /*events*/) override { return Piece::kNoRoom; }
  [[nodiscard]] std::uint64_t gathered() const override { return 0; }
  void Swap(std::uint64_t /*last_event*/) override {}
  bool Empties(std::span<const std::byte> /*payload*/) override { return false; }
  void SetState(RankState /*state*/, StateReason /*reason*/, std::string_view /*detail*/) override {
  }

  [[nodiscard]] std::string Title() const {
    if (!sequence_) return fmt::format("source {}, after {:.3f} s", message_->source, after_);
    return fmt::format("source {}, message {}, after {:.3f} s", message_->source, *sequence_,
                       after_);
  }
  [[nodiscard]] auto Head() const {
    return [this](JsonWriter& json) {
      json.Field("source", message_->source);
      if (sequence_) json.Field("sequence", *sequence_);
      json.Field("received", std::chrono::duration<double>(message_->received).count());
      if (!note_.empty()) json.Field("note", note_);
    };
  }

  placement::EventTranslator translator_;
  Printer& printer_;
  net::Frames frames_;
  // Of the message at hand.
  const wire::CaptureMessage* message_ = nullptr;
  double after_ = 0;
  std::optional<std::uint64_t> sequence_;
  std::optional<std::uint64_t> passed_;  // the last number before it
  ingest::StreamStats before_;
  std::string note_;
  ingest::RankStream stream_;  // last: it calls this object from its constructor
};

void RecordedStream::Take(const wire::CaptureMessage& message, Nanos first) {
  message_ = &message;
  after_ = std::chrono::duration<double>(message.received - first).count();
  std::span<const std::byte> payload;
  sequence_.reset();
  const ingest::FrameFault fault = ingest::ReadLive(message.frames, sequence_, payload);
  before_ = stream_.stats();
  passed_ = stream_.watermark();
  note_.clear();
  if (!sequence_) {
    printer_.Error(Title(), Head(),
                   fmt::format("{}: {} frames are no topic, sequence number of 8 bytes and "
                               "payload",
                               ingest::FrameFaultName(fault), message.frames.size()));
    return;
  }
  frames_.Clear();
  for (const auto frame : message.frames)
    frames_.Add().assign(frame.begin(), frame.end());
  stream_.OnLive(frames_, message.received);
  const ingest::StreamStats& after = stream_.stats();
  if (after.repeated > before_.repeated) {
    printer_.PassedOver(Title(), Head(),
                        "repeated: the number was there already, or is a stray that shows no "
                        "restart");
  } else if (after.late > before_.late) {
    printer_.PassedOver(Title(), Head(), "late: newer messages were applied before it came");
  }
}

ingest::StreamSink::Outcome RecordedStream::Apply(std::uint64_t sequence,
                                                  std::span<const std::byte> payload) {
  const ingest::StreamStats& now = stream_.stats();
  if (now.restarts > before_.restarts) {
    note_ = fmt::format("restart: number {} after {}; what came before is forgotten", sequence,
                        passed_ ? fmt::to_string(*passed_) : "nothing");
  } else if (now.gaps > before_.gaps) {
    note_ =
        fmt::format("gap: messages {} to {} are missing", passed_ ? *passed_ + 1 : 0, sequence - 1);
  }
  if (!note_.empty()) printer_.Remark(note_);
  const bool good = printer_.Payload(payload, translator_, Title(), Head());
  return good ? Outcome::kApplied : Outcome::kUndecodable;
}

int DecodeCapture(wire::FilePtr file, const std::string& path,
                  const placement::TranslatorOptions& options, Printer& printer) {
  auto reader = wire::CaptureReader::Open(std::move(file), {});
  if (!reader) {
    std::fprintf(stderr, "%s: `%s`: %s\n", kName.data(), path.c_str(),
                 reader.error().message.c_str());
    return 1;
  }
  std::deque<RecordedStream> streams;
  std::optional<Nanos> first;
  std::size_t count = 0;
  wire::CaptureMessage message;
  while (reader->Next(message)) {
    if (!first) first = message.received;
    while (streams.size() < reader->sources().size()) {
      const wire::CaptureSource& source = reader->sources()[streams.size()];
      printer.Remark(fmt::format("source {}: {}{}{}", streams.size(), source.endpoint,
                                 source.topic.empty() ? "" : ", topic ", source.topic));
      streams.emplace_back(options, printer);
    }
    streams[message.source].Take(message, *first);
    ++count;
    if (!printer.Flush()) return 1;
  }
  const int outcome = printer.errors() < count ? 0 : 1;
  if (reader->damage().empty()) return count == 0 ? FoundNothing(path) : outcome;
  std::fprintf(stderr, "%s: `%s` was read up to here: %s%s\n", kName.data(), path.c_str(),
               reader->damage().c_str(), reader->torn() ? ", as when recording was cut off" : "");
  return reader->torn() ? outcome : 1;
}

// By the first byte, which no line of hex or JSON begins with: a pipe takes no more back.
bool StartsLikeACapture(std::FILE* file) {
  const int first = std::getc(file);
  if (first != EOF) std::ungetc(first, file);
  return first == static_cast<unsigned char>(wire::kCaptureMagic.front());
}

int Run(const std::vector<std::string>& argv) {
  std::string file;
  std::string engine = "unknown";
  std::string block_size_word;
  std::optional<TokenId> image_token;
  std::optional<TokenId> video_token;
  bool stream = false;
  bool explain = false;
  bool lenient = false;
  std::string unmapped = "fold";
  CLI::App app(
      "Prints what payload frames of engines say, one JSON line a frame. Frames come as hex, one a "
      "line, as JSON lines with a field `hex`, or from a file of `kvroute capture`. Exit code 1 "
      "when "
      "none was an event batch.",
      std::string(kName));
  app.add_option("--file", file,
                 "Read frames, or a capture, from this file instead of standard input");
  app.add_option("--block-size", block_size_word,
                 "Tokens per block, as registered; without it each event's own counts");
  app.add_option("--engine", engine,
                 "vllm, sglang or trtllm, as registered: how digests become numbers, where a "
                 "stream does not say it");
  app.add_option("--image-token-id", image_token, "The image placeholder, as registered");
  app.add_option("--video-token-id", video_token, "The video placeholder, as registered");
  app.add_option("--unmapped-keys", unmapped,
                 "fold or ignore, as configured: keys in a block's hash that have no name")
      ->check(CLI::IsMember({"fold", "ignore"}));
  wire::DecodeLimits limits;
  app.add_option("--message-events-max", limits.events_max,
                 "As configured: ingest.message_events_max");
  app.add_option("--message-blocks-max", limits.blocks_max,
                 "As configured: ingest.message_blocks_max");
  app.add_option("--message-tokens-max", limits.tokens_max,
                 "As configured: ingest.message_tokens_max");
  app.add_flag("--lenient-media", lenient, "As a worker with `media: lenient`");
  app.add_flag("--stream", stream,
               "The frames are one stream in order: salts, groups and copies carry over. What a "
               "capture recorded from one source always is");
  app.add_flag("--explain", explain,
               "Say in words what becomes of each event, and why, instead of printing JSON");
  if (const auto code = ParseWords(app, argv)) return *code;

  placement::TranslatorOptions options;
  options.any_worker = true;
  options.limits = limits;
  options.lenient_media = lenient;
  if (unmapped == "ignore") options.unmapped_keys = placement::UnmappedKeys::kIgnore;
  options.image_token = image_token;
  options.video_token = video_token;
  const auto kind = fleet::EngineKindFromName(engine);
  if (!kind) {
    return UsageError(kName, fmt::format("--engine `{}` is none of vllm, sglang, trtllm", engine));
  }
  options.digests = fleet::DigestEndOf(*kind);
  if (!block_size_word.empty()) {
    options.block_size = ParseNumber<std::uint32_t>(block_size_word).value_or(0);
    if (options.block_size == 0) {
      return UsageError(kName, fmt::format("--block-size `{}` is no positive number; give the "
                                           "engine's block size, as in `--block-size 16`",
                                           block_size_word));
    }
  }
  Printer printer(explain);
  if (file.empty()) return DecodeLines(stdin, "standard input", options, stream, printer);
  wire::FilePtr opened(std::fopen(file.c_str(), "rb"));
  if (opened == nullptr) {
    std::fprintf(stderr, "%s: cannot open `%s`; name a file of hex or JSON lines, or a capture\n",
                 kName.data(), file.c_str());
    return 1;
  }
  if (StartsLikeACapture(opened.get())) {
    return DecodeCapture(std::move(opened), file, options, printer);
  }
  return DecodeLines(opened.get(), file, options, stream, printer);
}

}  // namespace

const Command kDecodeCommand = {"decode", "what the event frames of engines say", Run};

}  // namespace kvr::cmd
