#include "wire/snapshot_seal.h"

#include <string>

#include <gtest/gtest.h>

#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

Result<SnapshotSeal, DecodeError> Decode(const std::string& bytes) {
  return DecodeSnapshotSeal(std::as_bytes(std::span(bytes)));
}

TEST(SnapshotSeal, RoundTrips) {
  const SnapshotSeal seals[] = {
      {},
      {~std::uint64_t{0}, 900, 899, 1u << 20, true, RankState::kExact, StateReason::kNone},
      {5, 0, 0, 0, false, RankState::kBlind, StateReason::kReplayMismatch},
  };
  for (const SnapshotSeal& seal : seals) {
    std::string bytes;
    EncodeSnapshotSeal(seal, bytes);
    const auto decoded = Decode(bytes);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, seal);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(Decode(bytes.substr(0, size))) << size;
  }
}

TEST(SnapshotSeal, WhatALaterPublisherAddsIsNoHindrance) {
  std::string bytes;
  MsgpackWriter out(bytes);
  out.Map(6);
  out.Text("later");
  out.Array(1);
  out.Map(0);
  out.Text("state");
  out.Text("splendid");
  out.Text("reason");
  out.Text("a new one");
  out.Text("next_sequence");
  out.Uint(3);
  out.Text("publisher_id");
  out.Uint(7);
  out.Text("complete");
  out.Bool(true);
  const auto decoded = Decode(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->publisher_id, 7u);
  EXPECT_EQ(decoded->next_sequence, 3u);
  EXPECT_EQ(decoded->state, RankState::kDegraded);
  EXPECT_EQ(decoded->reason, StateReason::kNone);
}

TEST(SnapshotSeal, WhatIsMissingOrOfAnotherTypeIsRefused) {
  const auto with = [](std::string_view key, auto&& write) {
    std::string bytes;
    MsgpackWriter out(bytes);
    out.Map(2);
    out.Text("publisher_id");
    out.Uint(7);
    out.Text(key);
    write(out);
    return Decode(bytes);
  };
  EXPECT_TRUE(with("next_sequence", [](MsgpackWriter& out) { out.Uint(0); }));
  EXPECT_EQ(with("later", [](MsgpackWriter& out) { out.Uint(0); }).error().code,
            DecodeErrc::kMissingField);
  EXPECT_EQ(with("next_sequence", [](MsgpackWriter& out) { out.Int(-1); }).error().code,
            DecodeErrc::kWrongType);
  EXPECT_EQ(with("complete", [](MsgpackWriter& out) { out.Uint(1); }).error().code,
            DecodeErrc::kWrongType);
  EXPECT_EQ(with("state", [](MsgpackWriter& out) { out.Uint(1); }).error().code,
            DecodeErrc::kWrongType);
}

}  // namespace
}  // namespace kvr::wire
