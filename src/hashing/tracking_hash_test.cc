#include "hashing/tracking_hash.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::hashing {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TrackingKey KeyOf(unsigned char byte) {
  std::array<std::byte, TrackingKey::kBytes> bytes;
  bytes.fill(static_cast<std::byte>(byte));
  return TrackingKey(bytes);
}

std::vector<TokenId> Iota(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0u);
  return tokens;
}

std::vector<std::uint64_t> Identities(const TrackingHasher& hasher, const TrackingScope& scope,
                                      std::size_t tokens, const std::vector<BlockMm>& mm = {}) {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> out;
  TrackingHashes(Iota(tokens), scope, hasher.SeedsFor(scope), mm, blocks, out);
  std::vector<std::uint64_t> raws;
  for (const SequenceHash hash : out)
    raws.push_back(Raw(hash));
  return raws;
}

TEST(TrackingHasher, C21KeyedVectorWithEveryField) {
  const TrackingHasher hasher(KeyOf(0x5A), "2026-01");
  const TrackingScope scope{.model = "model-a",
                            .routing_group = "tenant-a",
                            .block_size = 4,
                            .cache_salt = "cache-a",
                            .lora = "adapter-a"};
  const TrackingSeeds seeds = hasher.SeedsFor(scope);
  EXPECT_EQ(seeds.block.raw(), 18195031674076271517u);
  EXPECT_EQ(seeds.chain, 8617989506309882921u);
  EXPECT_THAT(Identities(hasher, scope, 12),
              ElementsAre(4363769719052127296u, 14998523962162619427u, 13920914207884994756u));
  EXPECT_FALSE(hasher.is_public());
}

TEST(TrackingHasher, C21KeyedVectors) {
  const TrackingHasher hasher(KeyOf(0x41), "2026-01");
  TrackingScope scope{.model = "model", .block_size = 4};
  EXPECT_THAT(Identities(hasher, scope, 10),
              ElementsAre(3060348565256297392u, 14943742400515528531u));
  EXPECT_THAT(Identities(hasher, scope, 10, {{0, 42}}),
              ElementsAre(13077030603177067515u, 12131634976806651614u));
  scope.eagle = true;
  EXPECT_THAT(Identities(hasher, scope, 10),
              ElementsAre(18351479723295049348u, 8577555336206814019u));
  EXPECT_TRUE(Identities(hasher, scope, 4).empty());
}

TEST(TrackingHasher, EveryFieldCounts) {
  const TrackingScope base{.model = "m", .block_size = 4};
  const auto of = [](unsigned char key, const std::string& key_id, const TrackingScope& scope) {
    return TrackingHasher(KeyOf(key), key_id).SeedsFor(scope).block.raw();
  };
  std::vector<std::uint64_t> seen = {of(1, "k", base), of(2, "k", base), of(1, "l", base)};
  for (int field = 0; field < 6; ++field) {
    TrackingScope scope = base;
    if (field == 0) scope.model = "n";
    if (field == 1) scope.routing_group = "other";
    if (field == 2) scope.block_size = 8;
    if (field == 3) scope.cache_salt = "x";
    if (field == 4) scope.lora = "x";
    if (field == 5) scope.eagle = true;
    seen.push_back(of(1, "k", scope));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(TrackingHasher, PublicIsTheSequenceHash) {
  const TrackingHasher hasher;
  EXPECT_TRUE(hasher.is_public());
  EXPECT_THAT(Identities(hasher, {.model = "any", .block_size = 4}, 8),
              ElementsAre(9143094415614847814u, 9510318385840434533u));
  EXPECT_THAT(
      Identities(hasher,
                 {.model = "any", .block_size = 4, .cache_salt = "tenant-a", .lora = "adapter-a"},
                 8),
      ElementsAre(8269515957840517240u, 16913744751721653295u));
}

TEST(UniqueTrackingHashes, OnePerBlock) {
  Rng rng(1);
  std::vector<SequenceHash> out;
  UniqueTrackingHashes(3, rng, out);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_NE(out[0], out[1]);
  EXPECT_NE(out[1], out[2]);
  const auto first = out;
  UniqueTrackingHashes(3, rng, out);
  EXPECT_NE(out, first);
  UniqueTrackingHashes(0, rng, out);
  EXPECT_TRUE(out.empty());
}

TEST(TrackingOptions, ErrorsAreExact) {
  struct Row {
    TrackingOptions options;
    std::string message;  // empty: valid
  };
  const std::string needs_keyed =
      "router tracking key options require router_tracking_hash=keyed-xxh3-v1";
  const std::string needs_id = "keyed-xxh3-v1 requires a nonempty router_tracking_key_id";
  for (const Row& row : {
           Row{{}, ""},
           Row{{"public-xxh3-v1", "", ""}, ""},
           Row{{"public-xxh3-v1", "f", ""}, needs_keyed},
           Row{{"public-xxh3-v1", "", "k"}, needs_keyed},
           Row{{"keyed-xxh3-v1", "f", "k"}, ""},
           Row{{"keyed-xxh3-v1", "f", "k k"}, ""},
           Row{{"keyed-xxh3-v1", "", "k"}, "keyed-xxh3-v1 requires router_tracking_key_file"},
           Row{{"keyed-xxh3-v1", "f", ""}, needs_id},
           Row{{"keyed-xxh3-v1", "f", " k"}, needs_id},
           Row{{"keyed-xxh3-v1", "f", "k\n"}, needs_id},
           Row{{"keyed-xxh3-v1", "f", " "}, needs_id},
           Row{{"sha256", "", ""},
               "router_tracking_hash must be public-xxh3-v1 or keyed-xxh3-v1, got \"sha256\""},
           Row{{"", "", ""},
               "router_tracking_hash must be public-xxh3-v1 or keyed-xxh3-v1, got \"\""},
       }) {
    const auto valid = row.options.Validate();
    EXPECT_EQ(valid ? "" : valid.error().message, row.message);
    if (!row.message.empty()) {
      EXPECT_FALSE(TrackingHasher::Make(row.options));
    }
  }
}

class KeyFile : public testing::Test {
 protected:
  ~KeyFile() override { std::remove(path_.c_str()); }

  Result<TrackingKey> Read(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return TrackingKey::ReadFile(path_);
  }

  const std::string path_ = testing::TempDir() + "/kvr_tracking_key_test";
};

TEST_F(KeyFile, HoldsExactly32RawBytes) {
  const auto key = Read(std::string(32, 'A'));
  ASSERT_TRUE(key);
  EXPECT_TRUE(std::all_of(key->bytes().begin(), key->bytes().end(),
                          [](std::byte b) { return b == std::byte{0x41}; }));
  for (const std::size_t size : {0u, 31u, 33u, 64u, 4096u, 10'000u}) {
    const auto failed = Read(std::string(size, 'A'));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message,
              "router tracking key file must contain exactly 32 raw bytes; found " +
                  std::to_string(size));
  }
}

TEST_F(KeyFile, UnreadableNeverShowsThePath) {
  for (const std::string& path : {path_, testing::TempDir()}) {
    const auto failed = TrackingKey::ReadFile(path);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "failed to read router tracking key file");
  }
}

TEST_F(KeyFile, MakeReadsIt) {
  ASSERT_TRUE(Read(std::string(32, 'A')));
  const auto hasher = TrackingHasher::Make({"keyed-xxh3-v1", path_, "2026-01"});
  ASSERT_TRUE(hasher);
  EXPECT_THAT(Identities(*hasher, {.model = "model", .block_size = 4}, 10),
              ElementsAre(3060348565256297392u, 14943742400515528531u));
  const auto gone = TrackingHasher::Make({"keyed-xxh3-v1", path_ + ".none", "2026-01"});
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, Not(HasSubstr(path_)));
}

TEST(TrackingKey, PrintsRedactedAndWipesWhatItLeaves) {
  TrackingKey key = KeyOf(0x41);
  std::ostringstream out;
  out << key;
  EXPECT_EQ(out.str(), "[REDACTED]");
  const TrackingKey moved = std::move(key);
  EXPECT_EQ(moved.bytes()[31], std::byte{0x41});
  for (const std::byte b : key.bytes())  // NOLINT(bugprone-use-after-move): it must be wiped
    EXPECT_EQ(b, std::byte{0});
}

}  // namespace
}  // namespace kvr::hashing
