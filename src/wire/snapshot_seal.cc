#include "wire/snapshot_seal.h"

#include <algorithm>
#include <array>
#include <optional>

#include "wire/msgpack_reader.h"
#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

constexpr std::size_t kDepthMax = 16;  // of values we do not know

template <typename Enum, std::size_t kCount>
Enum ByName(const std::array<std::string_view, kCount>& names, std::string_view name,
            Enum fallback) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? fallback : static_cast<Enum>(found - names.begin());
}

class SealReader {
 public:
  explicit SealReader(std::span<const std::byte> bytes) : in_(bytes) {}

  bool Read(SnapshotSeal& seal) {
    std::size_t pairs = 0;
    if (!in_.ReadMap(pairs)) return false;
    for (; pairs > 0; --pairs) {
      std::string_view key;
      if (!in_.ReadKey(key) || !ReadField(key, seal)) return false;
    }
    if (has_publisher_ && has_sequence_) return true;
    return in_.Fail(DecodeErrc::kMissingField, in_.offset());
  }
  [[nodiscard]] const DecodeError& error() const { return in_.error(); }

 private:
  bool ReadField(std::string_view key, SnapshotSeal& seal) {
    if (key == "publisher_id") return has_publisher_ = Number(seal.publisher_id);
    if (key == "next_sequence") return has_sequence_ = Number(seal.next_sequence);
    if (key == "last_event_id") return Number(seal.last_event_id);
    if (key == "blocks") return Number(seal.blocks);
    if (key == "complete") return Flag(seal.complete);
    std::string_view name;
    if (key == "state") {
      if (!in_.ReadText(name)) return false;
      seal.state = ByName(kRankStateNames, name, RankState::kDegraded);
      return true;
    }
    if (key == "reason") {
      if (!in_.ReadText(name)) return false;
      seal.reason = ByName(kStateReasonNames, name, StateReason::kNone);
      return true;
    }
    return in_.Skip(kDepthMax);
  }
  bool Number(std::uint64_t& value) {
    const std::size_t start = in_.offset();
    MsgpackItem item;
    if (!in_.Read(item)) return false;
    value = item.number;
    return item.kind == MsgpackItem::Kind::kUint || in_.Fail(DecodeErrc::kWrongType, start);
  }
  bool Flag(bool& value) {
    const std::size_t start = in_.offset();
    MsgpackItem item;
    if (!in_.Read(item)) return false;
    value = item.number != 0;
    return item.kind == MsgpackItem::Kind::kBool || in_.Fail(DecodeErrc::kWrongType, start);
  }

  MsgpackReader in_;
  bool has_publisher_ = false;
  bool has_sequence_ = false;
};

}  // namespace

void EncodeSnapshotSeal(const SnapshotSeal& seal, std::string& bytes) {
  MsgpackWriter out(bytes);
  out.Map(7);
  out.Text("publisher_id");
  out.Uint(seal.publisher_id);
  out.Text("next_sequence");
  out.Uint(seal.next_sequence);
  out.Text("last_event_id");
  out.Uint(seal.last_event_id);
  out.Text("blocks");
  out.Uint(seal.blocks);
  out.Text("complete");
  out.Bool(seal.complete);
  out.Text("state");
  out.Text(RankStateName(seal.state));
  out.Text("reason");
  out.Text(StateReasonName(seal.reason));
}

Result<SnapshotSeal, DecodeError> DecodeSnapshotSeal(std::span<const std::byte> bytes) {
  SealReader reader(bytes);
  SnapshotSeal seal;
  if (!reader.Read(seal)) return tl::make_unexpected(reader.error());
  return seal;
}

}  // namespace kvr::wire
