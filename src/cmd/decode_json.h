// What `kvroute decode` prints as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/json_writer.h"
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

 private:
  std::map<std::string, std::size_t, std::less<>> names_;
};

// Which placement event, if any, was made of each decoded event, in turn.
class PlacedEvents {
 public:
  explicit PlacedEvents(const placement::PlacementBatch& placed) : placed_(placed) {}

  // Call it for each decoded event in order. Null when nothing reached an index.
  const PlacementEvent* Of(const wire::EngineEvent& event);

 private:
  const placement::PlacementBatch& placed_;
  std::size_t next_ = 0;
};

// The fields ts, dp_rank, events and dropped of an open object.
void WriteBatch(JsonWriter& json, const wire::EventBatch& batch,
                const placement::PlacementBatch& placed, SaltNames& salts);

}  // namespace kvr::cmd
