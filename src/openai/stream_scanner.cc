#include "openai/stream_scanner.h"

#include <utility>

#include <simdjson.h>

#include "openai/usage_reader.h"

namespace kvr::openai {
namespace {

namespace dom = simdjson::dom;

// Output in a chat delta is whatever is not empty and not the role.
bool HasOutput(dom::object delta) {
  for (const dom::key_value_pair pair : delta) {
    if (pair.key == "role") continue;
    std::string_view text;
    dom::array array;
    if (pair.value.get(text) == simdjson::SUCCESS && !text.empty()) return true;
    if (pair.value.get(array) == simdjson::SUCCESS && array.size() > 0) return true;
    if (pair.value.is_object()) return true;
  }
  return false;
}

struct ChunkFacts {
  bool output = false;
  std::uint64_t ids = 0;
  std::uint64_t finished = 0;
};

ChunkFacts ReadChoices(dom::element element) {
  ChunkFacts facts;
  dom::array choices;
  if (element.get(choices) != simdjson::SUCCESS) return facts;
  for (const dom::element choice : choices) {
    std::string_view text;
    dom::array ids;
    dom::object delta;
    if (choice["finish_reason"].get(text) == simdjson::SUCCESS && !text.empty()) ++facts.finished;
    if (choice["text"].get(text) == simdjson::SUCCESS && !text.empty()) facts.output = true;
    if (choice["delta"].get(delta) == simdjson::SUCCESS && HasOutput(delta)) facts.output = true;
    if (choice["token_ids"].get(ids) == simdjson::SUCCESS) facts.ids += ids.size();
  }
  facts.output = facts.output || facts.ids > 0;
  return facts;
}

}  // namespace

struct StreamScanner::Parser {
  dom::parser dom;
};

StreamScanner::StreamScanner(const Options& options)
    : options_(options), parser_(std::make_unique<Parser>()) {}

StreamScanner::~StreamScanner() = default;

std::string_view StreamScanner::Feed(std::string_view piece) {
  if (saw_done_) return {};
  const std::size_t last = piece.find_last_of("\r\n");
  if (last == std::string_view::npos) return Hold(piece, {});
  const std::string_view whole = piece.substr(0, last + 1);
  const std::string_view rest = piece.substr(last + 1);
  if (!held_.empty()) {
    out_.assign(held_).append(whole);
    held_.clear();
    const std::size_t read = ReadLines(out_);
    return saw_done_ ? Last(std::string_view(out_).substr(0, read)) : Hold(rest, out_);
  }
  const std::size_t read = ReadLines(whole);
  return saw_done_ ? Last(whole.substr(0, read)) : Hold(rest, whole);
}

// `lines` without the line end of [DONE], which may still come in two halves, and the end of that
// event.
std::string_view StreamScanner::Last(std::string_view lines) {
  std::string last(lines);
  last += "\n\n";
  out_ = std::move(last);
  between_events_ = true;
  return out_;
}

// Keeps `rest`, the beginning of a line, and returns `whole`, the lines before it; or gives up on
// the line and returns all.
std::string_view StreamScanner::Hold(std::string_view rest, std::string_view whole) {
  if (!rest.empty()) after_return_ = false;
  if (skipping_) return rest;
  if (held_.size() + rest.size() <= options_.line_bytes_max) {
    held_ += rest;
    return whole;
  }
  skipping_ = true;
  ++unread_lines_;
  held_ += rest;
  if (whole.data() == out_.data()) {
    out_ += held_;
  } else {
    out_.assign(whole).append(held_);
  }
  held_.clear();
  return out_;
}

std::string_view StreamScanner::Rest() {
  out_.swap(held_);
  held_.clear();
  return out_;
}

// `lines` ends with a line end. "\r\n" is one, also when its halves come apart. Returns where
// [DONE] ends, if it is there.
std::size_t StreamScanner::ReadLines(std::string_view lines) {
  std::size_t begin = 0;
  while (begin < lines.size()) {
    const std::size_t end = lines.find_first_of("\r\n", begin);
    const bool second_half = after_return_ && end == begin && lines[end] == '\n';
    after_return_ = lines[end] == '\r';
    if (!second_half) EndLine(lines.substr(begin, end - begin));
    if (saw_done_) return end;
    begin = end + 1;
  }
  return lines.size();
}

void StreamScanner::EndLine(std::string_view line) {
  between_events_ = line.empty() && !skipping_;
  if (std::exchange(skipping_, false)) return;
  if (line.size() > options_.line_bytes_max) {
    ++unread_lines_;
    return;
  }
  constexpr std::string_view kData = "data:";
  if (line.substr(0, kData.size()) != kData) return;
  line.remove_prefix(kData.size());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  ReadData(line);
}

void StreamScanner::ReadData(std::string_view data) {
  if (data == "[DONE]") {
    saw_done_ = true;
    return;
  }
  dom::parser& parser = parser_->dom;
  dom::object chunk;
  // The first chunks are short; a floor spares growing with each of them.
  constexpr std::size_t kCapacityMin = 1'024;
  if ((parser.capacity() < kCapacityMin && parser.allocate(kCapacityMin) != simdjson::SUCCESS) ||
      parser.parse(data.data(), data.size()).get(chunk) != simdjson::SUCCESS) {
    ++malformed_;
    return;
  }
  for (const dom::key_value_pair pair : chunk) {
    if (pair.key == "usage" && !pair.value.is_null()) {
      const auto usage = ReadUsage(pair.value);
      if (usage && IsPlausible(*usage)) {
        usage_ = usage;
      } else if (usage) {
        ++implausible_;
      }
    } else if (pair.key == "error") {
      saw_error_ = saw_error_ || !pair.value.is_null();
    } else if (pair.key == "choices") {
      const ChunkFacts facts = ReadChoices(pair.value);
      output_chunks_ += facts.output ? 1 : 0;
      output_ids_ += facts.ids;
      finished_choices_ += facts.finished;
    }
  }
}

std::uint64_t StreamScanner::output_tokens() const {
  if (usage_) return usage_->completion_tokens;
  return output_ids_ > 0 ? output_ids_ : output_chunks_;
}

}  // namespace kvr::openai
