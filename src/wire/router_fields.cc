#include "wire/router_fields.h"

#include <optional>
#include <vector>

namespace kvr::wire {

using Kind = MsgpackItem::Kind;

bool PeekItem(MsgpackReader& in, MsgpackItem& item) {
  const std::size_t start = in.offset();
  if (!in.Read(item)) return false;
  in.Seek(start);
  return true;
}

bool ReadU64(MsgpackReader& in, std::uint64_t& value) {
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (item.kind != Kind::kUint) return in.Fail(DecodeErrc::kWrongType, start);
  value = item.number;
  return true;
}

namespace {

template <typename T>
Slice TailOf(const std::vector<T>& all, std::size_t begin) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(all.size() - begin)};
}

// Hashes are unsigned on this wire; a negative number is taken by its bits all the same.
bool ReadHash(MsgpackReader& in, std::uint64_t& value) {
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (!item.is_integer()) return in.Fail(DecodeErrc::kWrongType, start);
  value = item.number;
  return true;
}

// The head of an array whose elements join `have` others, of which there may be `most` in all.
bool ReadCount(MsgpackReader& in, std::size_t have, std::size_t most, std::size_t& count) {
  const std::size_t start = in.offset();
  if (!in.ReadArray(count)) return false;
  return have + count <= most || in.Fail(DecodeErrc::kOverLimit, start);
}

// The value that began at `start` is not what its field holds, and nothing depends on it.
bool PassOver(RouterContext& context, std::size_t start, std::uint32_t& counter) {
  ++counter;
  context.failed = {};
  context.in.Seek(start);
  return context.in.Skip(context.limits.depth_max);
}

// --- multimodal -----------------------------------------------------------------------------

bool ReadOffsets(RouterContext& context, RouterMmObject& object) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.mm_offsets;
  std::size_t count = 0;
  if (!ReadCount(in, all.size(), context.limits.extra_keys_max, count)) return false;
  const std::size_t begin = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = in.offset();
    std::size_t width = 0;
    auto& range = all.emplace_back();
    if (!in.ReadArray(width)) return false;
    if (width != 2) return in.Fail(DecodeErrc::kWrongType, at);
    if (!in.ReadU32(range[0]) || !in.ReadU32(range[1])) return false;
  }
  object.offsets = TailOf(all, begin);
  return true;
}

bool ReadObjects(RouterContext& context, RouterBlock& block) {
  MsgpackReader& in = context.in;
  MsgpackItem head;
  if (!PeekItem(in, head)) return false;
  if (head.kind == Kind::kNil) return in.Read(head);
  static constexpr std::array<std::string_view, 1> kInfo = {"mm_objects"};
  static constexpr std::array<std::string_view, 2> kObject = {"mm_hash", "offsets"};
  block.has_mm = true;
  return ReadStruct(context, kInfo, 1, [&](std::size_t) {
    auto& all = context.batch.mm_objects;
    std::size_t count = 0;
    if (!ReadCount(in, all.size(), context.limits.extra_keys_max, count)) return false;
    const std::size_t begin = all.size();
    for (std::size_t i = 0; i < count; ++i) {
      RouterMmObject object;
      const bool good = ReadStruct(context, kObject, 1, [&](std::size_t field) {
        return field == 0 ? ReadHash(in, object.hash) : ReadOffsets(context, object);
      });
      if (!good) return false;
      all.push_back(object);
    }
    block.mm_objects = TailOf(all, begin);
    return true;
  });
}

bool ReadMmInfo(RouterContext& context, RouterBlock& block) {
  RouterBatch& batch = context.batch;
  const std::size_t start = context.in.offset();
  const std::size_t objects = batch.mm_objects.size();
  const std::size_t offsets = batch.mm_offsets.size();
  if (ReadObjects(context, block)) return true;
  if (context.in.error().code == DecodeErrc::kOverLimit) return false;
  batch.mm_objects.resize(objects);
  batch.mm_offsets.resize(offsets);
  block.mm_objects = {};
  block.has_mm = true;
  return PassOver(context, start, batch.skipped.mm_extra_info);
}

// --- events ---------------------------------------------------------------------------------

bool ReadBlock(RouterContext& context) {
  static constexpr std::array<std::string_view, 3> kFields = {"block_hash", "tokens_hash",
                                                              "mm_extra_info"};
  RouterBlock block;
  const bool good = ReadStruct(context, kFields, 0b11, [&](std::size_t field) {
    if (field == 2) return ReadMmInfo(context, block);
    std::uint64_t hash = 0;
    if (!ReadHash(context.in, hash)) return false;
    if (field == 0) {
      block.engine = EngineHash{hash};
    } else {
      block.local = BlockHash{hash};
    }
    return true;
  });
  if (good) context.batch.blocks.push_back(block);
  return good;
}

bool ReadBlocks(RouterContext& context, RouterEvent& event) {
  const std::size_t begin = context.batch.blocks.size();
  std::size_t count = 0;
  if (!ReadCount(context.in, begin, context.limits.blocks_max, count)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!ReadBlock(context)) return false;
  }
  event.blocks = TailOf(context.batch.blocks, begin);
  return true;
}

template <typename Number, typename Read>
bool ReadOptional(MsgpackReader& in, std::optional<Number>& value, Read read) {
  MsgpackItem head;
  if (!PeekItem(in, head)) return false;
  value.reset();
  if (head.kind == Kind::kNil) return in.Read(head);
  return read(value.emplace());
}

bool ReadPosition(RouterContext& context, RouterEvent& event) {
  const std::size_t start = context.in.offset();
  const auto read = [&](std::uint32_t& position) { return context.in.ReadU32(position); };
  if (ReadOptional(context.in, event.start_position, read)) return true;
  event.start_position.reset();
  return PassOver(context, start, context.batch.skipped.start_position);
}

bool ReadStored(RouterContext& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 3> kFields = {"parent_hash", "start_position",
                                                              "blocks"};
  event.type = EventType::kStored;
  MsgpackItem head;
  if (!PeekItem(context.in, head)) return false;
  // As an array of two the optional position is left out.
  const bool short_form = head.kind == Kind::kArray && head.number == 2;
  return ReadStruct(context, kFields, short_form ? 0b001 : 0b100, [&](std::size_t field) {
    if (field == 0) {
      return ReadOptional(context.in, event.parent, [&](EngineHash& hash) {
        std::uint64_t value = 0;
        const bool good = ReadHash(context.in, value);
        hash = EngineHash{value};
        return good;
      });
    }
    if (field == 1 && !short_form) return ReadPosition(context, event);
    return ReadBlocks(context, event);
  });
}

bool ReadRemoved(RouterContext& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 1> kFields = {"block_hashes"};
  event.type = EventType::kRemoved;
  return ReadStruct(context, kFields, 1, [&](std::size_t) {
    MsgpackReader& in = context.in;
    auto& all = context.batch.removed;
    const std::size_t begin = all.size();
    std::size_t count = 0;
    if (!ReadCount(in, begin, context.limits.blocks_max, count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t hash = 0;
      if (!ReadHash(in, hash)) return false;
      all.push_back(EngineHash{hash});
    }
    event.removed = TailOf(all, begin);
    return true;
  });
}

// False.
bool FailType(RouterContext& context, std::string_view type, std::size_t start) {
  context.failed = type;
  return context.in.Fail(DecodeErrc::kUnknownEvent, start);
}

// "cleared", or a map of one pair whose key names the type.
bool ReadData(RouterContext& context, RouterEvent& event) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  // Of two the last counts, so nothing may stay of the first.
  event.parent.reset();
  event.start_position.reset();
  event.blocks = {};
  event.removed = {};
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind == Kind::kString) {
    if (head.bytes != "cleared") return FailType(context, head.bytes, start);
    event.type = EventType::kCleared;
    return true;
  }
  if (head.kind != Kind::kMap || head.number != 1) return in.Fail(DecodeErrc::kWrongType, start);
  std::string_view type;
  if (!in.ReadText(type)) return false;
  if (type == "stored") return ReadStored(context, event);
  if (type == "removed") return ReadRemoved(context, event);
  if (type != "cleared") return FailType(context, type, start);
  event.type = EventType::kCleared;
  return in.Skip(context.limits.depth_max);
}

bool ReadCacheEvent(RouterContext& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 3> kFields = {"event_id", "data", "dp_rank"};
  return ReadStruct(context, kFields, 0b011, [&](std::size_t field) {
    if (field == 0) return ReadU64(context.in, event.event_id);
    if (field == 1) return ReadData(context, event);
    return context.in.ReadU32(event.dp_rank);
  });
}

bool ReadTier(RouterContext& context, Tier& tier) {
  const std::size_t start = context.in.offset();
  std::string_view name;
  if (!context.in.ReadText(name)) return false;
  const auto known = TierFromName(name);
  if (!known) return context.in.Fail(DecodeErrc::kOutOfRange, start);
  tier = *known;
  return true;
}

// Never fails for its value, only for bytes that are no value.
bool ReadDomain(RouterContext& context, RouterEvent& event) {
  MsgpackItem item;
  if (!PeekItem(context.in, item)) return false;
  event.domain_name = {};  // the last of two fields of this name counts
  if (item.kind != Kind::kString) {
    event.domain = ResidencyDomain::kInvalid;
    return context.in.Skip(context.limits.depth_max);
  }
  std::string_view name;
  if (!context.in.ReadText(name)) return false;
  if (name == "worker") {
    event.domain = ResidencyDomain::kWorker;
  } else if (name == "cache_owner") {
    event.domain = ResidencyDomain::kCacheOwner;
  } else {
    event.domain = ResidencyDomain::kUnknown;
    event.domain_name = name;
  }
  return true;
}

// What is no bool is as good as false: the flag only ever permits something.
bool ReadEligible(RouterContext& context, RouterEvent& event) {
  MsgpackItem item;
  if (!PeekItem(context.in, item)) return false;
  event.eligible = item.kind == Kind::kBool && item.number == 1;
  if (item.kind != Kind::kBool && item.kind != Kind::kNil) ++context.batch.skipped.sce;
  return context.in.Skip(context.limits.depth_max);
}

bool ReadSession(RouterContext& context, RouterEvent& event) {
  const std::size_t start = context.in.offset();
  std::optional<std::string_view> text;
  const bool good = context.in.ReadOptionalText(text);
  event.session_id = good ? text.value_or(std::string_view()) : std::string_view();
  return good || PassOver(context, start, context.batch.skipped.session_id);
}

bool ReadStateSource(RouterContext& context, RouterEvent& event) {
  const std::size_t start = context.in.offset();
  MsgpackItem item;
  if (!PeekItem(context.in, item) || !context.in.Skip(context.limits.depth_max)) return false;
  event.state_source = item.kind == Kind::kNil ? std::string_view() : context.in.Since(start);
  return true;
}

}  // namespace

bool ReadRouterEvent(RouterContext& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 7> kFields = {
      "worker_id",  "storage_tier", "residency_domain", "event", "state_source",
      "session_id", "sce"};
  return ReadStruct(context, kFields, 0b1001, [&](std::size_t field) {
    switch (field) {
      case 0:
        return ReadU64(context.in, event.worker_id);
      case 1:
        return ReadTier(context, event.tier);
      case 2:
        return ReadDomain(context, event);
      case 3:
        return ReadCacheEvent(context, event);
      case 4:
        return ReadStateSource(context, event);
      case 5:
        return ReadSession(context, event);
      default:
        return ReadEligible(context, event);
    }
  });
}

}  // namespace kvr::wire
