// What a publisher says of a rank as a whole: what is decoded is encoded to the same, and the seal
// is read from the front of whatever comes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "wire/snapshot_seal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto seal = kvr::wire::DecodeSnapshotSeal(std::as_bytes(std::span(data, size)));
  if (!seal) {
    KVR_CHECK(seal.error().offset <= size);
    return 0;
  }
  KVR_CHECK(!kvr::RankStateName(seal->state).empty());
  KVR_CHECK(!kvr::StateReasonName(seal->reason).empty());
  std::string bytes;
  kvr::wire::EncodeSnapshotSeal(*seal, bytes);
  const auto again = kvr::wire::DecodeSnapshotSeal(std::as_bytes(std::span(bytes)));
  KVR_CHECK(again.has_value() && *again == *seal);
  return 0;
}
