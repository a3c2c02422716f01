#include "ingest/trtllm_numbers.h"

#include <algorithm>
#include <utility>

#include <simdjson.h>

namespace kvr::ingest {
namespace {

namespace dom = simdjson::dom;

// More than any engine has. The ids of further ranks are not followed.
constexpr std::size_t kRanksMax = 4'096;

std::optional<std::uint64_t> NumberOf(const dom::element& event, std::string_view key) {
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
static_assert(kRunBytesMax <= kDecoders.json_bytes_max);
static_assert(kRunBytesMax / std::string_view("1,").size() <= kDecoders.blocks_max);
static_assert(kRunBytesMax / std::string_view(R"({"token_id":1},)").size() <=
              std::min(kDecoders.tokens_max, kDecoders.extra_keys_max));

// An event as the list has it.
struct Item {
  std::string_view text;
  bool readable = false;              // it is an object, of no wrong rank
  std::optional<std::uint64_t> rank;  // none: not said, which is rank 0
  std::optional<std::uint64_t> id;
};

}  // namespace

// Consecutive events of one rank without a hole between them.
struct TrtllmNumbers::Run {
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

// Looks into items.
struct TrtllmNumbers::Reader {
  dom::parser parser;
  std::string alone;

  Item Read(std::string_view text) {
    Item item{text, false, {}, {}};
    // As an item, so that it may be nested as deep as it may be there, and may not be empty.
    alone.reserve(text.size() + 2 + simdjson::SIMDJSON_PADDING);
    alone.assign("[").append(text).append("]");
    dom::array list;
    if (parser.parse(alone).get(list) != simdjson::SUCCESS || list.size() != 1) return item;
    const dom::element event = list.at(0).value_unsafe();
    item.rank = NumberOf(event, "attention_dp_rank");
    // Whose an event of a wrong rank is, nobody knows: its id counts for none.
    dom::element rank;
    const bool wrong_rank =
        !item.rank && event["attention_dp_rank"].get(rank) == simdjson::SUCCESS && !rank.is_null();
    item.readable = event.is_object() && !wrong_rank;
    if (!item.readable) return item;
    item.id = NumberOf(event, "event_id");
    return item;
  }
  // An event may be long once.
  void GiveBack() {
    if (parser.capacity() > kRunBytesMax) parser = dom::parser();
    if (alone.capacity() > kRunBytesMax) std::string().swap(alone);
  }
};

TrtllmNumbers::TrtllmNumbers(std::size_t event_bytes_max)
    : cutter_(event_bytes_max), reader_(std::make_unique<Reader>()) {}
TrtllmNumbers::~TrtllmNumbers() = default;

bool TrtllmNumbers::Take(std::string_view bytes, std::vector<Message>& messages) {
  while (true) {
    switch (cutter_.Take(bytes)) {
      case ListCutter::Step::kMore:
        return true;
      case ListCutter::Step::kWrong:
        return false;
      case ListCutter::Step::kItem:
        TakeItem(messages);
        break;
    }
  }
}

bool TrtllmNumbers::End(std::vector<Message>& messages) {
  if (!cutter_.ended()) return false;
  Flush(messages);
  cutter_.Reset();
  reader_->GiveBack();
  return true;
}

void TrtllmNumbers::Lose(std::vector<Message>& messages) {
  Flush(messages);
  cutter_.Reset();
  reader_->GiveBack();
  if (std::exchange(loss_told_, next_ > 0)) return;
  lost_ = true;
  if (next_ == 0) return;
  ++losses_;
  Number({0, "[]"}, messages);
}

void TrtllmNumbers::TakeItem(std::vector<Message>& messages) {
  ++events_;
  if (cutter_.too_long()) ++events_too_long_;
  const Item item =
      cutter_.too_long() ? Item{"null", false, {}, {}} : reader_->Read(cutter_.item());
  if (run_ && !run_->TakesUp(item)) Flush(messages);
  if (!run_) run_ = std::make_unique<Run>();
  run_->Add(item);
}

void TrtllmNumbers::Flush(std::vector<Message>& messages) {
  if (!run_) return;
  const auto run = std::exchange(run_, nullptr);
  loss_told_ = false;
  Message message;
  run->payload += ']';
  message.payload = std::move(run->payload);
  if (run->first && run->last) Follow(run->rank.value_or(0), *run->first, *run->last, message);
  Number(std::move(message), messages);
}

void TrtllmNumbers::Number(Message message, std::vector<Message>& messages) {
  if (std::exchange(lost_, false)) ++next_;
  message.sequence = next_++;
  messages.push_back(std::move(message));
}

void TrtllmNumbers::Follow(std::uint64_t rank, std::uint64_t first, std::uint64_t last,
                           Message& message) {
  const auto known = ranks_.find(rank);
  if (known != ranks_.end() && first <= known->second.last_id) {
    message.restart = true;
    ranks_.clear();
    losses_ = 0;
    next_ = 0;
    lost_ = first != 0;
  } else {
    const bool is_known = known != ranks_.end();
    const std::uint64_t expected = is_known ? known->second.last_id + 1 : 0;
    const bool told = losses_ != (is_known ? known->second.losses : 0);
    // Of a list that was lost before anything came the ids say all.
    if (next_ == 0) lost_ = false;
    lost_ = lost_ || (first != expected && !told);
  }
  if (ranks_.size() < kRanksMax || ranks_.contains(rank)) ranks_[rank] = {last, losses_};
}

}  // namespace kvr::ingest
