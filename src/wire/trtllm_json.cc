#include "wire/trtllm_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include <simdjson.h>

#include "wire/batch_mark.h"
#include "wire/hex_digest.h"
#include "wire/json_items.h"
#include "wire/json_room.h"
#include "wire/readable_list.h"
#include "wire/trtllm_memory.h"

namespace kvr::wire {
namespace {

namespace dom = simdjson::dom;

// The medium of each cache level; deeper ones do not exist.
constexpr std::array<std::string_view, 3> kLevelMedia = {"GPU", "CPU", "DISK"};

// The events of a longer text are counted before it is parsed: to look at an ordinary one twice
// would cost more than parsing it can.
constexpr std::size_t kUncountedBytesMax = std::size_t{4} << 20;

// The value under `key`; none when it is absent or null.
std::optional<dom::element> Find(const dom::element& object, std::string_view key) {
  dom::element value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

template <typename T>
std::optional<T> Get(const dom::element& object, std::string_view key) {
  T value;
  if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// A field that may be absent or null. False when it is of another type: what tells blocks apart or
// says where they are is never guessed.
template <typename T>
bool Take(const dom::element& object, std::string_view key, T& value) {
  const auto found = Find(object, key);
  return !found || found->get(value) == simdjson::SUCCESS;
}

// A number of either sign, or a digest, of which `batch` keeps the digits.
std::optional<EngineHash> ToHash(const dom::element& value, EventBatch& batch) {
  std::uint64_t number = 0;
  std::int64_t negative = 0;
  std::string_view text;
  if (value.get(number) == simdjson::SUCCESS) return EngineHash{number};
  if (value.get(negative) == simdjson::SUCCESS) {
    return EngineHash{static_cast<std::uint64_t>(negative)};
  }
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const auto digest = HexDigestHead(text);
  if (!digest) return std::nullopt;
  const EngineHash hash{*digest};
  batch.digests.push_back({hash, hash, text});
  return hash;
}

template <typename T>
Slice From(const std::vector<T>& all, std::size_t begin) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(all.size() - begin)};
}

}  // namespace

bool LooksLikeJson(std::span<const std::byte> payload) {
  for (const std::byte byte : payload) {
    const char c = static_cast<char>(byte);
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!space) return c == '{' || c == '[';
  }
  return false;
}

class TrtllmJsonDecoder::Impl {
 public:
  explicit Impl(std::size_t partial_blocks_max) : partial_(partial_blocks_max) {}

  Result<void, DecodeError> Decode(std::span<const std::byte> payload, const DecodeLimits& limits,
                                   std::uint32_t block_size, EventBatch& batch) {
    batch.Clear();
    limits_ = &limits;
    payload_ = payload;
    places_.reset();
    block_size_ = block_size;
    room_.Look(parser_);
    if (payload.size() > std::min(limits.payload_bytes_max, limits.json_bytes_max)) {
      return Refuse(DecodeErrc::kOverLimit);
    }
    if (payload.size() > kUncountedBytesMax && HasMoreItems(payload, limits.events_max)) {
      return Refuse(DecodeErrc::kOverLimit);
    }
    dom::element root;
    std::optional<ReadableList> readable;
    if (!Parse({reinterpret_cast<const char*>(payload.data()), payload.size()}, root)) {
      readable = MakeReadable(payload, limits.events_max);
      if (!readable || !Parse(readable->text, root)) return Refuse(DecodeErrc::kBadJson);
    }
    dom::array list;
    if (root.get(list) != simdjson::SUCCESS) {
      One(root, 0, batch);
      return {};
    }
    if (list.size() > limits.events_max) return Refuse(DecodeErrc::kOverLimit);
    std::span<const ReadableList::BadItem> unreadable;
    if (readable) unreadable = readable->bad;
    std::uint32_t index = 0;
    for (const dom::element event : list) {
      if (!unreadable.empty() && unreadable.front().index == index) {
        AddUnreadable(unreadable.front(), batch);
        unreadable = unreadable.subspan(1);
      } else {
        One(event, index, batch);
      }
      ++index;
    }
    return {};
  }

  void Reset() {
    windows_.Reset();
    partial_.Clear();
    short_stores_.Reset();
  }

  [[nodiscard]] std::size_t partial_blocks() const { return partial_.size(); }
  [[nodiscard]] std::uint64_t forgotten_partial_blocks() const { return partial_.forgotten(); }

 private:
  // Why an event is bad, and in which field, or of which type it is (BadEvent::name).
  struct Fault {
    DecodeErrc code;
    std::string_view name;
  };
  using Outcome = std::optional<Fault>;

  static Fault Missing(std::string_view field) { return {DecodeErrc::kMissingField, field}; }
  static Fault WrongType(std::string_view field) { return {DecodeErrc::kWrongType, field}; }
  static Fault OutOfRange(std::string_view field) { return {DecodeErrc::kOutOfRange, field}; }
  static Fault OverLimit(std::string_view field) { return {DecodeErrc::kOverLimit, field}; }

  Result<void, DecodeError> Refuse(DecodeErrc code) {
    JsonRoom::GiveBack(parser_);
    return tl::make_unexpected(DecodeError{code, 0});
  }

  bool Parse(std::string_view text, dom::element& root) {
    return parser_.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS;
  }

  void AddUnreadable(const ReadableList::BadItem& item, EventBatch& batch) const {
    const auto* const text = reinterpret_cast<const char*>(payload_.data());
    const auto begin = static_cast<std::size_t>(item.text.data() - text);
    batch.bad.push_back(BadEvent{item.index, {DecodeErrc::kBadJson, begin}, begin});
  }

  void One(const dom::element& item, std::uint32_t index, EventBatch& batch) {
    const BatchMark mark(batch);
    type_.reset();
    if (const Outcome fault = Item(item, index, batch)) {
      mark.Rewind(batch);
      // Parsed values do not know where they were.
      if (!places_) places_.emplace(payload_);
      const std::size_t begin = places_->BeginOf(index);
      batch.bad.push_back(BadEvent{index, {fault->code, begin}, begin, type_, fault->name});
    }
  }

  Outcome Item(const dom::element& item, std::uint32_t index, EventBatch& batch) {
    dom::element data;
    if (item["data"].get(data) != simdjson::SUCCESS) return Missing("data");
    const auto type = Get<std::string_view>(data, "type");
    if (!type) return Missing("type");
    constexpr std::string_view kRankField = "attention_dp_rank";
    if (const auto value = Find(item, kRankField)) {
      std::uint64_t rank = 0;
      if (value->get(rank) != simdjson::SUCCESS) return WrongType(kRankField);
      if (rank > std::numeric_limits<std::int32_t>::max()) return OutOfRange(kRankField);
      if (!batch.dp_rank) batch.dp_rank = static_cast<std::uint32_t>(rank);
      if (*batch.dp_rank != rank) return Fault{DecodeErrc::kSecondRank, kRankField};
    }
    window_ = 0;
    if (!Take(item, "window_size", window_)) return WrongType("window_size");
    index_ = index;
    minor_ = false;
    type_ = TypeOf(*type);
    if (*type == "created") {
      NoteWindow(&WindowTable::Created, batch);
      Add(EventType::kIgnored, "", batch);
      return std::nullopt;
    }
    NoteWindow(&WindowTable::Seen, batch);
    minor_ = windows_.IsMinor(window_);
    if (*type == "stored") return Stored(data, batch);
    if (*type == "removed") return Removed(data, batch);
    if (*type == "updated") return Updated(data, batch);
    return Fault{DecodeErrc::kUnknownEvent, *type};
  }

  void NoteWindow(void (WindowTable::*note)(std::uint64_t), EventBatch& batch) {
    const std::uint64_t before = windows_.main();
    (windows_.*note)(window_);
    if (before != 0 && windows_.main() != before) {
      batch.new_main_from = static_cast<std::uint32_t>(batch.events.size());
    }
  }

  // A move is a removal, too.
  static std::optional<EventType> TypeOf(std::string_view type) {
    if (type == "created") return EventType::kIgnored;
    if (type == "stored") return EventType::kStored;
    if (type == "removed" || type == "updated") return EventType::kRemoved;
    return std::nullopt;
  }

  EngineEvent& Add(EventType type, std::string_view medium, EventBatch& batch) {
    EngineEvent& event = batch.events.emplace_back();
    event.type = type;
    event.index = index_;
    event.medium = medium;
    if (minor_) {
      constexpr std::uint64_t kNumberMax = std::numeric_limits<std::uint32_t>::max() - 1;
      event.kind = GroupKind::kOther;
      event.kind_name = "sliding_window";
      event.window = static_cast<std::uint32_t>(std::min(window_, kNumberMax));
      // Which of them is the main one is not sure before.
      if (windows_.main_is_seen()) event.group = event.window;
    }
    return event;
  }

  static Outcome Level(std::uint64_t level, std::string_view field, std::string_view& medium) {
    if (level >= kLevelMedia.size()) return OutOfRange(field);
    medium = kLevelMedia[level];
    return std::nullopt;
  }

  // Of minor windows only what lies on the device and in host memory; deeper tiers are of no
  // window.
  [[nodiscard]] bool Counts(std::uint64_t level) const { return !minor_ || level < 2; }

  Outcome Stored(const dom::element& data, EventBatch& batch) {
    dom::array blocks;
    if (data["blocks"].get(blocks) != simdjson::SUCCESS) return Missing("blocks");
    std::optional<EngineHash> parent;
    if (const auto value = Find(data, "parent_hash")) {
      if (!(parent = ToHash(*value, batch))) return WrongType("parent_hash");
      if (parent == EngineHash{0}) parent.reset();  // how some builds write the root
    }
    std::string_view lora;
    if (!Take(data, "lora_name", lora)) return WrongType("lora_name");
    const std::uint32_t block_size = BlockSizeOf(blocks, parent);
    bool started = false;
    bool cut = false;
    std::uint32_t left_out = 0;
    for (const dom::element block : blocks) {
      dom::array tokens;
      dom::element hash_value;
      if (block["tokens"].get(tokens) != simdjson::SUCCESS) return Missing("tokens");
      if (block["block_hash"].get(hash_value) != simdjson::SUCCESS) return Missing("block_hash");
      const auto hash = ToHash(hash_value, batch);
      if (!hash) return WrongType("block_hash");
      const std::size_t count = tokens.size();
      // What is behind a partial block has no place either.
      cut = cut || (count < block_size && (started || minor_));
      if (!minor_) NoteSize(*hash, static_cast<std::uint32_t>(count), block_size, cut);
      if (cut) {
        ++left_out;
        continue;
      }
      std::string_view medium;
      std::uint64_t level = 0;
      std::string_view salt;
      if (!Take(block, "cache_level", level)) return WrongType("cache_level");
      if (!Take(block, "cache_salt", salt)) return WrongType("cache_salt");
      if (const Outcome fault = Level(level, "cache_level", medium)) return fault;
      if (!Counts(level)) continue;
      if (batch.hashes.size() >= limits_->blocks_max ||
          batch.tokens.size() + count > limits_->tokens_max) {
        return OverLimit("blocks");
      }
      if (!started || batch.events.back().medium != medium ||
          (!salt.empty() && batch.events.back().cache_salt != salt)) {
        StartRun(medium, parent, lora, block_size, batch);
        if (!salt.empty()) batch.events.back().cache_salt = salt;
        started = true;
      }
      batch.hashes.push_back(*hash);
      if (const Outcome fault = Block(block, tokens, batch)) return fault;
      EndBlock(batch);
      parent = hash;
      cut = count < block_size;
    }
    if (!started) Add(EventType::kStored, kLevelMedia[0], batch);
    if (!minor_) batch.events.back().left_out = left_out;
    return std::nullopt;
  }

  // Tokens of a full block, as far as the event tells: of several the first ones are full, and a
  // parent is. Else as the engine's are registered, unless nothing so long was ever stored.
  std::uint32_t BlockSizeOf(const dom::array& blocks, std::optional<EngineHash> parent) {
    std::uint32_t largest = 0;
    std::size_t count = 0;
    for (const dom::element block : blocks) {
      dom::array tokens;
      if (block["tokens"].get(tokens) != simdjson::SUCCESS) continue;
      largest = std::max(largest, static_cast<std::uint32_t>(tokens.size()));
      ++count;
    }
    if (largest > 0 && (count > 1 || largest >= block_size_)) return largest;
    if (minor_ || block_size_ == 0) return block_size_;
    if (parent) {
      if (const auto above = partial_.Find(*parent)) return std::max(largest, *above);
    }
    short_stores_.Short(largest);
    return short_stores_.size().value_or(block_size_);
  }

  // Of a block of the main window. One that is shorter than an index can take, or `cut` off behind
  // one, is not passed on, and neither is its removal.
  void NoteSize(EngineHash name, std::uint32_t tokens, std::uint32_t block_size, bool cut) {
    if (tokens == 0 && !cut) return;  // it goes by its name
    if (cut || tokens < std::max(block_size, block_size_)) {
      partial_.Note(name, tokens);
      return;
    }
    partial_.Take(name);  // full by now
    if (tokens == block_size_) short_stores_.Full();
  }

  void StartRun(std::string_view medium, std::optional<EngineHash> parent, std::string_view lora,
                std::uint32_t block_size, EventBatch& batch) {
    EngineEvent& event = Add(EventType::kStored, medium, batch);
    event.parent = parent;
    event.sole = true;
    event.lora_name = lora;
    event.block_size = block_size;
    event.hashes = From(batch.hashes, batch.hashes.size());
    event.tokens = From(batch.tokens, batch.tokens.size());
    event.extra_blocks = From(batch.extra_blocks, batch.extra_blocks.size());
  }

  // The last event takes in what was appended since it started.
  static void EndBlock(EventBatch& batch) {
    EngineEvent& event = batch.events.back();
    event.hashes = From(batch.hashes, event.hashes.begin);
    event.tokens = From(batch.tokens, event.tokens.begin);
    event.extra_blocks = From(batch.extra_blocks, event.extra_blocks.begin);
  }

  // Appends a block's tokens and, as extra keys, what else the engine put into its name: tokens
  // that are no numbers, the numbers that some have beside theirs, multimodal objects.
  Outcome Block(const dom::element& block, const dom::array& tokens, EventBatch& batch) {
    const std::size_t keys = batch.extra_keys.size();
    const auto add_key = [&](ExtraKey::Kind kind, std::string_view text, std::int64_t offset) {
      if (batch.extra_keys.size() >= limits_->extra_keys_max) return false;
      batch.extra_keys.push_back({kind, text, text, offset});
      return true;
    };
    bool numbered = false;
    std::int64_t place = 0;
    for (const dom::element token : tokens) {
      std::uint64_t id = 0;
      std::uint64_t extra_id = 0;
      if (!Take(token, "token_extra_id", extra_id)) return WrongType("token_extra_id");
      numbered = numbered || extra_id != 0;
      if (token["token_id"].get(id) == simdjson::SUCCESS) {
        if (id > std::numeric_limits<TokenId>::max()) return OutOfRange("token_id");
      } else if (const auto text = Get<std::string_view>(token, "token_id")) {
        if (!add_key(ExtraKey::Kind::kBytes, *text, place)) return OverLimit("token_id");
      } else {
        return WrongType("token_id");
      }
      batch.tokens.push_back(static_cast<TokenId>(id));
      ++place;
    }
    if (numbered && !add_key(ExtraKey::Kind::kOther, "token_extra_id", 0)) {
      return OverLimit("token_extra_id");
    }
    if (const auto value = Find(block, "mm_keys")) {
      dom::array objects;
      if (value->get(objects) != simdjson::SUCCESS) return WrongType("mm_keys");
      for (const dom::element object : objects) {
        std::string_view digest;
        if (!Take(object, "hash", digest) || !HexDigestHead(digest)) return WrongType("hash");
        const auto start = Get<std::int64_t>(object, "start_offset").value_or(0);
        if (!add_key(ExtraKey::Kind::kTextOffset, digest, start)) return OverLimit("mm_keys");
      }
    }
    batch.extra_blocks.push_back(From(batch.extra_keys, keys));
    return std::nullopt;
  }

  Outcome Removed(const dom::element& data, EventBatch& batch) {
    dom::array hashes;
    if (data["block_hashes"].get(hashes) != simdjson::SUCCESS) return Missing("block_hashes");
    if (batch.hashes.size() + hashes.size() > limits_->blocks_max) return OverLimit("block_hashes");
    const std::size_t begin = batch.hashes.size();
    std::uint32_t left_out = 0;
    for (const dom::element value : hashes) {
      const auto hash = ToHash(value, batch);
      if (!hash) return WrongType("block_hashes");
      if (!minor_ && partial_.Take(*hash)) {
        ++left_out;
      } else {
        batch.hashes.push_back(*hash);
      }
    }
    const bool nothing = left_out > 0 && batch.hashes.size() == begin;  // was ever passed on
    EngineEvent& event = Add(nothing ? EventType::kIgnored : EventType::kRemoved, "", batch);
    event.left_out = left_out;
    if (nothing) return std::nullopt;
    event.hashes = From(batch.hashes, begin);
    event.every_tier = true;
    LeaveNone(event, batch);
    return std::nullopt;
  }

  Outcome Updated(const dom::element& data, EventBatch& batch) {
    const auto change = Find(data, "cache_level");
    if (!change) {  // only the priority changed
      Add(EventType::kIgnored, "", batch);
      return std::nullopt;
    }
    const auto new_level = Get<std::uint64_t>(*change, "new_value");
    const auto old_level = Get<std::uint64_t>(*change, "old_value");
    dom::element value;
    if (!new_level) return Missing("new_value");
    if (!old_level) return Missing("old_value");
    if (data["block_hash"].get(value) != simdjson::SUCCESS) return Missing("block_hash");
    const auto hash = ToHash(value, batch);
    if (!hash) return WrongType("block_hash");
    std::string_view to;
    std::string_view from;
    if (const Outcome fault = Level(*new_level, "new_value", to)) return fault;
    if (const Outcome fault = Level(*old_level, "old_value", from)) return fault;
    const bool left_out = !minor_ && partial_.Find(*hash);
    if (*new_level == *old_level || left_out) {  // stays where it is, or was never passed on
      Add(EventType::kIgnored, "", batch).left_out = left_out ? 1 : 0;
      return std::nullopt;
    }
    if (batch.hashes.size() >= limits_->blocks_max) return OverLimit("block_hash");
    const std::size_t begin = batch.hashes.size();
    batch.hashes.push_back(*hash);
    if (Counts(*new_level)) {
      EngineEvent& stored = Add(EventType::kStored, to, batch);
      stored.hashes = From(batch.hashes, begin);
      stored.sole = true;
    }
    if (Counts(*old_level)) {
      EngineEvent& removed = Add(EventType::kRemoved, from, batch);
      removed.hashes = From(batch.hashes, begin);
      LeaveNone(removed, batch);
    }
    return std::nullopt;
  }

  // A removal from a minor window is of the only copy there; of the main one, stores say it.
  void LeaveNone(EngineEvent& event, EventBatch& batch) const {
    if (!minor_) return;
    const std::size_t begin = batch.copies_left.size();
    batch.copies_left.resize(begin + event.hashes.count, 0);
    event.copies_left = From(batch.copies_left, begin);
  }

  dom::parser parser_;
  JsonRoom room_;
  const DecodeLimits* limits_ = nullptr;
  std::span<const std::byte> payload_;
  std::optional<JsonItems> places_;  // made for the first bad event
  std::uint32_t block_size_ = 0;
  // Of the item at hand.
  std::uint32_t index_ = 0;
  std::uint64_t window_ = 0;
  bool minor_ = false;  // the window is not the main one
  std::optional<EventType> type_;
  // Learned; of blocks, those of the main window, for all windows have the same names.
  WindowTable windows_;
  PartialBlocks partial_;
  ShortStores short_stores_;
};

TrtllmJsonDecoder::TrtllmJsonDecoder(std::size_t partial_blocks_max)
    : impl_(std::make_unique<Impl>(partial_blocks_max)) {}
TrtllmJsonDecoder::~TrtllmJsonDecoder() = default;
TrtllmJsonDecoder::TrtllmJsonDecoder(TrtllmJsonDecoder&&) noexcept = default;
TrtllmJsonDecoder& TrtllmJsonDecoder::operator=(TrtllmJsonDecoder&&) noexcept = default;

Result<void, DecodeError> TrtllmJsonDecoder::Decode(std::span<const std::byte> payload,
                                                    const DecodeLimits& limits,
                                                    std::uint32_t block_size, EventBatch& batch) {
  return impl_->Decode(payload, limits, block_size, batch);
}
void TrtllmJsonDecoder::Reset() {
  impl_->Reset();
}
std::size_t TrtllmJsonDecoder::partial_blocks() const {
  return impl_->partial_blocks();
}
std::uint64_t TrtllmJsonDecoder::forgotten_partial_blocks() const {
  return impl_->forgotten_partial_blocks();
}

}  // namespace kvr::wire
