// Cuts the text of a /dump answer into partitions, fields and events, as it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvr::service {

// What a splitter finds. Texts are borrowed for the call and not checked: each is one JSON value if
// the peer speaks JSON. A text longer than the splitter's piece_bytes_max is passed over, and said
// to have been there. An error ends the splitting and is returned to whoever called Put.
class DumpPieces {
 public:
  virtual ~DumpPieces() = default;
  virtual Result<void> BeginPartition(std::string_view key_json) = 0;
  // A field of the partition that is not among its events.
  virtual Result<void> Field(std::string_view name_json, std::string_view value_json) = 0;
  virtual Result<void> Event(std::string_view json) = 0;
  // In place of Field, or after BeginPartition of no key: what names or describes the partition.
  virtual Result<void> FieldTooLong() = 0;
  // In place of Event.
  virtual Result<void> EventTooLong() = 0;
  virtual Result<void> EndPartition() = 0;
};

// One JSON value, character by character; only strings and brackets are understood.
class JsonValueCutter {
 public:
  enum class Step { kMore, kDone, kDoneBefore };  // kDoneBefore: the character is not of the value

  Step Put(char c);
  void Reset();

 private:
  enum class Kind { kNone, kNested, kString, kScalar };
  Kind kind_ = Kind::kNone;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// {"model:group":{"block_size":16,"events":[...]}, ...}. Holds one event or one field at a time.
// Not thread-safe.
class ObjectDumpSplitter {
 public:
  // `piece_bytes_max`: longest event, field or key, at least 1. `pieces` must outlive the splitter.
  ObjectDumpSplitter(std::size_t piece_bytes_max, DumpPieces& pieces);

  // kCorrupt when the text has not the shape of a dump, or what `pieces` said.
  Result<void> Put(std::string_view bytes);
  // kCorrupt when the text ended early.
  Result<void> Finish() const;

 private:
  enum class State {
    kOpen,
    kKey,
    kColon,
    kPartition,
    kAfterPartition,
    kField,
    kFieldColon,
    kFieldValue,
    kAfterField,
    kEvent,
    kAfterEvent,
    kDone
  };

  Result<void> PutOne(char c);
  // Feeds the value under way. True when it is complete: `value_` has it, or its beginning when it
  // is `too_long_`, and `reuse` tells that `c` comes after it.
  bool Cut(char c, bool& reuse);
  // Ends the key or name under way.
  void CloseName(State next);
  // Takes `c` when it is `wanted`.
  Result<void> Punctuation(char c, char wanted, State next);
  Result<void> AfterElement(char c, char close, State next_element, State closed);
  Result<void> CloseField();
  static Result<void> Unexpected(char c);

  const std::size_t piece_bytes_max_;
  DumpPieces& pieces_;
  State state_ = State::kOpen;
  bool may_close_ = true;  // nothing yet in the object or list that was opened
  JsonValueCutter cutter_;
  std::string value_;
  bool too_long_ = false;  // the value under way
  std::string name_;       // empty when it was too long
};

// One JSON object a line: {"partition":{...}}, then its events. Holds one line at a time. Errors as
// above.
// Not thread-safe.
class LineDumpSplitter {
 public:
  LineDumpSplitter(std::size_t piece_bytes_max, DumpPieces& pieces);

  Result<void> Put(std::string_view bytes);
  // Ends the last partition. kCorrupt when the last line is cut short.
  Result<void> Finish();

 private:
  Result<void> Line(std::string_view line);
  // `begin` is how the line began.
  Result<void> LongLine(std::string_view begin);
  Result<void> NextPartition();

  const std::size_t piece_bytes_max_;
  DumpPieces& pieces_;
  bool in_partition_ = false;
  bool too_long_ = false;  // the line under way
  std::string line_;
};

}  // namespace kvr::service
