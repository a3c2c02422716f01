#include "ingest/trtllm_numbers.h"

#include <algorithm>
#include <string_view>

#include <simdjson.h>

#include "wire/readable_list.h"

namespace kvr::ingest {
namespace {

namespace dom = simdjson::dom;

// More than any engine has. The ids of further ranks are not followed.
constexpr std::size_t kRanksMax = 4'096;

std::optional<std::uint64_t> Number(const dom::element& event, std::string_view key) {
  std::uint64_t value = 0;
  if (event[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// An engine's buffer may hold a hundred thousand events; a message has no more than this.
constexpr std::size_t kRunEventsMax = 4'096;
// ... and no more bytes, unless one event has. So it is within a decoder's limits, for a list of
// blocks takes two bytes a block, a token more, and a key more yet.
constexpr std::size_t kRunBytesMax = std::size_t{2} << 20;
constexpr wire::DecodeLimits kDecoders;
static_assert(kRunEventsMax <= kDecoders.events_max);
static_assert(kRunBytesMax <= kDecoders.payload_bytes_max);
static_assert(kRunBytesMax / std::string_view("1,").size() <= kDecoders.blocks_max);
static_assert(kRunBytesMax / std::string_view(R"({"token_id":1},)").size() <=
              std::min(kDecoders.tokens_max, kDecoders.extra_keys_max));
// Items of a list of which some are no JSON.
constexpr std::size_t kItemsMax = std::size_t{1} << 20;

// An event as the list has it.
struct Item {
  std::string text;
  bool readable = true;               // it is an object
  std::optional<std::uint64_t> rank;  // none: not said, which is rank 0
  std::optional<std::uint64_t> id;
};

// Consecutive events of one rank without a hole between them.
struct Run {
  std::size_t events = 0;
  std::size_t readable = 0;
  std::size_t unreadable = 0;  // since the last readable one
  std::optional<std::uint64_t> rank;
  std::optional<std::uint64_t> first;
  std::optional<std::uint64_t> last;
  std::string payload = "[";

  [[nodiscard]] bool TakesUp(const Item& item) const {
    if (events == 0) return true;
    if (events == kRunEventsMax || payload.size() + item.text.size() + 2 > kRunBytesMax) {
      return false;
    }
    if (!item.readable || readable == 0) return true;
    return item.rank == rank && (!item.id || !last || IsNext(*item.id));
  }
  void Add(const Item& item) {
    if (events++ > 0) payload += ',';
    payload += item.text;
    if (!item.readable) {
      ++unreadable;
      return;
    }
    if (readable++ == 0) rank = item.rank;
    unreadable = 0;
    if (!first) first = item.id;
    if (item.id) last = item.id;
  }

 private:
  [[nodiscard]] bool IsNext(std::uint64_t id) const {
    return id > *last && id - *last - 1 <= unreadable;
  }
};

// Makes runs of a list, one item after the other.
class Runs {
 public:
  void Add(const Item& item) {
    if (runs_.empty() || !runs_.back().TakesUp(item)) runs_.emplace_back();
    runs_.back().Add(item);
  }
  void Add(const dom::element& event) {
    Add(Item{simdjson::minify(event), event.is_object(), Number(event, "attention_dp_rank"),
             Number(event, "event_id")});
  }
  // `bad` are in the places of some of `events`.
  void Add(const dom::array& events, std::span<const wire::ReadableList::BadItem> bad) {
    std::uint32_t index = 0;
    for (const dom::element event : events) {
      if (!bad.empty() && bad.front().index == index) {
        Add(Item{std::string(bad.front().text), false, {}, {}});
        bad = bad.subspan(1);
      } else {
        Add(event);
      }
      ++index;
    }
  }
  [[nodiscard]] std::vector<Run>& all() { return runs_; }

 private:
  std::vector<Run> runs_;
};

bool Parse(std::string_view text, dom::parser& parser, dom::element& root) {
  return parser.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS;
}

}  // namespace

Result<std::vector<TrtllmNumbers::Message>, wire::DecodeError> TrtllmNumbers::Take(
    std::span<const std::byte> list, const wire::DecodeLimits& limits) {
  const auto refuse = [](wire::DecodeErrc code) {
    return tl::make_unexpected(wire::DecodeError{code, 0});
  };
  if (list.size() > limits.payload_bytes_max) return refuse(wire::DecodeErrc::kOverLimit);
  dom::parser parser;
  dom::element root;
  std::optional<wire::ReadableList> readable;
  if (!Parse({reinterpret_cast<const char*>(list.data()), list.size()}, parser, root)) {
    readable = wire::MakeReadable(list, kItemsMax);
    if (!readable || !Parse(readable->text, parser, root))
      return refuse(wire::DecodeErrc::kBadJson);
  }
  Runs runs;
  if (dom::array events; root.get(events) == simdjson::SUCCESS) {
    runs.Add(events, readable ? std::span<const wire::ReadableList::BadItem>(readable->bad)
                              : std::span<const wire::ReadableList::BadItem>());
  } else if (root.is_object()) {
    runs.Add(root);
  } else {
    return refuse(wire::DecodeErrc::kBadJson);
  }
  std::vector<Message> messages;
  for (Run& run : runs.all()) {
    Message message;
    run.payload += ']';
    message.payload = std::move(run.payload);
    if (run.first && run.last) Follow(run.rank.value_or(0), *run.first, *run.last, message);
    if (lost_) ++next_;
    lost_ = false;
    message.sequence = next_++;
    messages.push_back(std::move(message));
  }
  return messages;
}

void TrtllmNumbers::Follow(std::uint64_t rank, std::uint64_t first, std::uint64_t last,
                           Message& message) {
  const auto known = last_ids_.find(rank);
  if (known != last_ids_.end() && first <= known->second) {
    message.restart = true;
    last_ids_.clear();
    next_ = 0;
    lost_ = first != 0;
  } else {
    const std::uint64_t expected = known == last_ids_.end() ? 0 : known->second + 1;
    lost_ = lost_ || first != expected;
  }
  if (last_ids_.size() < kRanksMax || last_ids_.contains(rank)) last_ids_[rank] = last;
}

}  // namespace kvr::ingest
