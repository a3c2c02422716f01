// The fields that name blocks and say what is in them.
#include <span>

#include "wire/event_fields.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

// The last 8 of the bytes, big-endian.
EngineHash FromBytes(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes)
    value = value << 8 | static_cast<unsigned char>(c);
  return EngineHash{value};
}

// An integer by its 64 bits, whatever its sign; a digest by 8 of its bytes, big-endian, which is
// what an engine that sends integers makes of the same digest.
bool HashOf(FieldContext& context, const MsgpackItem& item, std::size_t at, EngineHash& hash) {
  MsgpackReader& in = context.in;
  if (item.is_integer()) {
    hash = EngineHash{item.number};
    return true;
  }
  if (item.kind != Kind::kBin) return in.Fail(DecodeErrc::kWrongType, at);
  if (item.bytes.empty()) return in.Fail(DecodeErrc::kOutOfRange, at);
  const DigestName name{FromBytes(item.bytes), FromBytes(item.bytes.substr(0, sizeof hash)),
                        item.bytes};
  hash = context.limits.digests == DigestEnd::kLast ? name.last : name.first;
  if (item.bytes.size() > sizeof hash) context.batch.digests.push_back(name);
  return true;
}

bool ReadOtherHash(FieldContext& context, EngineHash& hash) {
  const std::size_t at = context.in.offset();
  MsgpackItem item;
  return context.in.Read(item) && HashOf(context, item, at, hash);
}

bool ReadHash(FieldContext& context, EngineHash& hash) {
  std::uint64_t number = 0;
  if (!context.in.TakeU64(number)) return ReadOtherHash(context, hash);
  hash = EngineHash{number};
  return true;
}

// Pairs of neighbours: [[1,2],[2,3]] are the tokens 1, 2, 3.
bool ReadBigrams(MsgpackReader& in, std::span<TokenId> tokens) {
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::size_t at = in.offset();
    std::size_t width = 0;
    if (!in.ReadArray(width)) return false;
    if (width != 2) return in.Fail(DecodeErrc::kWrongType, at);
    if (!in.ReadU32(tokens[i]) || !in.ReadU32(tokens[i + 1])) return false;
  }
  return true;
}

}  // namespace

bool ReadHashes(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& hashes = context.batch.hashes;
  std::size_t count = 0;
  const std::size_t start = in.offset();
  if (!in.ReadArray(count)) return false;
  if (hashes.size() + count > context.limits.blocks_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  event.hashes = {Size32(hashes.size()), Size32(count)};
  hashes.resize(hashes.size() + count);
  for (EngineHash& hash : std::span(hashes).last(count)) {
    if (!ReadHash(context, hash)) return false;
  }
  return true;
}

bool ReadParent(FieldContext& context, EngineEvent& event) {
  event.parent.reset();
  return context.in.TakeNil() || ReadHash(context, event.parent.emplace());
}

bool ReadTokens(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& tokens = context.batch.tokens;
  const std::size_t start = in.offset();
  event.eagle = false;
  event.tokens = {Size32(tokens.size()), 0};
  if (in.TakeNil()) return true;  // a producer that knows hashes only
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (count == 0) return true;
  event.eagle = in.AtArray();
  if (event.eagle) ++count;
  if (tokens.size() + count > context.limits.tokens_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  event.tokens.count = Size32(count);
  tokens.resize(tokens.size() + count);
  const auto room = std::span(tokens).last(count);
  if (event.eagle) return ReadBigrams(in, room);
  return in.ReadU32s(room);
}

bool ReadBlockSize(FieldContext& context, EngineEvent& event) {
  event.block_size = 0;
  if (context.in.TakeNil()) return true;  // as 0: the store names blocks without content
  return context.in.ReadU32(event.block_size);
}

}  // namespace kvr::wire
