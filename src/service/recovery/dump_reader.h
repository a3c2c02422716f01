// Reads a peer's /dump, as JSON, into partitions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "service/recovery/recovered_rank.h"

namespace kvr::service {

// Why one partition of a dump is not used. The names are label-safe and stable.
enum class DumpReject : std::uint8_t {
  kPeerError,  // the peer could not dump it: {"error": ...}
  kMalformed,
  kBlockSize,  // another block size than the partition has here
  kTooLarge,
};
inline constexpr std::array<std::string_view, 4> kDumpRejectNames = {"peer_error", "malformed",
                                                                     "block_size", "too_large"};
constexpr std::string_view DumpRejectName(DumpReject reason) {
  return kDumpRejectNames[static_cast<std::size_t>(reason)];
}

// Takes the bytes of one dump as they come and hands over each partition when it is complete. A
// partition that is wrong in itself is rejected alone; text that is no dump fails the whole. An
// event that is too long to be held costs its partition only the event, and its ranks their
// watermarks: whose blocks it had is not known, so that no rank is surely complete.
//
// Both forms are read: the one JSON object of the reference, and lines with a head a partition. A
// key "model:group" without model_name and routing_group beside it is split at its last colon:
// models have colons in their names ("llama3:8b") more often than routing groups do.
//
// Ranks with side groups are left out, see DumpWriter.
//
// What stays in memory is one partition in binary form (16 bytes a block) and one piece of text.
// Not thread-safe.
class DumpReader {
 public:
  struct Options {
    // One event: beyond, it is passed over. One head, field or key: beyond, its partition is
    // rejected.
    std::size_t piece_bytes_max = 16u << 20;
    std::uint64_t dump_bytes_max = 16ull << 30;    // the whole answer
    std::size_t partition_blocks_max = 16u << 20;  // beyond: the partition is rejected
    std::size_t partition_ranks_max = 64u << 10;   // likewise
    std::size_t partitions_max = 4'096;            // beyond: the dump fails
  };
  enum class Form { kObject, kLines };

  class Sink {
   public:
    virtual ~Sink() = default;
    // Before anything else of a binary dump: when it was begun, since the Unix epoch. An error
    // ends the reading.
    virtual Result<void> Begin(Nanos /*written*/) { return {}; }
    virtual void Take(RecoveredPartition partition) = 0;
    // `name` is the partition as far as it could be read.
    virtual void Reject(std::string_view name, DumpReject reason, std::string_view detail) = 0;
    // How many events of the partition were too long, before it is taken.
    virtual void PassOver(std::string_view name, std::size_t events) = 0;
  };

  // `sink` must outlive the reader and is called from within Put and Finish.
  DumpReader(const Options& options, Form form, Sink& sink);
  ~DumpReader();
  DumpReader(const DumpReader&) = delete;
  DumpReader& operator=(const DumpReader&) = delete;

  // kCorrupt, kTooLarge: the dump is of no further use.
  Result<void> Put(std::string_view bytes);
  // After the last byte; hands over the last partition. kCorrupt when the text ended early.
  Result<void> Finish();

  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
