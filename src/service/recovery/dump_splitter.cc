#include "service/recovery/dump_splitter.h"

#include <algorithm>

#include <fmt/format.h>

#include "service/json_chars.h"

namespace kvr::service {
namespace {

// How the head of a partition begins, among lines.
constexpr std::string_view kLineHead = "{\"partition\":";

tl::unexpected<Error> NoHead() {
  return Fail(ErrorCode::kCorrupt, "no dump: the first line is not the head of a partition");
}

}  // namespace

void JsonValueCutter::Reset() {
  *this = JsonValueCutter();
}

JsonValueCutter::Step JsonValueCutter::Put(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (kind_ == Kind::kString) return Step::kDone;
    }
    return Step::kMore;
  }
  if (kind_ == Kind::kScalar) {
    return IsSpace(c) || c == ',' || c == '}' || c == ']' ? Step::kDoneBefore : Step::kMore;
  }
  if (c == '"') {
    in_string_ = true;
    if (kind_ == Kind::kNone) kind_ = Kind::kString;
  } else if (c == '{' || c == '[') {
    kind_ = Kind::kNested;
    ++depth_;
  } else if (kind_ == Kind::kNested && (c == '}' || c == ']')) {
    if (--depth_ == 0) return Step::kDone;
  } else if (kind_ == Kind::kNone) {
    kind_ = Kind::kScalar;
  }
  return Step::kMore;
}

ObjectDumpSplitter::ObjectDumpSplitter(std::size_t piece_bytes_max, DumpPieces& pieces)
    : piece_bytes_max_(std::max<std::size_t>(piece_bytes_max, 1)), pieces_(pieces) {}

Result<void> ObjectDumpSplitter::Put(std::string_view bytes) {
  for (const char c : bytes)
    KVR_TRY_VOID(PutOne(c));
  return {};
}

Result<void> ObjectDumpSplitter::Finish() const {
  if (state_ == State::kDone) return {};
  return Fail(ErrorCode::kCorrupt, "the dump ends early");
}

Result<void> ObjectDumpSplitter::PutOne(char c) {
  if (value_.empty() && IsSpace(c)) return {};
  bool reuse = false;
  switch (state_) {
    case State::kOpen:
      may_close_ = true;
      return Punctuation(c, '{', State::kKey);
    case State::kKey:
    case State::kField: {
      const State closed = state_ == State::kKey ? State::kDone : State::kAfterPartition;
      if (value_.empty() && c == '}' && may_close_) {
        state_ = closed;
        return closed == State::kDone ? Result<void>() : pieces_.EndPartition();
      }
      if (value_.empty() && c != '"') return Unexpected(c);
      if (Cut(c, reuse)) CloseName(state_ == State::kKey ? State::kColon : State::kFieldColon);
      return {};
    }
    case State::kColon:
      KVR_TRY_VOID(Punctuation(c, ':', State::kPartition));
      KVR_TRY_VOID(pieces_.BeginPartition(name_));
      return name_.empty() ? pieces_.FieldTooLong() : Result<void>();
    case State::kPartition:
      if (value_.empty() && c == '{') {
        may_close_ = true;
        state_ = State::kField;
        return {};
      }
      break;
    case State::kFieldColon:
      return Punctuation(c, ':', State::kFieldValue);
    case State::kFieldValue:
      if (value_.empty() && c == '[' && name_ == "\"events\"") {
        may_close_ = true;
        state_ = State::kEvent;
        return {};
      }
      break;
    case State::kEvent:
      if (value_.empty() && c == ']' && may_close_) {
        state_ = State::kAfterField;
        return {};
      }
      break;
    case State::kAfterPartition:
      return AfterElement(c, '}', State::kKey, State::kDone);
    case State::kAfterField:
      return AfterElement(c, '}', State::kField, State::kAfterPartition);
    case State::kAfterEvent:
      return AfterElement(c, ']', State::kEvent, State::kAfterField);
    case State::kDone:
      return Unexpected(c);
  }
  if (value_.empty() && (c == ',' || c == ':' || c == '}' || c == ']')) return Unexpected(c);
  if (!Cut(c, reuse)) return {};
  KVR_TRY_VOID(CloseField());
  return reuse ? PutOne(c) : Result<void>();
}

void ObjectDumpSplitter::CloseName(State next) {
  if (too_long_) value_.clear();
  name_.swap(value_);
  value_.clear();
  too_long_ = false;
  state_ = next;
}

// The value of a partition that is no object, of a field, or an event.
Result<void> ObjectDumpSplitter::CloseField() {
  const State was = state_;
  Result<void> taken;
  if (was == State::kPartition) {
    state_ = State::kAfterPartition;
    taken = too_long_ ? pieces_.FieldTooLong() : pieces_.Field("\"\"", value_);
    if (taken) taken = pieces_.EndPartition();
  } else if (was == State::kFieldValue) {
    state_ = State::kAfterField;
    taken = too_long_ || name_.empty() ? pieces_.FieldTooLong() : pieces_.Field(name_, value_);
  } else {
    state_ = State::kAfterEvent;
    taken = too_long_ ? pieces_.EventTooLong() : pieces_.Event(value_);
  }
  value_.clear();
  too_long_ = false;
  return taken;
}

bool ObjectDumpSplitter::Cut(char c, bool& reuse) {
  if (value_.empty()) cutter_.Reset();
  const auto step = cutter_.Put(c);
  if (step == JsonValueCutter::Step::kDoneBefore) {
    reuse = true;
    return true;
  }
  if (value_.size() < piece_bytes_max_) {
    value_.push_back(c);
  } else {
    too_long_ = true;
  }
  return step == JsonValueCutter::Step::kDone;
}

Result<void> ObjectDumpSplitter::Punctuation(char c, char wanted, State next) {
  if (c != wanted) return Unexpected(c);
  state_ = next;
  return {};
}

Result<void> ObjectDumpSplitter::AfterElement(char c, char close, State next_element,
                                              State closed) {
  if (c == ',') {
    may_close_ = false;
    state_ = next_element;
    return {};
  }
  if (c != close) return Unexpected(c);
  state_ = closed;
  if (closed == State::kAfterPartition) return pieces_.EndPartition();
  return {};
}

Result<void> ObjectDumpSplitter::Unexpected(char c) {
  return Fail(ErrorCode::kCorrupt,
              fmt::format("no dump: unexpected character 0x{:02x}", static_cast<unsigned char>(c)));
}

LineDumpSplitter::LineDumpSplitter(std::size_t piece_bytes_max, DumpPieces& pieces)
    : piece_bytes_max_(std::max(piece_bytes_max, kLineHead.size())), pieces_(pieces) {}

Result<void> LineDumpSplitter::Put(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::size_t room = piece_bytes_max_ - line_.size();
    line_.append(bytes.substr(0, std::min(end, room)));
    if (end > room) {
      if (!in_partition_ && !line_.starts_with(kLineHead)) return NoHead();
      too_long_ = true;
    }
    if (end == bytes.size()) break;
    bytes.remove_prefix(end + 1);
    KVR_TRY_VOID(too_long_ ? LongLine(line_) : Line(line_));
    line_.clear();
    too_long_ = false;
  }
  return {};
}

Result<void> LineDumpSplitter::Line(std::string_view line) {
  if (line.empty()) return {};
  if (!line.starts_with(kLineHead)) return in_partition_ ? pieces_.Event(line) : NoHead();
  KVR_TRY_VOID(NextPartition());
  line.remove_prefix(kLineHead.size());
  if (line.ends_with('}')) line.remove_suffix(1);
  return pieces_.Field("\"partition\"", line);
}

Result<void> LineDumpSplitter::LongLine(std::string_view begin) {
  if (!begin.starts_with(kLineHead)) return pieces_.EventTooLong();
  KVR_TRY_VOID(NextPartition());
  return pieces_.FieldTooLong();
}

Result<void> LineDumpSplitter::NextPartition() {
  if (in_partition_) KVR_TRY_VOID(pieces_.EndPartition());
  in_partition_ = true;
  return pieces_.BeginPartition({});
}

Result<void> LineDumpSplitter::Finish() {
  if (!line_.empty()) return Fail(ErrorCode::kCorrupt, "the dump ends early");
  return in_partition_ ? pieces_.EndPartition() : Result<void>();
}

}  // namespace kvr::service
