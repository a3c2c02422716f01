#include "cmd/decode_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
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
#include "placement/drop_text.h"
#include "placement/event_translator.h"
#include "wire/capture_file.h"

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

  // The answer to one payload. `head` writes what is known of it beside the payload: JSON fields,
  // or the words behind `title`.
  template <typename Head>
  void Payload(std::span<const std::byte> payload, placement::EventTranslator& translator,
               std::string_view title, Head head) {
    const auto done = translator.Translate(payload, batch_);
    if (!done) {
      Error(title, head,
            fmt::format("no event batch: {} at byte {} of {}",
                        placement::BatchErrorName(done.error().code), done.error().offset,
                        payload.size()));
      return;
    }
    if (explain_) {
      const std::string rank =
          batch_.dp_rank ? fmt::format("rank {}", *batch_.dp_rank) : "no rank named";
      const std::size_t events =
          translator.decoded().events.size() + translator.decoded().bad.size();
      fmt::format_to(std::back_inserter(out_), "{}: {} bytes, {}, ts {}, {} event{}\n", title,
                     payload.size(), rank, batch_.ts, events, events == 1 ? "" : "s");
      ExplainBatch(translator.decoded(), batch_, translator.options().block_size, salts_, out_);
      return;
    }
    JsonWriter json(out_);
    json.BeginObject();
    head(json);
    json.Field("ok", true);
    WriteBatch(json, translator.decoded(), batch_, salts_);
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
    if (!stream) translator.Reset();
    if (read) {
      printer.Payload(frame.payload, translator, title, head);
    } else {
      printer.Error(title, head, read.error().message);
    }
    if (!printer.Flush()) return 1;
  }
  if (std::ferror(in) != 0) return CannotRead(what);
  if (count == 0 || printer.errors() < count) return 0;
  std::fprintf(stderr,
               "%s: none of the %zu lines of %s is an event batch; a line is one payload as "
               "hex, or JSON with a field `hex`\n",
               kName.data(), count, std::string(what).c_str());
  return 1;
}

// One recorded stream: what its messages taught, and where it is.
struct RecordedStream {
  explicit RecordedStream(const placement::TranslatorOptions& options) : translator(options) {}

  placement::EventTranslator translator;
  std::optional<std::uint64_t> newest;

  // What the number says about the messages before; empty when it goes on.
  std::string Follow(std::uint64_t sequence) {
    const auto before = newest;
    newest = sequence;
    if (!before || sequence == *before + 1) return {};
    if (sequence > *before + 1) {
      translator.ForgetCounts();
      return fmt::format("gap: messages {} to {} are missing", *before + 1, sequence - 1);
    }
    translator.Reset();
    return fmt::format("restart: number {} after {}; what came before is forgotten", sequence,
                       *before);
  }
};

void PrintMessage(const wire::CaptureMessage& message, Nanos first, RecordedStream& stream,
                  Printer& printer) {
  std::optional<std::uint64_t> sequence;
  std::span<const std::byte> payload;
  const ingest::FrameFault fault = ingest::ReadLive(message.frames, sequence, payload);
  std::string note;
  if (sequence) note = stream.Follow(*sequence);
  const double after = std::chrono::duration<double>(message.received - first).count();
  const auto head = [&](JsonWriter& json) {
    json.Field("source", message.source);
    if (sequence) json.Field("sequence", *sequence);
    json.Field("received", std::chrono::duration<double>(message.received).count());
    if (!note.empty()) json.Field("note", note);
  };
  const std::string title =
      sequence
          ? fmt::format("source {}, message {}, after {:.3f} s", message.source, *sequence, after)
          : fmt::format("source {}, after {:.3f} s", message.source, after);
  if (!note.empty()) printer.Remark(note);
  if (!sequence) {
    printer.Error(title, head,
                  fmt::format("{}: {} frames are no topic, sequence number of 8 bytes and payload",
                              ingest::FrameFaultName(fault), message.frames.size()));
    return;
  }
  printer.Payload(payload, stream.translator, title, head);
}

int DecodeCapture(wire::FilePtr file, const std::string& path,
                  const placement::TranslatorOptions& options, Printer& printer) {
  auto reader = wire::CaptureReader::Open(std::move(file), {});
  if (!reader) {
    std::fprintf(stderr, "%s: `%s`: %s\n", kName.data(), path.c_str(),
                 reader.error().message.c_str());
    return 1;
  }
  std::vector<RecordedStream> streams;
  std::optional<Nanos> first;
  wire::CaptureMessage message;
  while (reader->Next(message)) {
    if (!first) first = message.received;
    while (streams.size() < reader->sources().size()) {
      const wire::CaptureSource& source = reader->sources()[streams.size()];
      printer.Remark(fmt::format("source {}: {}{}{}", streams.size(), source.endpoint,
                                 source.topic.empty() ? "" : ", topic ", source.topic));
      streams.emplace_back(options);
    }
    PrintMessage(message, *first, streams[message.source], printer);
    if (!printer.Flush()) return 1;
  }
  if (reader->damage().empty()) return 0;
  std::fprintf(stderr, "%s: `%s` was read up to here: %s%s\n", kName.data(), path.c_str(),
               reader->damage().c_str(), reader->torn() ? ", as when recording was cut off" : "");
  return reader->torn() ? 0 : 1;
}

bool StartsLikeACapture(std::FILE* file) {
  std::array<char, wire::kCaptureMagic.size()> start{};
  const std::size_t read = std::fread(start.data(), 1, start.size(), file);
  std::rewind(file);
  return std::string_view(start.data(), read) == wire::kCaptureMagic;
}

int Run(const std::vector<std::string>& argv) {
  std::string file;
  std::string engine;
  std::string block_size_word;
  std::optional<TokenId> image_token;
  std::optional<TokenId> video_token;
  bool stream = false;
  bool explain = false;
  bool lenient = false;
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
  app.add_flag("--lenient-media", lenient, "As a worker with `media: lenient`");
  app.add_flag("--stream", stream,
               "The frames are one stream in order: salts, groups and copies carry over. What a "
               "capture recorded from one source always is");
  app.add_flag("--explain", explain,
               "Say in words what becomes of each event, and why, instead of printing JSON");
  if (const auto code = ParseWords(app, argv)) return *code;

  placement::TranslatorOptions options;
  options.any_worker = true;
  options.lenient_media = lenient;
  options.image_token = image_token;
  options.video_token = video_token;
  const auto kind = fleet::EngineKindFromName(engine.empty() ? "unknown" : engine);
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
