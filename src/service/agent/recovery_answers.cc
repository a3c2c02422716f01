#include "service/agent/recovery_answers.h"

#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json_writer.h"
#include "publish/fill_event.h"
#include "service/optional_field.h"
#include "wire/event_decoder.h"
#include "wire/msgpack_reader.h"
#include "wire/residency.h"
#include "wire/router_event_json.h"

namespace kvr::service {
namespace {

using publish::RangeAnswer;

// Writes the first of `events`, which were encoded here, and returns how many bytes it has.
std::size_t WriteEncoded(std::string_view events, wire::RouterBatch& batch, JsonWriter& json) {
  const auto bytes = std::as_bytes(std::span(events));
  const std::size_t size = EncodedSize(events);
  wire::DecodeLimits none;
  none.payload_bytes_max = size;
  none.blocks_max = size;
  KVR_CHECK(wire::DecodeRouterEvents(bytes.first(size), none, batch).has_value());
  KVR_CHECK(batch.events.size() == 1);
  wire::WriteRouterEvent(batch, batch.events.front(), json);
  return size;
}

std::string_view KindOf(RangeAnswer answer) {
  switch (answer) {
    case RangeAnswer::kEvents:
      return "Events";
    case RangeAnswer::kTooNew:
      return "TooNew";
    case RangeAnswer::kInvalidRange:
      return "InvalidRange";
    case RangeAnswer::kSnapshot:
      break;
  }
  return "Snapshot";
}

}  // namespace

std::size_t EncodedSize(std::string_view events) {
  wire::MsgpackReader reader(std::as_bytes(std::span(events)));
  KVR_CHECK(reader.SkipAnyDepth());
  return reader.offset();
}

bool EventsJsonWriter::Next(std::size_t bytes, std::string& piece) {
  piece.clear();
  if (ended_) return false;
  if (!std::exchange(begun_, true)) WriteHead(piece);
  while (at_ < answer_.events.size() && piece.size() < bytes) {
    if (at_ > 0) piece += ',';
    JsonWriter json(piece);
    at_ += WriteEncoded(std::string_view(answer_.events).substr(at_), batch_, json);
  }
  ended_ = at_ == answer_.events.size();
  if (!ended_) return true;
  if (answer_.range.answer == RangeAnswer::kEvents) {
    piece += fmt::format("],\"last_event_id\":{}", answer_.range.last);
  }
  piece += "}}";
  return true;
}

void EventsJsonWriter::WriteHead(std::string& out) const {
  JsonWriter json(out);
  json.BeginObject();
  json.Key(KindOf(answer_.range.answer));
  json.BeginObject();  // what is open at the end is closed by hand
  json.Field("publisher_id", publisher_id_);
  switch (answer_.range.answer) {
    case RangeAnswer::kEvents:
      json.Key("events");
      json.BeginArray();
      break;
    case RangeAnswer::kSnapshot:
      json.Field("last_event_id", answer_.range.last);
      break;
    case RangeAnswer::kTooNew:
      WriteOptional("requested_start", start_, json);
      WriteOptional("requested_end", end_, json);
      json.Field("newest_available", answer_.range.last);
      break;
    case RangeAnswer::kInvalidRange:
      WriteOptional("start_id", start_, json);
      WriteOptional("end_id", end_, json);
      break;
  }
}

SnapshotJsonWriter::SnapshotJsonWriter(publish::RankPublisher::SnapshotAnswer answer,
                                       const SnapshotHead& head)
    : answer_(std::move(answer)), head_(head) {}

bool SnapshotJsonWriter::Next(std::size_t bytes, std::string& piece) {
  piece.clear();
  if (ended_) return false;
  if (!std::exchange(begun_, true)) WriteHead(piece);
  do {
    if (next_run_ < answer_.base->runs.size()) {
      WriteRun(piece);
    } else if (tail_at_ < answer_.tail.size()) {
      WriteTail(piece);
    } else {
      piece += "]}}";
      ended_ = true;
    }
  } while (!ended_ && piece.size() < bytes);
  return true;
}

void SnapshotJsonWriter::WriteHead(std::string& out) const {
  JsonWriter json(out);
  json.BeginObject();
  json.Key("TreeDump");
  json.BeginObject();
  json.Field("publisher_id", head_.publisher_id);
  json.Key("reset_scope");
  wire::WriteResetScope(wire::ResetScope::kAll, json);
  json.Field("last_event_id", answer_.last);
  json.Field("complete", answer_.position.complete && head_.state == RankState::kExact);
  json.Field("state", RankStateName(head_.state));
  json.Field("reason", StateReasonName(head_.reason));
  json.Key("events");
  json.BeginArray();  // the rest is closed by hand
}

void SnapshotJsonWriter::WriteRun(std::string& out) {
  publish::FillRun(*answer_.base, next_run_, batch_);
  if (next_run_++ > 0) out += ',';
  JsonWriter json(out);
  wire::WriteRouterEvent(batch_, batch_.events.front(), json);
}

void SnapshotJsonWriter::WriteTail(std::string& out) {
  if (next_run_ + tail_at_ > 0) out += ',';
  JsonWriter json(out);
  tail_at_ += WriteEncoded(std::string_view(answer_.tail).substr(tail_at_), batch_, json);
}

}  // namespace kvr::service
