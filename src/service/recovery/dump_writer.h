// Writes GET /dump, a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fleet/catalog.h"
#include "index/index_set.h"
#include "model/placement_event.h"

namespace kvr::service {

// A dump that is made as it is taken. Not thread-safe.
class DumpSource {
 public:
  virtual ~DumpSource() = default;

  // Replaces `piece` by the next part of the dump, of at least `bytes` unless it ends before. False
  // when there was nothing left.
  virtual bool Next(std::size_t bytes, std::string& piece) = 0;
};

// The blocks of some partitions as Stored events, in one of two forms:
//
//   object  {"model:group":{"model_name":...,"routing_group":...,"version":1,"block_size":16,
//           "watermarks":{"1":{"0":17}},"states":{"1":{"0":"exact"}},"events":[RouterEvent...]}}
//   lines   {"partition":{the same without events}}, then one line an event
//
// Ranks with side groups, which are not in the events, are named in "hybrid":{"1":{"0":true}}.
//
// A watermark is read before the blocks are, so that whoever applies the events and then the stream
// from the watermark on misses nothing. One rank at a time is held, in 16 bytes a block; each is as
// it was at one moment. An event has at most kEventBlocks blocks.
class DumpWriter final : public DumpSource {
 public:
  enum class Form { kObject, kLines };
  static constexpr std::size_t kEventBlocks = 4'096;

  // `snapshot` says how the ranks are doing.
  DumpWriter(Form form, std::vector<std::shared_ptr<index::PartitionIndex>> partitions,
             std::shared_ptr<const fleet::Snapshot> snapshot);
  ~DumpWriter() override;
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  bool Next(std::size_t bytes, std::string& piece) override;

 private:
  class Events;

  void Begin(std::string& out);
  void WriteEvent(const PlacementEvent& event, std::string& out);

  const Form form_;
  const std::vector<std::shared_ptr<index::PartitionIndex>> partitions_;
  const std::shared_ptr<const fleet::Snapshot> snapshot_;
  std::size_t partition_ = 0;  // the one under way, or the next when `events_` is null
  std::unique_ptr<Events> events_;
  std::uint64_t event_id_ = 0;  // of the next
  bool ended_ = false;
};

}  // namespace kvr::service
