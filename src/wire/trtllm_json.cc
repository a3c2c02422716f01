#include "wire/trtllm_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>

#include <simdjson.h>

#include "base/text.h"
#include "wire/batch_mark.h"

namespace kvr::wire {
namespace {

namespace dom = simdjson::dom;

// The medium of each cache level; deeper ones do not exist.
constexpr std::array<std::string_view, 3> kLevelMedia = {"GPU", "CPU", "DISK"};

template <typename T>
std::optional<T> Get(const dom::element& object, std::string_view key) {
  T value;
  if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

bool IsNullOrAbsent(const dom::element& object, std::string_view key) {
  dom::element value;
  return object[key].get(value) != simdjson::SUCCESS || value.is_null();
}

// The first 16 of 64 hex digits: the integer form of the same digest.
std::optional<std::uint64_t> FromDigest(std::string_view text) {
  if (text.size() != 64) return std::nullopt;
  return ParseNumber<std::uint64_t>(text.substr(0, 16), 16);
}

std::optional<EngineHash> ToHash(const dom::element& value) {
  std::uint64_t number = 0;
  std::int64_t negative = 0;
  std::string_view text;
  if (value.get(number) == simdjson::SUCCESS) return EngineHash{number};
  if (value.get(negative) == simdjson::SUCCESS) {
    return EngineHash{static_cast<std::uint64_t>(negative)};
  }
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const auto digest = FromDigest(text);
  if (!digest) return std::nullopt;
  return EngineHash{*digest};
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

namespace {

// Which attention window of an engine is the main one: the largest. An engine says which there are
// when it starts; who comes later learns from the events themselves.
class WindowTable {
 public:
  void Created(std::uint64_t window) {
    main_ = announced_ ? std::max(main_, window) : window;
    announced_ = true;
    seen_main_ = true;
  }

  // An event of a window; 0 is one that does not say.
  void Seen(std::uint64_t window) {
    if (window == 0 || announced_) return;
    largest_seen_ = std::max(largest_seen_, window);
    seen_main_ = seen_main_ || window == main_;
    ++events_;
    // What was learned before a reset holds unless the events disprove it: a larger window does at
    // once, one that nobody speaks of any more after a while.
    if (window > main_) {
      main_ = window;
      seen_main_ = true;
    } else if (!seen_main_ && events_ >= kEventsToForget) {
      main_ = largest_seen_;
      seen_main_ = true;
    }
  }

  [[nodiscard]] bool IsMinor(std::uint64_t window) const { return window != 0 && window < main_; }

  void Reset() {
    announced_ = false;
    seen_main_ = false;
    largest_seen_ = 0;
    events_ = 0;
  }

 private:
  static constexpr std::uint64_t kEventsToForget = 256;

  std::uint64_t main_ = 0;
  bool announced_ = false;  // by the engine, since the last reset
  bool seen_main_ = false;  // since the last reset
  std::uint64_t largest_seen_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace

class TrtllmJsonDecoder::Impl {
 public:
  Result<void, DecodeError> Decode(std::span<const std::byte> payload, const DecodeLimits& limits,
                                   std::uint32_t block_size, EventBatch& batch) {
    batch.Clear();
    limits_ = &limits;
    block_size_ = block_size;
    if (payload.size() > limits.payload_bytes_max) return Refuse(DecodeErrc::kOverLimit);
    dom::element root;
    const auto error =
        parser_.parse(reinterpret_cast<const char*>(payload.data()), payload.size()).get(root);
    if (error != simdjson::SUCCESS) return Refuse(DecodeErrc::kBadJson);
    dom::array list;
    if (root.get(list) != simdjson::SUCCESS) {
      One(root, 0, batch);
      return {};
    }
    if (list.size() > limits.events_max) return Refuse(DecodeErrc::kOverLimit);
    std::uint32_t index = 0;
    for (const dom::element event : list)
      One(event, index++, batch);
    return {};
  }

  void Reset() {
    windows_.Reset();
    lower_levels_ = false;
    partial_.clear();
  }

 private:
  using Outcome = std::optional<DecodeErrc>;

  static Result<void, DecodeError> Refuse(DecodeErrc code) {
    return tl::make_unexpected(DecodeError{code, 0});
  }

  void One(const dom::element& item, std::uint32_t index, EventBatch& batch) {
    const BatchMark mark(batch);
    if (const Outcome error = Item(item, index, batch)) {
      mark.Rewind(batch);
      batch.bad.push_back(BadEvent{index, {*error, 0}});
    }
  }

  Outcome Item(const dom::element& item, std::uint32_t index, EventBatch& batch) {
    dom::element data;
    if (item["data"].get(data) != simdjson::SUCCESS) return DecodeErrc::kMissingField;
    const auto type = Get<std::string_view>(data, "type");
    if (!type) return DecodeErrc::kMissingField;
    if (const auto rank = Get<std::uint64_t>(item, "attention_dp_rank")) {
      // One rank a list; the next one's events belong to another list.
      if (*rank > std::numeric_limits<std::int32_t>::max()) return DecodeErrc::kOutOfRange;
      if (!batch.dp_rank) batch.dp_rank = static_cast<std::uint32_t>(*rank);
      if (*batch.dp_rank != *rank) return DecodeErrc::kOutOfRange;
    }
    window_ = Get<std::uint64_t>(item, "window_size").value_or(0);
    index_ = index;
    if (*type == "created") {
      windows_.Created(window_);
      Add(EventType::kIgnored, "", batch);
      return std::nullopt;
    }
    windows_.Seen(window_);
    if (*type == "stored") return Stored(data, batch);
    if (*type == "removed") return Removed(data, batch);
    if (*type == "updated") return Updated(data, batch);
    return DecodeErrc::kUnknownEvent;
  }

  EngineEvent& Add(EventType type, std::string_view medium, EventBatch& batch) {
    EngineEvent& event = batch.events.emplace_back();
    event.type = type;
    event.index = index_;
    event.medium = medium;
    if (windows_.IsMinor(window_)) {
      event.kind = GroupKind::kOther;
      event.kind_name = "sliding_window";
      event.window = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(window_, std::numeric_limits<std::uint32_t>::max()));
    }
    return event;
  }

  Outcome Level(std::uint64_t level, std::string_view& medium) {
    if (level >= kLevelMedia.size()) return DecodeErrc::kOutOfRange;
    lower_levels_ |= level > 0;
    medium = kLevelMedia[level];
    return std::nullopt;
  }

  Outcome Stored(const dom::element& data, EventBatch& batch) {
    dom::array blocks;
    if (data["blocks"].get(blocks) != simdjson::SUCCESS) return DecodeErrc::kMissingField;
    std::optional<EngineHash> parent;
    if (dom::element value; data["parent_hash"].get(value) == simdjson::SUCCESS) {
      if (!value.is_null() && !(parent = ToHash(value))) return DecodeErrc::kWrongType;
      if (parent == EngineHash{0}) parent.reset();  // how some builds write the root
    }
    const auto lora = Get<std::string_view>(data, "lora_name").value_or(std::string_view());
    std::uint32_t block_size = block_size_;
    bool started = false;
    for (const dom::element block : blocks) {
      dom::array tokens;
      dom::element hash_value;
      if (block["tokens"].get(tokens) != simdjson::SUCCESS ||
          block["block_hash"].get(hash_value) != simdjson::SUCCESS) {
        return DecodeErrc::kMissingField;
      }
      const auto hash = ToHash(hash_value);
      if (!hash) return DecodeErrc::kWrongType;
      const std::size_t count = tokens.size();
      if (block_size == 0) block_size = static_cast<std::uint32_t>(count);
      if (count > block_size) return DecodeErrc::kOutOfRange;
      if (count < block_size) NotePartial(*hash);
      if (count < block_size && started) break;
      std::string_view medium;
      if (const Outcome error =
              Level(Get<std::uint64_t>(block, "cache_level").value_or(0), medium)) {
        return error;
      }
      if (batch.hashes.size() >= limits_->blocks_max ||
          batch.tokens.size() + count > limits_->tokens_max) {
        return DecodeErrc::kOverLimit;
      }
      if (!started || batch.events.back().medium != medium) {
        StartRun(medium, parent, lora, block_size, batch);
        if (const auto salt = Get<std::string_view>(block, "cache_salt")) {
          batch.events.back().cache_salt = *salt;
        }
        started = true;
      }
      batch.hashes.push_back(*hash);
      if (const Outcome error = Block(block, tokens, batch)) return error;
      EndBlock(batch);
      parent = hash;
      if (count < block_size) break;
    }
    if (!started) Add(EventType::kStored, kLevelMedia[0], batch);
    return std::nullopt;
  }

  void StartRun(std::string_view medium, std::optional<EngineHash> parent, std::string_view lora,
                std::uint32_t block_size, EventBatch& batch) {
    EngineEvent& event = Add(EventType::kStored, medium, batch);
    event.parent = parent;
    event.lora_name = lora;
    event.block_size = block_size;
    event.hashes = From(batch.hashes, batch.hashes.size());
    event.tokens = From(batch.tokens, batch.tokens.size());
    event.extra_blocks = From(batch.extra_blocks, batch.extra_blocks.size());
    event.mm_blocks = From(batch.mm_blocks, batch.mm_blocks.size());
  }

  // The last event takes in what was appended since it started.
  static void EndBlock(EventBatch& batch) {
    EngineEvent& event = batch.events.back();
    event.hashes = From(batch.hashes, event.hashes.begin);
    event.tokens = From(batch.tokens, event.tokens.begin);
    event.extra_blocks = From(batch.extra_blocks, event.extra_blocks.begin);
    event.mm_blocks = From(batch.mm_blocks, event.mm_blocks.begin);
    event.has_mm_infos |= batch.mm_blocks.back().count > 0;
  }

  // Appends a block's tokens, multimodal objects, and as an extra key each token that is no number.
  Outcome Block(const dom::element& block, const dom::array& tokens, EventBatch& batch) {
    const std::size_t keys = batch.extra_keys.size();
    for (const dom::element token : tokens) {
      std::uint64_t id = 0;
      if (token["token_id"].get(id) == simdjson::SUCCESS) {
        if (id > std::numeric_limits<TokenId>::max()) return DecodeErrc::kOutOfRange;
      } else if (const auto text = Get<std::string_view>(token, "token_id")) {
        if (batch.extra_keys.size() >= limits_->extra_keys_max) return DecodeErrc::kOverLimit;
        batch.extra_keys.push_back({ExtraKey::Kind::kBytes, *text, *text});
      } else {
        return DecodeErrc::kWrongType;
      }
      batch.tokens.push_back(static_cast<TokenId>(id));
    }
    batch.extra_blocks.push_back(From(batch.extra_keys, keys));

    const std::size_t objects = batch.mm_hashes.size();
    if (dom::array mm; block["mm_keys"].get(mm) == simdjson::SUCCESS) {
      if (objects + mm.size() > limits_->extra_keys_max) return DecodeErrc::kOverLimit;
      for (const dom::element key : mm) {
        const auto digest =
            FromDigest(Get<std::string_view>(key, "hash").value_or(std::string_view()));
        if (!digest) return DecodeErrc::kWrongType;
        batch.mm_hashes.push_back(*digest);
      }
    }
    batch.mm_blocks.push_back(From(batch.mm_hashes, objects));
    return std::nullopt;
  }

  // So that its removal is left out as well.
  void NotePartial(EngineHash hash) {
    // An engine has about one for each request. Beyond the limit a removal of one that was left out
    // passes, and finds nothing.
    constexpr std::size_t kPartialMax = 65'536;
    if (partial_.size() >= kPartialMax) partial_.clear();
    partial_.insert(Raw(hash));
  }

  Outcome Removed(const dom::element& data, EventBatch& batch) {
    dom::array hashes;
    if (data["block_hashes"].get(hashes) != simdjson::SUCCESS) return DecodeErrc::kMissingField;
    if (batch.hashes.size() + hashes.size() > limits_->blocks_max) return DecodeErrc::kOverLimit;
    const std::size_t begin = batch.hashes.size();
    for (const dom::element value : hashes) {
      const auto hash = ToHash(value);
      if (!hash) return DecodeErrc::kWrongType;
      if (partial_.erase(Raw(*hash)) == 0) batch.hashes.push_back(*hash);
    }
    if (batch.hashes.size() == begin && hashes.size() > 0) {  // none was ever passed on
      Add(EventType::kIgnored, "", batch);
      return std::nullopt;
    }
    // A removal names no level: the block is gone from all that were ever used.
    const std::size_t levels = lower_levels_ ? kLevelMedia.size() : 1;
    for (std::size_t level = 0; level < levels; ++level) {
      Add(EventType::kRemoved, kLevelMedia[level], batch).hashes = From(batch.hashes, begin);
    }
    return std::nullopt;
  }

  Outcome Updated(const dom::element& data, EventBatch& batch) {
    if (IsNullOrAbsent(data, "cache_level")) {  // only the priority changed
      Add(EventType::kIgnored, "", batch);
      return std::nullopt;
    }
    const dom::element change = data["cache_level"];
    const auto new_level = Get<std::uint64_t>(change, "new_value");
    const auto old_level = Get<std::uint64_t>(change, "old_value");
    dom::element value;
    if (!new_level || !old_level || data["block_hash"].get(value) != simdjson::SUCCESS) {
      return DecodeErrc::kMissingField;
    }
    const auto hash = ToHash(value);
    if (!hash) return DecodeErrc::kWrongType;
    std::string_view to;
    std::string_view from;
    if (const Outcome error = Level(*new_level, to)) return error;
    if (const Outcome error = Level(*old_level, from)) return error;
    if (batch.hashes.size() >= limits_->blocks_max) return DecodeErrc::kOverLimit;
    const std::size_t begin = batch.hashes.size();
    batch.hashes.push_back(*hash);
    Add(EventType::kStored, to, batch).hashes = From(batch.hashes, begin);
    Add(EventType::kRemoved, from, batch).hashes = From(batch.hashes, begin);
    return std::nullopt;
  }

  dom::parser parser_;
  const DecodeLimits* limits_ = nullptr;
  std::uint32_t block_size_ = 0;
  // Of the item at hand.
  std::uint32_t index_ = 0;
  std::uint64_t window_ = 0;
  // Learned.
  WindowTable windows_;
  bool lower_levels_ = false;
  std::unordered_set<std::uint64_t> partial_;  // blocks left out because they were not full
};

TrtllmJsonDecoder::TrtllmJsonDecoder() : impl_(std::make_unique<Impl>()) {}
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

}  // namespace kvr::wire
