#include "cmd/decode_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <simdjson.h>

#include "base/hex.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "cmd/parse_words.h"
#include "placement/block_keys.h"
#include "placement/event_translator.h"
#include "wire/medium.h"

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

std::string_view Trimmed(std::string_view text) {
  static constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

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

void Optional(JsonWriter& json, std::string_view key, std::string_view text) {
  json.Key(key);
  if (text.empty()) {
    json.Null();
  } else {
    json.Value(text);
  }
}

template <typename T>
void Optional(JsonWriter& json, std::string_view key, const std::optional<T>& value) {
  json.Key(key);
  if (value) {
    json.Value(*value);
  } else {
    json.Null();
  }
}

template <typename Items, typename Number>
void Numbers(JsonWriter& json, std::string_view key, const Items& items, Number number) {
  json.Key(key);
  json.BeginArray();
  for (const auto& item : items)
    json.Value(number(item));
  json.EndArray();
}

void WriteTier(JsonWriter& json, const wire::EngineEvent& event) {
  const auto tier = wire::TierFromMedium(event.medium);
  Optional(json, "tier", tier ? TierName(*tier) : std::string_view());
  Optional(json, "medium", event.medium);
}

void WriteStored(JsonWriter& json, const wire::EventBatch& batch, const wire::EngineEvent& event,
                 const PlacementEvent* placed) {
  WriteTier(json, event);
  Numbers(json, "block_hashes", batch.HashesOf(event), [](EngineHash hash) { return Raw(hash); });
  Optional(json, "parent",
           event.parent ? std::optional(Raw(*event.parent)) : std::optional<std::uint64_t>());
  json.Field("block_size", event.block_size);
  json.Field("tokens", event.tokens.count);
  json.Field("eagle", event.eagle);
  Optional(json, "lora", event.lora_name);
  Optional(json, "salt", placement::SaltOf(batch, event));
  Optional(json, "group", event.group);
  Optional(json, "kind", event.kind_name);
  Optional(json, "locality", event.locality_name);
  Optional(json, "ownership", event.ownership_name);
  json.Field("eligible", placed != nullptr && placed->eligible);
  const bool hashed = placed != nullptr && !placed->hash_only;
  Numbers(json, "local_hashes", hashed ? placed->blocks : std::span<const PlacedBlock>(),
          [](const PlacedBlock& block) { return Raw(block.local); });
}

void WriteEvent(JsonWriter& json, const wire::EventBatch& batch, const wire::EngineEvent& event,
                const PlacementEvent* placed) {
  json.BeginObject();
  json.Field("index", event.index);
  json.Field("type", wire::EventTypeName(event.type));
  if (event.type == wire::EventType::kStored) {
    WriteStored(json, batch, event, placed);
  } else if (event.type == wire::EventType::kRemoved) {
    WriteTier(json, event);
    Numbers(json, "block_hashes", batch.HashesOf(event), [](EngineHash hash) { return Raw(hash); });
    Optional(json, "group", event.group);
  }
  json.EndObject();
}

std::optional<PlacementKind> KindOf(wire::EventType type) {
  switch (type) {
    case wire::EventType::kStored:
      return PlacementKind::kStored;
    case wire::EventType::kRemoved:
      return PlacementKind::kRemoved;
    case wire::EventType::kCleared:
      return PlacementKind::kCleared;
    case wire::EventType::kIgnored:
      break;
  }
  return std::nullopt;
}

void WriteBatch(JsonWriter& json, const wire::EventBatch& batch,
                const placement::PlacementBatch& placed) {
  json.Field("ts", batch.ts);
  Optional(json, "dp_rank", batch.dp_rank);
  json.Key("events");
  json.BeginArray();
  std::size_t next = 0;  // placed events come in the order of the decoded ones
  for (const wire::EngineEvent& event : batch.events) {
    while (next < placed.events.size() && placed.event_index[next] < event.index)
      ++next;
    const bool found = next < placed.events.size() && placed.event_index[next] == event.index &&
                       KindOf(event.type) == placed.events[next].kind;
    WriteEvent(json, batch, event, found ? &placed.events[next] : nullptr);
    if (found) ++next;
  }
  json.EndArray();
  json.Key("dropped");
  json.BeginArray();
  for (const placement::DroppedEvent& dropped : placed.dropped) {
    json.BeginObject();
    json.Field("index", dropped.index);
    json.Field("reason", placement::DropReasonName(dropped.reason));
    if (dropped.reason == placement::DropReason::kDecodeError) {
      json.Field("detail", wire::DecodeErrcName(dropped.error.code));
      json.Field("offset", dropped.error.offset);
    }
    json.EndObject();
  }
  json.EndArray();
}

// Decodes lines one by one, each on its own unless it is one stream.
class Decoder {
 public:
  Decoder(const placement::TranslatorOptions& options, bool stream)
      : translator_(options), stream_(stream) {}

  // The JSON answer to one line.
  std::string Answer(std::string_view line, bool cut) {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    Frame frame;
    auto read = cut ? Fail(ErrorCode::kTooLarge, "the line is too long to be a frame")
                    : ReadFrame(line, parser_, frame);
    if (frame.name) json.Field("name", *frame.name);
    if (!read) {
      WriteError(json, read.error().message);
    } else {
      WriteFrame(json, frame);
    }
    json.EndObject();
    return out;
  }

 private:
  static void WriteError(JsonWriter& json, std::string_view message) {
    json.Field("ok", false);
    json.Field("error", message);
  }

  void WriteFrame(JsonWriter& json, const Frame& frame) {
    if (!stream_) translator_.Reset();
    const auto done = translator_.Translate(frame.payload, batch_);
    if (!done) {
      WriteError(json, fmt::format("no event batch: {} at byte {} of {}",
                                   wire::DecodeErrcName(done.error().code), done.error().offset,
                                   frame.payload.size()));
      return;
    }
    json.Field("ok", true);
    WriteBatch(json, translator_.decoded(), batch_);
  }

  placement::EventTranslator translator_;
  const bool stream_;
  simdjson::dom::parser parser_;
  placement::PlacementBatch batch_;
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

int DecodeAll(std::FILE* in, std::string_view what, Decoder& decoder) {
  const auto reader = std::make_unique<LineReader>(in);
  std::string line;
  bool cut = false;
  while (reader->Next(line, cut)) {
    const std::string_view frame = Trimmed(line);
    if (frame.empty()) continue;
    const std::string answer = decoder.Answer(frame, cut) + '\n';
    if (std::fwrite(answer.data(), 1, answer.size(), stdout) != answer.size()) return 1;
  }
  if (std::ferror(in) != 0) {
    std::fprintf(stderr, "%s: cannot read %s\n", kName.data(), std::string(what).c_str());
    return 1;
  }
  return 0;
}

int Run(const std::vector<std::string>& argv) {
  std::string file;
  std::string engine;
  std::string block_size_word;
  bool stream = false;
  CLI::App app(
      "Prints what payload frames of engines say, one JSON line a frame. Frames come as hex, one a "
      "line, or as JSON lines with a field `hex`.",
      std::string(kName));
  app.add_option("--file", file, "Read frames from this file instead of standard input");
  app.add_option("--block-size", block_size_word,
                 "Tokens per block, as registered; without it each event's own counts");
  app.add_option("--engine", engine,
                 "The engine, as registered. The bytes alone decide how they are read");
  app.add_flag("--stream", stream,
               "The frames are one stream in order: salts, groups and copies carry over");
  if (const auto code = ParseWords(app, argv)) return *code;

  placement::TranslatorOptions options;
  if (!block_size_word.empty()) {
    const char* end = block_size_word.data() + block_size_word.size();
    const auto parsed = std::from_chars(block_size_word.data(), end, options.block_size);
    if (parsed.ec != std::errc() || parsed.ptr != end || options.block_size == 0) {
      return UsageError(kName, fmt::format("--block-size `{}` is no positive number; give the "
                                           "engine's block size, as in `--block-size 16`",
                                           block_size_word));
    }
  }
  Decoder decoder(options, stream);
  if (file.empty()) return DecodeAll(stdin, "standard input", decoder);
  const std::unique_ptr<std::FILE, FileCloser> opened(std::fopen(file.c_str(), "rb"));
  if (opened == nullptr) {
    std::fprintf(stderr, "%s: cannot open `%s`; name a file of hex or JSON lines\n", kName.data(),
                 file.c_str());
    return 1;
  }
  return DecodeAll(opened.get(), file, decoder);
}

}  // namespace

const Command kDecodeCommand = {"decode", "what the event frames of engines say", Run};

}  // namespace kvr::cmd
