#include "wire/trtllm_json.h"

#include <string>

#include <gtest/gtest.h>

#include "wire/stream.h"

namespace kvr::test {
namespace {

std::string Feed(Stream& stream, std::string_view text) {
  return stream.FeedBytes(std::as_bytes(std::span(text)));
}

std::string Event(std::string_view data, int window = 4096) {
  return R"({"event_id":1,"data":)" + std::string(data) + R"(,"window_size":)" +
         std::to_string(window) + "}";
}

std::string Block(int hash, std::initializer_list<int> tokens, std::string_view more = "") {
  std::string text = R"({"block_hash":)" + std::to_string(hash) + R"(,"tokens":[)";
  for (const int token : tokens)
    text += R"({"token_id":)" + std::to_string(token) + "},";
  if (tokens.size() > 0) text.pop_back();
  return text + "]" + std::string(more) + "}";
}

std::string Stored(std::string_view parent, std::string_view blocks, std::string_view more = "") {
  return R"({"type":"stored","parent_hash":)" + std::string(parent) + R"(,"blocks":[)" +
         std::string(blocks) + "]" + std::string(more) + "}";
}

TEST(TrtllmJson, ListsAndSingleEvents) {
  Stream stream;
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4})))), "stored device 11=A");
  EXPECT_EQ(Feed(stream, "[" + Event(Stored("11", Block(12, {5, 6, 7, 8}))) + "," +
                             Event(R"({"type":"removed","block_hashes":[12]})") + "]"),
            "stored device <11 12=B; removed device 12");
  EXPECT_EQ(Feed(stream, "[]"), "");
  EXPECT_EQ(Feed(stream, Event(Stored("0", Block(11, {1, 2, 3, 4})))), "stored device 11=A");
}

TEST(TrtllmJson, PartialBlocksAreLeftOut) {
  Stream stream;
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5})))),
            "stored device 11=A");
  EXPECT_EQ(Feed(stream, Event(Stored("11", Block(12, {5})))), "drop 0 tokens_too_short");
  EXPECT_EQ(Feed(stream, Event(Stored("11", Block(12, {5, 6, 7, 8, 9})))), "drop 0 decode_error");
  EXPECT_EQ(Feed(stream, Event(Stored("11", ""))), "drop 0 empty_store");
}

TEST(TrtllmJson, IdentityAndTiers) {
  Stream stream;
  const std::string digest = "0123456789abcdef" + std::string(48, '0');
  EXPECT_EQ(Feed(stream, Event(Stored(
                             "null",
                             Block(11, {1, 2, 3, 4},
                                   R"(,"cache_salt":"a","mm_keys":[{"hash":")" + digest + R"("}])"),
                             R"(,"lora_name":"x")"))),
            "stored device 11=" + Local('A', "x", "a", {0x0123456789abcdef}) + " !eligible");
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(21, {1, 2, 3, 4}) + "," +
                                                  Block(22, {5, 6, 7, 8}, R"(,"cache_level":1)")))),
            "stored device 21=A; stored host_pinned <21 22=B");
  // Levels below the first are in use now, and removals name none.
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[22]})")),
            "removed device 22; removed host_pinned 22; removed disk 22");
}

TEST(TrtllmJson, UpdatesMoveBlocksBetweenTiers) {
  Stream stream;
  EXPECT_EQ(Feed(stream, Event(R"({"type":"updated","block_hash":7,)"
                               R"("cache_level":{"new_value":0,"old_value":1},"priority":null})")),
            "named device 7; removed host_pinned 7");
  EXPECT_EQ(Feed(stream, Event(R"({"type":"updated","block_hash":7,"cache_level":null})")),
            "drop 0 ignored_event");
  EXPECT_EQ(Feed(stream, Event(R"({"type":"updated","block_hash":7,)"
                               R"("cache_level":{"new_value":9,"old_value":1}})")),
            "drop 0 decode_error");
}

TEST(TrtllmJson, OnlyTheLargestWindowCounts) {
  Stream stream;
  const std::string created = R"({"type":"created","num_blocks_per_cache_level":[8,0]})";
  EXPECT_EQ(Feed(stream, "[" + Event(created, 512) + "," + Event(created, 4096) + "]"),
            "drop 0 ignored_event; drop 1 ignored_event");
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}));
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Feed(stream, Event(store, 4096)), "stored device 11=A");
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[11]})", 512)),
            "drop 0 non_main_group");
}

// A stream that starts over is mostly the same engine's, whose windows are what they were.
TEST(TrtllmJson, TheMainWindowOutlivesAReset) {
  const std::string created = R"({"type":"created","num_blocks_per_cache_level":[8,0]})";
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}));
  const std::string removal = R"({"type":"removed","block_hashes":[77]})";
  Stream stream;
  Feed(stream, "[" + Event(created, 512) + "," + Event(created, 4096) + "]");
  stream.translator().Reset();
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Feed(stream, Event(store, 4096)), "stored device 11=A");
  // Another engine announces its own windows, smaller ones too.
  stream.translator().Reset();
  Feed(stream, "[" + Event(created, 512) + "," + Event(created, 1024) + "]");
  EXPECT_EQ(Feed(stream, Event(store, 1024)), "stored device 11=A");
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  // One whose announcement was missed is believed when it goes on speaking of smaller ones only.
  stream.translator().Reset();
  for (int i = 0; i < 255; ++i)
    EXPECT_EQ(Feed(stream, Event(removal, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Feed(stream, Event(store, 512)), "stored device 11=A");
}

TEST(TrtllmJson, WindowsAreLearnedFromEventsToo) {
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}));
  Stream stream;
  EXPECT_EQ(Feed(stream, Event(store, 4096)), "stored device 11=A");
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Feed(stream, R"({"event_id":1,"data":)" + store + "}"), "stored device 11=A");
}

TEST(TrtllmJson, RemovalsOfPartialBlocksAreLeftOut) {
  Stream stream;
  Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5}))));
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[12,11]})")),
            "removed device 11");
  Feed(stream, Event(Stored("null", Block(13, {5}))));
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[13]})")),
            "drop 0 ignored_event");
  // Once only: the engine may fill the block and announce it whole.
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[13]})")), "removed device 13");
}

TEST(TrtllmJson, BadItemsCostThemselves) {
  Stream stream;
  const std::string good = Event(Stored("null", Block(11, {1, 2, 3, 4})));
  for (const std::string& bad :
       {std::string("7"), std::string("{}"), Event("{}"), Event(R"({"type":"stored"})"),
        Event(R"({"type":"removed","block_hashes":["11"]})"),
        Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":-1}]})")),
        Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":4294967296}]})")),
        Event(Stored("true", Block(11, {1, 2, 3, 4}))),
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"cache_level":3)")))}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(Feed(stream, "[" + bad + "," + good + "]"),
              "stored device 11=A; drop 0 decode_error");
  }
  EXPECT_EQ(Feed(stream, Event(R"({"type":"moved"})")), "drop 0 unknown_event");
  EXPECT_EQ(Feed(stream, "{\"data\":"), "error bad_json");
  EXPECT_EQ(Feed(stream, std::string(100'000, '[')), "error bad_json");
}

TEST(TrtllmJson, BadItemsLeaveTheLimitsToTheirSiblings) {
  auto options = StreamOptions();
  options.limits.tokens_max = 6;
  options.limits.blocks_max = 1;
  options.limits.extra_keys_max = 1;
  Stream stream(options);
  const std::string digest(64, 'a');
  const std::string keyed = R"(,"mm_keys":[{"hash":")" + digest + R"("}])";
  const std::string good = Event(Stored("null", Block(11, {1, 2, 3, 4}, keyed)));
  const std::string bad = Event(Stored("null", Block(21, {5, 6, 7, 8}, keyed) + ",7"));
  const std::string alone = Feed(stream, good);
  EXPECT_EQ(Feed(stream, "[" + bad + "," + good + "]"), alone + "; drop 0 decode_error");
}

TEST(TrtllmJson, LooksLikeJson) {
  const auto looks = [](std::string_view text) {
    return wire::LooksLikeJson(std::as_bytes(std::span(text)));
  };
  EXPECT_TRUE(looks("{}"));
  EXPECT_TRUE(looks(" \r\n\t["));
  EXPECT_FALSE(looks(""));
  EXPECT_FALSE(looks("  "));
  EXPECT_FALSE(looks("\x93\xcb"));
  EXPECT_FALSE(looks("\x83"));
}

}  // namespace
}  // namespace kvr::test
