#include "ingest/trtllm_numbers.h"

#include <simdjson.h>

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

// Consecutive events of one rank without a hole between them. An engine's buffer may hold a hundred
// thousand; a message has no more than this.
constexpr std::size_t kRunEventsMax = 4'096;

struct Run {
  std::size_t events = 0;
  std::optional<std::uint64_t> rank;  // none: not said, which is rank 0
  std::optional<std::uint64_t> first;
  std::optional<std::uint64_t> last;
  std::string payload = "[";

  [[nodiscard]] bool TakesUp(std::optional<std::uint64_t> its_rank,
                             std::optional<std::uint64_t> id) const {
    if (events == 0) return true;
    return events < kRunEventsMax && its_rank == rank && (!id || !last || *id == *last + 1);
  }
};

}  // namespace

Result<std::vector<TrtllmNumbers::Message>, wire::DecodeError> TrtllmNumbers::Take(
    std::span<const std::byte> list, const wire::DecodeLimits& limits) {
  const auto refuse = [](wire::DecodeErrc code) {
    return tl::make_unexpected(wire::DecodeError{code, 0});
  };
  if (list.size() > limits.payload_bytes_max) return refuse(wire::DecodeErrc::kOverLimit);
  dom::parser parser;
  dom::element root;
  if (parser.parse(reinterpret_cast<const char*>(list.data()), list.size()).get(root) !=
      simdjson::SUCCESS) {
    return refuse(wire::DecodeErrc::kBadJson);
  }
  std::vector<Run> runs;
  const auto add = [&](const dom::element& event) {
    const auto rank = Number(event, "attention_dp_rank");
    const auto id = Number(event, "event_id");
    if (runs.empty() || !runs.back().TakesUp(rank, id)) runs.emplace_back();
    Run& run = runs.back();
    if (run.events++ == 0) {
      run.rank = rank;
      run.first = id;
    } else {
      run.payload += ',';
    }
    if (id) run.last = id;
    run.payload += simdjson::minify(event);
  };
  if (dom::array events; root.get(events) == simdjson::SUCCESS) {
    for (const dom::element event : events)
      add(event);
  } else if (root.is_object()) {
    add(root);
  } else {
    return refuse(wire::DecodeErrc::kBadJson);
  }
  std::vector<Message> messages;
  for (Run& run : runs) {
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
