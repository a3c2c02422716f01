#include "cmd/decoded_batch.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "hashing/block_hash.h"
#include "placement/drop_text.h"
#include "wire/medium.h"

namespace kvr::cmd {
namespace {

using placement::PlacementBatch;
using placement::TranslatorStats;

// What a batch added to a count, if anything, and what that means.
struct CountedFact {
  std::string_view name;
  std::uint64_t TranslatorStats::*count;
  std::string_view text;
};

constexpr std::array<CountedFact, 18> kCounted = {{
    {"legacy_layouts", &TranslatorStats::legacy_layouts,
     "positional events whose last places were told apart by their types"},
    {"zero_blocks", &TranslatorStats::zero_blocks,
     "block(s) of the token 0 alone, taken for prompt embeddings: no text matches them"},
    {"skipped_session_ids", &TranslatorStats::skipped_session_ids,
     "session ids of a wrong type, passed over"},
    {"skipped_windows", &TranslatorStats::skipped_windows,
     "windows of a wrong type, passed over: every block of their group counts"},
    {"skipped_token_offsets", &TranslatorStats::skipped_token_offsets,
     "token offsets of a wrong type, passed over"},
    {"skipped_copies_left", &TranslatorStats::skipped_copies_left,
     "numbers of copies of a wrong type, passed over: copies are counted here"},
    {"skipped_positions", &TranslatorStats::skipped_positions,
     "start positions of a wrong type, passed over"},
    {"skipped_mm_infos", &TranslatorStats::skipped_mm_infos,
     "lists of objects of a wrong type, passed over: their blocks count as blocks with objects"},
    {"skipped_flags", &TranslatorStats::skipped_flags, "flags of a wrong type, passed over"},
    {"trailing_bytes", &TranslatorStats::trailing_bytes, "bytes behind the batch, passed over"},
    {"unmatched_removals", &TranslatorStats::unmatched_removals,
     "removal(s) of a block that no store before put there, as far as this stream was decoded: "
     "passed on, to an index that may know it"},
    {"main_changes", &TranslatorStats::main_changes,
     "change(s) of the main cache group: what the former one had in the index is taken back"},
    {"uncounted_blocks", &TranslatorStats::uncounted_blocks,
     "blocks beyond `ingest.counted_blocks_max`: their first removal counts"},
    {"given_up_names", &TranslatorStats::given_up_names,
     "blocks beyond `ingest.held_names_max` that cannot wait for the kind of their group"},
    {"unplaced_blocks", &TranslatorStats::unplaced_blocks,
     "blocks beyond `ingest.chunk_blocks_max` that are in no chunk"},
    {"crowded_chunks", &TranslatorStats::crowded_chunks,
     "chunks beyond `ingest.chunks_max`, given up"},
    {"forgotten_partials", &TranslatorStats::forgotten_partials,
     "partial blocks beyond `ingest.partial_blocks_max`, forgotten"},
    {"forgotten_digests", &TranslatorStats::forgotten_digests,
     "digests beyond `ingest.digests_max`, forgotten"},
}};

void AddCounted(const TranslatorStats& before, const TranslatorStats& after,
                std::vector<Fact>& facts) {
  for (const CountedFact& counted : kCounted) {
    const std::uint64_t added = after.*counted.count - before.*counted.count;
    if (added > 0) facts.push_back({counted.name, fmt::format("{} {}", added, counted.text)});
  }
}

std::string UnclearText(const placement::UnclearGroup& unclear) {
  const bool numbered = unclear.group != std::numeric_limits<std::uint32_t>::max();
  return fmt::format(
      "of cache group {} it is not known what a prefix needs of it ({}); none is "
      "credited",
      numbered ? fmt::to_string(unclear.group) : "without a number",
      placement::DropReasonName(unclear.why));
}

void AddTold(const PlacementBatch& placed, std::uint32_t block_size, std::vector<Fact>& facts) {
  if (placed.forget) {
    facts.push_back({"forget",
                     "blocks were named by the wrong end of digests: all that came before this "
                     "batch is forgotten; say which `engine` it is"});
  }
  if (placed.lost_removals != placement::Concerned::kNone) {
    const bool every = placed.lost_removals == placement::Concerned::kEveryRank;
    facts.push_back({"lost_removals",
                     fmt::format("removals may be among what could not be decoded: of {} it is "
                                 "forgotten how many copies there are, and the next removal of a "
                                 "block counts",
                                 every ? "every rank of the stream" : "the rank")});
  }
  if (placed.wrong_block_size != 0) {
    facts.push_back({"wrong_block_size",
                     fmt::format("stores have {}, registered is {}; they are dropped",
                                 placement::BlockSizeText(placed.wrong_block_size), block_size)});
  }
  if (placed.unclear_group) {
    facts.push_back({"unclear_group", UnclearText(*placed.unclear_group)});
  }
  if (placed.lost_copies) {
    facts.push_back({"lost_copies",
                     "copies that the rank may still hold are no longer known; they come back as "
                     "the engine announces them again"});
  }
}

// What was made of no event. A clear is told as lost copies.
void AddExpired(std::span<const PlacementEvent> rest, std::vector<Fact>& facts) {
  for (const PlacementEvent& event : rest) {
    if (event.kind == PlacementKind::kCleared) continue;
    facts.push_back(
        {"expired", fmt::format("{} removed from {}: the time of their chunks is over, "
                                "or there is no room for them",
                                Plural(event.removed.size(), "block"), TierName(event.tier))});
  }
}

bool IsDropped(const PlacementBatch& placed, std::uint32_t index) {
  const auto at = std::lower_bound(
      placed.dropped.begin(), placed.dropped.end(), index,
      [](const placement::DroppedEvent& event, std::uint32_t i) { return event.index < i; });
  return at != placed.dropped.end() && at->index == index;
}

// What there is to say of the event beside what it does.
void AddNotes(const PlacementBatch& placed, ShownEvent& shown) {
  const wire::EngineEvent& event = *shown.event;
  shown.left_out = event.left_out;
  const auto note =
      std::find_if(placed.notes.begin(), placed.notes.end(),
                   [&](const placement::EventNote& one) { return one.index == event.index; });
  if (note != placed.notes.end()) {
    shown.inherited_salt = note->salt;
    shown.left_out += note->pieces;
  }
  if (shown.own != nullptr) shown.left_out += event.hashes.count - shown.own->blocks.size();
}

}  // namespace

std::string SaltNames::NameOf(std::string_view salt) {
  return salt.empty() ? std::string() : NameOf(hashing::Seed::RawOf({}, salt) - hashing::kBaseSeed);
}

std::string SaltNames::NameOf(std::uint64_t mix) {
  auto known = names_.find(mix);
  if (known == names_.end()) {
    if (names_.size() >= kNamesMax) return "#more";
    known = names_.emplace(mix, names_.size() + 1).first;
  }
  return fmt::format("#{}", known->second);
}

DecodedBatch::DecodedBatch(const placement::EventTranslator& translator,
                           const placement::PlacementBatch& placed_batch,
                           const placement::TranslatorStats& before)
    : batch(translator.decoded()), placed(placed_batch), options(translator.options()) {
  const std::span<const PlacementEvent> all = placed.events;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const wire::EngineEvent& event = batch.events[i];
    ShownEvent& shown = events.emplace_back();
    shown.event = &event;
    shown.placed = all.subspan(begin, placed.made_until[i] - begin);
    shown.dropped = IsDropped(placed, event.index);
    begin = placed.made_until[i];
    if (event.type == wire::EventType::kStored && !shown.dropped) {
      // What else the event stores, as it told what its group is, comes behind its own blocks.
      const auto own = std::find_if(
          shown.placed.begin(), shown.placed.end(),
          [](const PlacementEvent& made) { return made.kind == PlacementKind::kStored; });
      if (own != shown.placed.end()) shown.own = &*own;
    }
    AddNotes(placed, shown);
  }
  AddTold(placed, options.block_size, facts);
  AddExpired(all.subspan(begin), facts);
  AddCounted(before, translator.stats(), facts);
}

std::optional<Tier> DecodedBatch::TierOf(const wire::EngineEvent& event) const {
  return options.lenient_media ? wire::TierFromMediumLeniently(event.medium)
                               : wire::TierFromMedium(event.medium);
}

std::string Plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace kvr::cmd
