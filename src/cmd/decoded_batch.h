// One batch as `kvroute decode` shows it: what its events say and what an index makes of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/placement_event.h"
#include "model/tier.h"
#include "placement/drop_reason.h"
#include "placement/event_translator.h"
#include "placement/placement_batch.h"
#include "wire/event_batch.h"

namespace kvr::cmd {

// Cache salts are secrets: they are shown as "#1", "#2", ... in order of appearance, so that equal
// ones can be told from different ones and none can be read.
class SaltNames {
 public:
  static constexpr std::size_t kNamesMax = 65'536;  // beyond: "#more"

  // Empty for the empty salt.
  std::string NameOf(std::string_view salt);
  // By what it adds to a seed; not 0.
  std::string NameOf(std::uint64_t mix);

 private:
  std::map<std::uint64_t, std::size_t> names_;
};

// A decoded event and what was made of it. Borrows from the batches.
struct ShownEvent {
  const wire::EngineEvent* event = nullptr;
  std::span<const PlacementEvent> placed;  // all that it does to an index, in order
  // Of a store that was not dropped, the one of `placed` that stores its own blocks.
  const PlacementEvent* own = nullptr;
  bool dropped = false;  // it, or another event of the same place in the batch
  // Of a store that took another block's salt, as PlacementBatch says it.
  std::uint64_t inherited_salt = 0;
  // Blocks of it that no index has, for they are not full, lack their tokens or are behind such.
  std::size_t left_out = 0;
};

// Something that is true of a batch as a whole.
struct Fact {
  std::string_view name;  // stable
  std::string text;
};

// What a translator has just made of one payload. Valid until it is given another one.
struct DecodedBatch {
  // `before` are the translator's statistics from before the payload.
  DecodedBatch(const placement::EventTranslator& translator,
               const placement::PlacementBatch& placed_batch,
               const placement::TranslatorStats& before);

  const wire::EventBatch& batch;
  const placement::PlacementBatch& placed;
  const placement::TranslatorOptions& options;
  std::vector<ShownEvent> events;  // in the order of the batch
  std::vector<Fact> facts;

  // Where the event's medium is for the worker; none when nobody knows.
  [[nodiscard]] std::optional<Tier> TierOf(const wire::EngineEvent& event) const;
};

// "1 block", "2 blocks".
std::string Plural(std::size_t count, std::string_view what);

}  // namespace kvr::cmd
