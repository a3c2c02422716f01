#include "hashing/stable_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hex.h"

namespace kvr::hashing {
namespace {

using testing::HasSubstr;

DigestId Filled(unsigned char byte, IdSource source = IdSource::kExplicit) {
  DigestId id;
  id.digest.fill(static_cast<std::byte>(byte));
  id.source = source;
  return id;
}

CacheOwnerId Owner() {
  return {.pool = {.indexer_domain = {.cache_semantics = Filled(1), .routing_scope = Filled(2)},
                   .dc = 3},
          .slot = Filled(4)};
}

const std::string kOnes(32, '1');
const std::string kDomainText = std::string(32, 'a') + ":" + std::string(32, 'b');

TEST(StableId, C21Vectors) {
  EXPECT_EQ(ExplicitSlot({{"slot", "worker-a-rank-0"}})->Text(),
            "31999d8b3c61d36a16286f6a32dd4095");
  EXPECT_EQ(ExplicitSemantics({{"mapping", "tp2"}, {"weights", "revision-a"}}, 512, 1)->Text(),
            "a02dfb3f65eca4e06e837a96902938fd");
  EXPECT_EQ(ExplicitSemantics({{"weights", "revision-a"}, {"mapping", "tp2"}}, 512, 1)->Text(),
            "a02dfb3f65eca4e06e837a96902938fd");
  const std::string_view scope[] = {"ab", "c"};
  EXPECT_EQ(DefaultScope(scope).Text(), "435836ea5ec1b6a34d8b455c43d84125");
  EXPECT_EQ(ToHex(ResidencyOwnerKey(Rank{WorkerId{7}, 3})), "4ae1ec9c698ebf7ed31c19b61b22d1df");
  EXPECT_EQ(ToHex(ResidencyOwnerKey(Owner())), "94b32739a8859bab011e1efea911c9f9");
  EXPECT_EQ(AttachmentRecordId(41, 1), 6630049642736882u);
  EXPECT_EQ(AttachmentRecordId(41, 2), 4743735865508233u);
  EXPECT_EQ(HostDiscoveryId(17), 7176000479352457u);
}

TEST(StableId, WhatIsMixedInCounts) {
  const std::string_view ab_c[] = {"ab", "c"};
  const std::string_view a_bc[] = {"a", "bc"};
  EXPECT_NE(DefaultScope(ab_c), DefaultScope(a_bc));
  EXPECT_EQ(DefaultScope(ab_c).source, IdSource::kDefaultDerived);
  EXPECT_EQ(DefaultSemantics(ab_c, 16, 1), DefaultSemantics(ab_c, 16, 1));
  EXPECT_NE(DefaultSemantics(ab_c, 16, 1), DefaultSemantics(ab_c, 32, 1));
  EXPECT_NE(DefaultSemantics(ab_c, 16, 1), DefaultSemantics(ab_c, 16, 2));
  EXPECT_NE(DefaultSemantics(ab_c, 16, 1).digest, DefaultScope(ab_c).digest);
  EXPECT_NE(ExplicitScope({{"a", "b"}})->digest, ExplicitSlot({{"a", "b"}})->digest);
  EXPECT_EQ(ExplicitScope({{"a", "b"}})->source, IdSource::kExplicit);
  CacheOwnerId owner = Owner();
  owner.slot.source = IdSource::kDefaultDerived;
  EXPECT_NE(ResidencyOwnerKey(owner), ResidencyOwnerKey(Owner()));
}

TEST(StableId, ExplicitLimits) {
  ExplicitEntries full;
  for (int i = 0; i < 32; ++i)
    full.emplace_back("k" + std::to_string(i), "v");
  EXPECT_TRUE(ExplicitSlot(full));
  EXPECT_TRUE(ExplicitSlot({{std::string(128, 'k'), std::string(1024, 'v')}}));
  auto over = full;
  over.emplace_back("one more", "v");
  struct Row {
    ExplicitEntries entries;
    std::string says;
  };
  for (const Row& row : {
           Row{{}, "1 to 32 entries, got 0"},
           Row{over, "1 to 32 entries, got 33"},
           Row{{{"", "v"}}, "1 to 128 bytes, got 0"},
           Row{{{std::string(129, 'k'), "v"}}, "1 to 128 bytes, got 129"},
           Row{{{"k", ""}}, "value of `k` in an explicit identity has 1 to 1024 bytes, got 0"},
           Row{{{"k", std::string(1025, 'v')}}, "1 to 1024 bytes, got 1025"},
           Row{{{"k", "a"}, {"j", "b"}, {"k", "c"}}, "key `k` stands twice"},
       }) {
    for (const auto& result : {ExplicitSlot(row.entries), ExplicitScope(row.entries),
                               ExplicitSemantics(row.entries, 1, 1)}) {
      ASSERT_FALSE(result) << row.says;
      EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(result.error().message, HasSubstr(row.says));
    }
  }
}

TEST(StableId, TextRoundTrips) {
  const std::string text = kDomainText + "/00000000000000ff/" + kOnes;
  const auto owner = CacheOwnerId::Parse(text);
  ASSERT_TRUE(owner) << owner.error().message;
  EXPECT_EQ(owner->Text(), text);
  EXPECT_EQ(owner->pool.dc, 255u);
  EXPECT_EQ(owner->slot, Filled(0x11));
  EXPECT_EQ(owner->pool.indexer_domain.cache_semantics, Filled(0xaa));
  EXPECT_EQ(owner->pool.Text(), kDomainText + "/00000000000000ff");
  EXPECT_EQ(PoolId::Parse(kDomainText + "/ffffffffffffffff")->dc, ~std::uint64_t{0});
  EXPECT_EQ(IndexerDomainId::Parse(kDomainText)->Text(), kDomainText);
  // Text drops the source; what is read back counts as explicit.
  EXPECT_EQ(DigestId::Parse(Filled(7, IdSource::kDefaultDerived).Text())->source,
            IdSource::kExplicit);
}

TEST(StableId, BadTextIsRefused) {
  for (const std::string& text : {std::string(), std::string(31, '1'), std::string(33, '1'),
                                  std::string(32, 'A'), std::string(32, 'g')}) {
    const auto id = DigestId::Parse(text);
    ASSERT_FALSE(id) << text;
    EXPECT_THAT(id.error().message, HasSubstr("InvalidHex")) << text;
    EXPECT_FALSE(CacheOwnerId::Parse(kDomainText + "/00000000000000ff/" + text)) << text;
  }
  for (const std::string& text :
       {kOnes, kOnes + ":" + kOnes + ":" + kOnes, kOnes + ":", ":" + kOnes}) {
    EXPECT_FALSE(IndexerDomainId::Parse(text)) << text;
  }
  for (const std::string& text :
       {kDomainText, kDomainText + "/ff", kDomainText + "/00000000000000FF",
        kOnes + "/00000000000000ff", kDomainText + "/x/00000000000000ff"}) {
    EXPECT_FALSE(PoolId::Parse(text)) << text;
  }
  EXPECT_FALSE(CacheOwnerId::Parse(kOnes));
}

TEST(StableId, JsonIsStructural) {
  std::string out;
  JsonWriter json(out);
  CacheOwnerId owner = Owner();
  owner.pool.indexer_domain.routing_scope.source = IdSource::kDefaultDerived;
  owner.WriteJson(json);
  const auto digest = [](int n) {
    std::string list;
    for (int i = 0; i < 16; ++i)
      list += (i == 0 ? "" : ",") + std::to_string(n);
    return "{\"digest\":[" + list + "],\"source\":";
  };
  EXPECT_EQ(out, "{\"pool\":{\"indexer_domain\":{\"cache_semantics\":" + digest(1) +
                     "\"explicit\"},\"routing_scope\":" + digest(2) +
                     "\"default_derived\"}},\"dc_id\":3},\"slot\":" + digest(4) + "\"explicit\"}}");
}

}  // namespace
}  // namespace kvr::hashing
