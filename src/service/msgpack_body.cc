#include "service/msgpack_body.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace kvr::service {
namespace {

using wire::MsgpackItem;
using wire::MsgpackReader;

tl::unexpected<Error> Malformed(const MsgpackReader& reader) {
  const wire::DecodeError& error = reader.error();
  if (error.code == wire::DecodeErrc::kOverLimit) {
    return Fail(ErrorCode::kBadJson,
                fmt::format("the body nests deeper than {} levels", RequestBody::kDepthMax));
  }
  return Fail(ErrorCode::kBadJson, fmt::format("the body is no valid MessagePack: {} at byte {}",
                                               wire::DecodeErrcName(error.code), error.offset));
}

// Calls `visit(key)` for each pair of a map, the cursor at its value; every visit passes over the
// value. False when the cursor is at no such map, or a visit is false.
template <typename F>
bool ForEachPair(MsgpackReader& reader, F&& visit) {
  std::size_t pairs = 0;
  if (!reader.ReadMap(pairs)) return false;
  for (; pairs > 0; --pairs) {
    std::string_view key;
    if (!reader.ReadKey(key) || !visit(key)) return false;
  }
  return true;
}

// {"mm_hash": u64, ...}
bool ReadMmHash(MsgpackReader& reader, std::uint64_t& hash) {
  bool found = false;
  const bool read = ForEachPair(reader, [&](std::string_view key) {
    if (key != "mm_hash" || found) return reader.Skip(RequestBody::kDepthMax);
    MsgpackItem item;
    found = reader.Read(item) && item.kind == MsgpackItem::Kind::kUint;
    hash = item.number;
    return found;
  });
  return read && found;
}

}  // namespace

MsgpackBody::MsgpackBody(std::string_view bytes)
    : reader_(std::as_bytes(std::span(bytes.data(), bytes.size()))) {}

Result<std::unique_ptr<RequestBody>> MsgpackBody::Parse(std::string_view bytes) {
  std::unique_ptr<MsgpackBody> body(new MsgpackBody(bytes));
  KVR_TRY_VOID(body->FindFields());
  return std::unique_ptr<RequestBody>(std::move(body));
}

Result<void> MsgpackBody::FindFields() {
  if (reader_.left() == 0) {
    return Fail(ErrorCode::kBadJson, "the body is empty; send a MessagePack map");
  }
  std::size_t pairs = 0;
  if (!reader_.ReadMap(pairs)) {
    if (reader_.error().code != wire::DecodeErrc::kWrongType) return Malformed(reader_);
    return Fail(ErrorCode::kBadJson, "the body must be a MessagePack map");
  }
  for (; pairs > 0; --pairs) {
    std::string_view key;
    if (!reader_.ReadText(key)) return Malformed(reader_);
    KVR_TRY_VOID(AddField(key));
    places_.push_back({key, reader_.offset()});
    if (!PassOver(key)) return Malformed(reader_);
  }
  if (reader_.left() != 0) {
    return Fail(
        ErrorCode::kBadJson,
        fmt::format("the body goes on after its MessagePack map, at byte {}", reader_.offset()));
  }
  return {};
}

bool MsgpackBody::PassOver(std::string_view field) {
  const std::size_t value = reader_.offset();
  std::size_t count = 0;
  if (list_.numbers.empty() && reader_.ReadArray(count) && count > 0) {
    list_.numbers.resize(count);
    list_.field = field;
    if (reader_.ReadU32s(list_.numbers)) return true;
    list_.numbers.clear();
  }
  reader_.Seek(value);
  return reader_.Skip(kDepthMax - 1);
}

bool MsgpackBody::SeekTo(std::string_view field) {
  const auto place = std::find_if(places_.begin(), places_.end(),
                                  [field](const Place& p) { return p.field == field; });
  if (place == places_.end()) return false;
  reader_.Seek(place->offset);
  return true;
}

RequestBody::Value MsgpackBody::Look(std::string_view field) {
  using Kind = Value::Kind;
  Value value;
  MsgpackItem item;
  if (!SeekTo(field) || !reader_.Read(item)) return value;
  value.number = item.number;
  switch (item.kind) {
    case MsgpackItem::Kind::kNil:
      break;
    case MsgpackItem::Kind::kBool:
      value.kind = Kind::kBool;
      break;
    case MsgpackItem::Kind::kUint:
      value.kind = Kind::kUnsigned;
      break;
    case MsgpackItem::Kind::kInt:
      value.kind = Kind::kNegative;
      break;
    case MsgpackItem::Kind::kFloat:
      value.kind = Kind::kFraction;
      break;
    case MsgpackItem::Kind::kString:
      value.text = item.bytes;
      value.kind = wire::IsUtf8(item.bytes) ? Kind::kString : Kind::kBytes;
      break;
    case MsgpackItem::Kind::kArray:
      value.kind = Kind::kArray;
      break;
    case MsgpackItem::Kind::kMap:
      value.kind = Kind::kObject;
      break;
    case MsgpackItem::Kind::kBin:
    case MsgpackItem::Kind::kExt:
      value.kind = Kind::kBytes;
      break;
  }
  return value;
}

std::size_t MsgpackBody::EnterList(std::string_view field) {
  std::size_t count = 0;
  return SeekTo(field) && reader_.ReadArray(count) ? count : 0;
}

RequestBody::Fault MsgpackBody::ReadTokens(std::string_view field, std::vector<TokenId>& out) {
  if (field == list_.field && !list_.numbers.empty()) {
    out.swap(list_.numbers);
    return {};
  }
  const std::size_t count = EnterList(field);
  while (out.size() < count) {
    TokenId token = 0;
    if (!reader_.ReadU32(token)) return out.size();
    out.push_back(token);
  }
  return {};
}

RequestBody::Fault MsgpackBody::ReadHashes(std::string_view field, std::vector<BlockHash>& out) {
  const std::size_t count = EnterList(field);
  out.reserve(count);
  while (out.size() < count) {
    std::uint64_t hash = 0;
    if (!reader_.TakeU64(hash)) {
      MsgpackItem item;
      if (!reader_.Read(item) || !item.is_integer()) return out.size();
      hash = item.number;
    }
    out.push_back(static_cast<BlockHash>(hash));
  }
  return {};
}

bool MsgpackBody::ReadMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) {
  const std::size_t blocks = EnterList(field);
  for (std::size_t block = 0; block < blocks; ++block) {
    if (!ReadMmInfo(block, out)) return false;
  }
  return true;
}

bool MsgpackBody::ReadMmInfo(std::size_t block, std::vector<hashing::BlockMm>& out) {
  const std::size_t at = reader_.offset();
  MsgpackItem item;
  if (!reader_.Read(item)) return false;
  if (item.kind == MsgpackItem::Kind::kNil) return true;
  reader_.Seek(at);
  bool found = false;
  const bool read = ForEachPair(reader_, [&](std::string_view key) {
    if (key != "mm_objects" || found) return reader_.Skip(kDepthMax);
    found = true;
    std::size_t objects = 0;
    if (!reader_.ReadArray(objects)) return false;
    for (; objects > 0; --objects) {
      std::uint64_t hash = 0;
      if (!ReadMmHash(reader_, hash)) return false;
      out.push_back({block, hash});
    }
    return true;
  });
  return read && found;
}

}  // namespace kvr::service
