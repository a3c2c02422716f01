#include "wire/trtllm_json.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "placement/drop_text.h"
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

std::string Removed(std::string_view hashes, int window = 4096) {
  return Event(R"({"type":"removed","block_hashes":[)" + std::string(hashes) + "]}", window);
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
  EXPECT_EQ(Feed(stream, Event(Stored("11", ""))), "drop 0 empty_store");
}

// What a list tells of the engine's block size when another one is registered: 4 here.
TEST(TrtllmJson, ABlockSizeMismatchIsSeenAsInMessagePack) {
  const std::string mismatch = "drop 0 block_size_mismatch";
  struct Step {
    std::string event;
    std::string expected;
    std::uint32_t wrong_block_size = 0;
  };
  const struct {
    std::string_view id;
    std::vector<Step> steps;
  } rows[] = {
      {"smaller: a block that another follows is full",
       {{Stored("null", Block(11, {1, 2}) + "," + Block(12, {3, 4})), mismatch, 2}}},
      {"... a partial one, too",
       {{Stored("null", Block(11, {1, 2}) + "," + Block(12, {3})), mismatch, 2}}},
      {"smaller: so is a parent",
       {{Stored("null", Block(11, {1, 2})), "drop 0 tokens_too_short"},
        {Stored("11", Block(12, {3, 4})), mismatch, 2},
        {Stored("12", Block(13, {5})), mismatch, 2}}},
      {"larger", {{Stored("null", Block(11, {1, 2, 3, 4, 5, 6, 7, 8})), mismatch, 8}}},
      {"larger, and no multiple",
       {{Stored("null", Block(11, {1, 2, 3, 4, 5, 6}) + "," + Block(12, {7})), mismatch, 6}}},
      {"larger, in host memory, where one name may stand for a chunk elsewhere",
       {{Stored("null", Block(11, {1, 2, 3, 4, 5, 6, 7, 8}, R"(,"cache_level":1)")), mismatch}}},
      {"until blocks of the registered size come",
       {{Stored("null", Block(11, {1, 2}) + "," + Block(12, {3, 4})), mismatch, 2},
        {Stored("null", Block(21, {1, 2, 3, 4})), "stored device 21=A", 0}}},
      {"also when the size was right before",
       {{Stored("null", Block(21, {1, 2, 3, 4})), "stored device 21=A", 0},
        {Stored("null", Block(11, {1, 2}) + "," + Block(12, {3})), mismatch, 2}}},
      {"a partial block that was filled under its name is no sign",
       {{Stored("null", Block(11, {1, 2})), "drop 0 tokens_too_short"},
        {Stored("null", Block(11, {1, 2, 3, 4})), "stored device 11=A"},
        {Stored("11", Block(12, {5, 6})), "drop 0 tokens_too_short"}}},
      {"no tokens at all say nothing",
       {{Stored("null", Block(11, {}) + "," + Block(12, {})), "named device 11"}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    for (const Step& step : row.steps) {
      SCOPED_TRACE(step.event);
      EXPECT_EQ(Feed(stream, Event(step.event)), step.expected);
      EXPECT_EQ(stream.batch().wrong_block_size, step.wrong_block_size);
    }
  }
}

// An engine of which nothing but blocks shorter than registered was ever stored has another size,
// as large as the largest of them at least.
TEST(TrtllmJson, ABlockSizeMismatchIsSuspectedAfterManyShortStores) {
  Stream stream;
  for (int i = 1; i < 64; ++i) {
    Feed(stream, Event(Stored("null", i % 2 == 0 ? Block(i, {i, 7}) : Block(i, {i}))));
    EXPECT_EQ(stream.batch().wrong_block_size, 0u);
  }
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(64, {9})))), "drop 0 block_size_mismatch");
  EXPECT_EQ(stream.batch().wrong_block_size, 2u);
  EXPECT_EQ(Feed(stream, Removed("1,64")), "drop 0 partial_block");
  // One full block clears it of suspicion.
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(65, {1, 2, 3, 4})))), "stored device 65=A");
  for (int i = 100; i < 200; ++i)
    EXPECT_EQ(Feed(stream, Event(Stored("65", Block(i, {i})))), "drop 0 tokens_too_short");
  EXPECT_EQ(stream.batch().wrong_block_size, 0u);
  // ... until it starts over.
  stream.translator().Reset();
  for (int i = 1; i < 64; ++i)
    EXPECT_EQ(Feed(stream, Event(Stored("null", Block(i, {i})))), "drop 0 tokens_too_short");
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(64, {9})))), "drop 0 block_size_mismatch");
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
}

// A removal names no level: it is from wherever the block is.
TEST(TrtllmJson, RemovalsAreFromWhereABlockIs) {
  Stream stream;
  const auto& stats = stream.translator().stats();
  const std::string down = Block(22, {5, 6, 7, 8}, R"(,"cache_level":1)");
  Feed(stream, Event(Stored("null", Block(21, {1, 2, 3, 4}) + "," + down)));
  EXPECT_EQ(Feed(stream, Removed("22")), "removed host_pinned 22");
  Feed(stream, Event(Stored("21", down)));
  EXPECT_EQ(Feed(stream, Removed("22,21")), "removed device 21; removed host_pinned 22");
  Feed(stream, Event(Stored("null", Block(21, {1, 2, 3, 4}))));
  Feed(stream, Event(R"({"type":"updated","block_hash":21,)"
                     R"("cache_level":{"new_value":2,"old_value":0},"priority":null})"));
  EXPECT_EQ(Feed(stream, Removed("21")), "removed disk 21");
  EXPECT_EQ(stats.unmatched_removals, 0u);
  EXPECT_EQ(stats.removed_blocks, 5u);

  // One that nobody held is looked for wherever anything was, and counts once.
  EXPECT_EQ(Feed(stream, Removed("77")),
            "removed device 77; removed host_pinned 77; removed disk 77");
  EXPECT_EQ(stats.unmatched_removals, 1u);

  // So is every one when events were lost: a copy may be where no store is known of.
  Feed(stream, Event(Stored("null", Block(21, {1, 2, 3, 4}))));
  stream.translator().ForgetCounts();
  Feed(stream, Event(Stored("null", down)));
  EXPECT_EQ(Feed(stream, Removed("22")),
            "removed device 22; removed host_pinned 22; removed disk 22");
  EXPECT_EQ(stats.unmatched_removals, 1u);
  EXPECT_EQ(Feed(stream, Removed("21")),
            "removed device 21; removed host_pinned 21; removed disk 21");
  EXPECT_EQ(stats.unmatched_removals, 2u);
}

// Some blocks go without a word. An engine has one of a name at most, so what is stored again is no
// second copy, and goes with one removal.
TEST(TrtllmJson, ABlockStoredTwiceIsOneBlock) {
  Stream stream;
  const std::string store = Event(Stored("null", Block(11, {1, 2, 3, 4})));
  const std::string down = Event(R"({"type":"updated","block_hash":11,)"
                                 R"("cache_level":{"new_value":1,"old_value":0},"priority":null})");
  Feed(stream, store);
  Feed(stream, store);
  EXPECT_EQ(Feed(stream, Removed("11")), "removed device 11");
  Feed(stream, store);
  Feed(stream, down);
  Feed(stream, store);
  Feed(stream, down);
  EXPECT_EQ(Feed(stream, Removed("11")), "removed host_pinned 11");
  EXPECT_EQ(stream.translator().stats().unmatched_removals, 0u);
}

TEST(TrtllmJson, RemovalsOfBlocksThatAreNotCountedAreLookedForEverywhere) {
  auto options = StreamOptions();
  options.memory.counted_blocks_max = 1;
  Stream stream(options);
  Feed(stream, Event(Stored("null", Block(21, {1, 2, 3, 4}) + "," +
                                        Block(22, {5, 6, 7, 8}, R"(,"cache_level":1)"))));
  EXPECT_EQ(Feed(stream, Removed("21")), "removed device 21; removed host_pinned 21");
  EXPECT_EQ(stream.translator().stats().unmatched_removals, 0u);
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

// What the side events of the last batch say: "+512 device 11", "-512 host_pinned 11 left 0".
std::string Sides(const Stream& stream) {
  std::string text;
  for (const placement::SideEvent& side : stream.batch().side) {
    text += text.empty() ? "" : "; ";
    text += (side.removed ? "-" : "+") + std::to_string(side.group.group) + " " +
            std::string(TierName(side.tier));
    for (const SideCopy& copy : side.copies) {
      text += " " + std::to_string(Raw(copy.name));
      if (copy.left) text += " left " + std::to_string(*copy.left);
    }
  }
  return text;
}

// The other windows are side groups by the number of their window: a prefix can be reused as far as
// they have what it needs, too.
TEST(TrtllmJson, OtherWindowsAreSideGroups) {
  Stream stream;
  const std::string created = R"({"type":"created","num_blocks_per_cache_level":[8,0]})";
  Feed(stream, "[" + Event(created, 8) + "," + Event(created, 4096) + "]");
  const std::string blocks = Block(11, {1, 2, 3, 4}) + "," + Block(12, {5, 6, 7, 8});
  EXPECT_EQ(Feed(stream, Event(Stored("null", blocks + "," + Block(13, {9})), 8)),
            "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "+8 device 11 12");
  const SideGroup about = stream.batch().side.front().group;
  EXPECT_EQ(about,
            (SideGroup{.group = 8, .rule = SideRule::kWindow, .block_size = 4, .window = 8}));
  Feed(stream, Event(Stored("null", blocks), 4096));
  EXPECT_EQ(Sides(stream), "") << "the main window is the index's";

  const auto move = [](int hash, int to, int from) {
    return Event(R"({"type":"updated","block_hash":)" + std::to_string(hash) +
                     R"(,"cache_level":{"new_value":)" + std::to_string(to) + R"(,"old_value":)" +
                     std::to_string(from) + "}}",
                 8);
  };
  Feed(stream, move(12, 1, 0));
  EXPECT_EQ(Sides(stream), "+8 host_pinned 12; -8 device 12 left 0");
  // Deeper tiers are of no window: what lies there does not count for this one, nor for the main.
  EXPECT_EQ(Feed(stream, move(12, 2, 1)), "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "-8 host_pinned 12 left 0");
  EXPECT_EQ(Feed(stream, move(12, 1, 2)), "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "+8 host_pinned 12");
  EXPECT_EQ(Feed(stream, Event(Stored("12", Block(14, {1, 2, 3, 4}, R"(,"cache_level":2)")), 8)),
            "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "+8 device");
  // A removal is from wherever the block is, and the engine has one of it.
  EXPECT_EQ(Feed(stream, Removed("11,12", 8)), "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "-8 device 11 left 0 12 left 0; -8 host_pinned 11 left 0 12 left 0");
}

// As long as it is not sure which window is the main one, none is a side group: it would stay one.
TEST(TrtllmJson, WindowsAreNoSideGroupsBeforeTheMainOneIsSeen) {
  Stream stream;
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}));
  Feed(stream, Event(store, 4096));
  stream.translator().Reset();
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "");
  Feed(stream, Event(store, 4096));
  EXPECT_EQ(Feed(stream, Event(store, 512)), "drop 0 non_main_group");
  EXPECT_EQ(Sides(stream), "+512 device 11");
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

// Lists of one stream, which change what its main window is.
struct WindowRow {
  std::string_view id;
  std::vector<std::string> lists;
  std::string last;  // what the last list does
  bool lost = true;
};

void Check(const WindowRow& row) {
  SCOPED_TRACE(row.id);
  Stream stream;
  std::string last;
  for (const std::string& list : row.lists)
    last = Feed(stream, list);
  EXPECT_EQ(last, row.last);
  EXPECT_EQ(stream.batch().lost_copies, row.lost);
}

// Who comes late may hear of a small window first. What was stored as the main one's is cleared
// when a larger window is heard of: the small one's removals would not take it away.
TEST(TrtllmJson, ALargerWindowHeardOfLaterTakesTheIndexOver) {
  const std::string small = Event(Stored("null", Block(11, {1, 2, 3, 4})), 512);
  const std::string large = Event(Stored("null", Block(12, {5, 6, 7, 8})), 4096);
  const std::string moved = Event(
      R"({"type":"updated","block_hash":11,"cache_level":{"new_value":2,"old_value":0}})", 512);
  const std::string no_hash = Event(Stored("null", R"({"tokens":[]})"), 4096);
  const std::string created =
      Event(R"({"type":"created","num_blocks_per_cache_level":[8,0]})", 4096);
  const WindowRow rows[] = {
      {"in a later list", {small, large}, "cleared; stored device 12=B"},
      {"in the same list",
       {"[" + small + "," + large + "]"},
       "stored device 11=A; cleared; stored device 12=B"},
      {"from the engine itself", {small, created}, "cleared; drop 0 ignored_event"},
      {"from an event that cannot be decoded", {small, no_hash}, "cleared; drop 0 decode_error"},
      {"after all of it went to the disk", {small, moved, large}, "cleared; stored device 12=B"},
      {"nothing is there any more",
       {small, Removed("11", 512), large},
       "stored device 12=B",
       false},
      {"heard of before", {large, small, large}, "stored device 12=B", false},
  };
  for (const WindowRow& row : rows)
    Check(row);
}

// The windows are the stream's, whichever of its ranks speaks of them: another rank follows before
// its own next event is placed, for that may be the removal.
TEST(TrtllmJson, ALargerWindowIsEveryRanks) {
  const auto of = [](int rank, std::string event) {
    event.pop_back();
    return event + R"(,"attention_dp_rank":)" + std::to_string(rank) + "}";
  };
  const std::string small = Event(Stored("null", Block(11, {1, 2, 3, 4})), 8);
  const std::string large = Event(Stored("null", Block(12, {5, 6, 7, 8})), 4096);
  const std::string larger = Event(Stored("null", Block(13, {1, 2, 3, 4})), 8192);
  const WindowRow rows[] = {
      {"a removal",
       {of(0, small), of(1, small), of(0, large), of(1, Removed("11", 8))},
       "cleared @1; drop 0 non_main_group"},
      {"a store",
       {of(0, small), of(1, small), of(0, large), of(1, large)},
       "cleared @1; stored @1 device 12=B"},
      {"a list that cannot be decoded",
       {of(0, small), of(1, small), of(0, large), "[" + of(1, Event("{}")) + "," + "7]"},
       "drop 0 decode_error; drop 1 decode_error",
       false},  // of no rank that can be read
      {"once only",
       {of(0, small), of(1, small), of(0, large), of(1, large), of(1, Removed("12"))},
       "removed @1 device 12",
       false},
      {"twice in a row",
       {of(1, small), of(0, large), of(0, larger), of(1, Removed("11", 8))},
       "cleared @1; drop 0 non_main_group"},
      {"once more by itself",
       {of(1, small), of(0, large), of(1, larger)},
       "cleared @1; stored @1 device 13=A"},
      {"a rank that had nothing",
       {of(0, small), of(0, large), of(1, large)},
       "stored @1 device 12=B",
       false},
      {"a rank that comes after the change",
       {of(0, small), of(0, large), of(1, large), of(1, large)},
       "stored @1 device 12=B",
       false},
  };
  for (const WindowRow& row : rows)
    Check(row);
}

TEST(TrtllmJson, RemovalsOfPartialBlocksAreLeftOut) {
  Stream stream;
  Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5}))));
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[12,11]})")),
            "removed device 11");
  Feed(stream, Event(Stored("null", Block(13, {5}))));
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[13]})")),
            "drop 0 partial_block");
  // Once only: the engine may fill the block and announce it whole.
  EXPECT_EQ(Feed(stream, Event(R"({"type":"removed","block_hashes":[13]})")), "removed device 13");
  // ... also under the same name, before it removes the partial one.
  Feed(stream, Event(Stored("null", Block(14, {1}))));
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(14, {1, 2, 3, 4})))), "stored device 14=A");
  EXPECT_EQ(Feed(stream, Removed("14")), "removed device 14");
}

// What was left out is so when it moves, too.
// What follows a partial block has no place, full or not, so that its removal is left out as well.
TEST(TrtllmJson, BlocksBehindAPartialOneAreLeftOutAndCounted) {
  Stream stream;
  const auto& stats = stream.translator().stats();
  EXPECT_EQ(Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5}) + "," +
                                                  Block(13, {5, 6, 7, 8})))),
            "stored device 11=A");
  EXPECT_EQ(stats.cut_blocks, 2u);
  EXPECT_EQ(Feed(stream, Removed("13")), "drop 0 partial_block");
  EXPECT_EQ(Feed(stream, Removed("12,11")), "removed device 11");
  EXPECT_EQ(stats.unmatched_removals, 0u);
  // Stored behind a full one it has its place.
  Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(13, {5, 6, 7, 8}))));
  EXPECT_EQ(Feed(stream, Removed("13")), "removed device 13");
  EXPECT_EQ(stats.cut_blocks, 2u);
}

TEST(TrtllmJson, MovesOfPartialBlocksAreLeftOut) {
  Stream stream;
  Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5}))));
  EXPECT_EQ(Feed(stream, Event(R"({"type":"updated","block_hash":12,)"
                               R"("cache_level":{"new_value":1,"old_value":0}})")),
            "drop 0 partial_block");
  EXPECT_EQ(Feed(stream, Removed("12")), "drop 0 partial_block");
}

// All windows have the same names for the same tokens, so each window's events are its own.
TEST(TrtllmJson, PartialBlocksAreTheMainWindows) {
  Stream stream;
  const std::string created = R"({"type":"created","num_blocks_per_cache_level":[8,0]})";
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}) + "," + Block(12, {5}));
  Feed(stream, "[" + Event(created, 512) + "," + Event(created, 4096) + "]");
  Feed(stream, "[" + Event(store, 4096) + "," + Event(store, 512) + "]");
  EXPECT_EQ(Feed(stream, Removed("12", 512)), "drop 0 non_main_group");
  EXPECT_EQ(Feed(stream, Removed("12")), "drop 0 partial_block");
  // A full block of a small window does not make the main one's partial block full.
  Feed(stream, Event(Stored("null", Block(13, {1}))));
  Feed(stream, Event(Stored("null", Block(13, {1, 2, 3, 4})), 512));
  EXPECT_EQ(Feed(stream, Removed("13")), "drop 0 partial_block");
}

// Beyond the limit the older half is forgotten, and counted.
TEST(TrtllmJson, PartialBlocksAreRememberedUpToALimit) {
  auto options = StreamOptions();
  options.memory.partial_blocks_max = 4;
  Stream stream(options);
  const auto& stats = stream.translator().stats();
  for (int hash = 1; hash <= 4; ++hash)
    Feed(stream, Event(Stored("null", Block(hash, {9}))));
  EXPECT_EQ(stats.forgotten_partials, 0u);
  Feed(stream, Event(Stored("null", Block(5, {9}))));
  EXPECT_EQ(stats.forgotten_partials, 2u);
  EXPECT_EQ(Feed(stream, Removed("1,2,3,4,5")), "removed device 1 2");
  EXPECT_EQ(stats.unmatched_removals, 2u);
  // Many are found, and one that is noted again is young again.
  for (int hash = 1; hash <= 3; ++hash)
    Feed(stream, Event(Stored("null", Block(hash == 3 ? 1 : hash, {9}))));
  Feed(stream, Event(Stored("null", Block(8, {9}))));
  Feed(stream, Event(Stored("null", Block(9, {9}))));
  EXPECT_EQ(Feed(stream, Removed("1,8,9")), "drop 0 partial_block");
}

TEST(TrtllmJson, ManyPartialBlocks) {
  Stream stream;
  std::string removals;
  for (int hash = 1; hash <= 3'000; ++hash) {
    Feed(stream, Event(Stored("null", Block(hash * 7919, {9}))));
    removals += (hash == 1 ? "" : ",") + std::to_string(hash * 7919);
  }
  EXPECT_EQ(Feed(stream, Removed(removals)), "drop 0 partial_block");
  EXPECT_EQ(stream.translator().stats().forgotten_partials, 0u);
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
        // What tells blocks apart or says where they are is never guessed.
        Event(Stored("null", Block(11, {1, 2, 3, 4}), R"(,"lora_name":7)")),
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"cache_salt":7)"))),
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"cache_level":"1")"))),
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"mm_keys":7)"))),
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"mm_keys":[{"hash":7}])"))),
        Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":1,"token_extra_id":"x"}]})")),
        R"({"data":)" + Stored("null", Block(11, {1, 2, 3, 4})) + R"(,"window_size":"all"})",
        R"({"data":)" + Stored("null", Block(11, {1, 2, 3, 4})) + R"(,"attention_dp_rank":"0"})",
        Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"cache_level":3)")))}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(Feed(stream, "[" + bad + "," + good + "]"),
              "stored device 11=A; drop 0 decode_error");
  }
  EXPECT_EQ(Feed(stream, Event(R"({"type":"moved"})")), "drop 0 unknown_event");
  EXPECT_EQ(Feed(stream, "{\"data\":"), "error bad_json");
  EXPECT_EQ(Feed(stream, std::string(100'000, '[')), "error bad_json");
}

TEST(TrtllmJson, WhatCostAnEventIsNamed) {
  const auto block = [](std::string_view more) {
    return Event(Stored("null", Block(11, {1, 2, 3, 4}, more)));
  };
  const std::string store = Stored("null", Block(11, {1, 2, 3, 4}));
  const auto moved = [](std::string_view levels, std::string_view hash = R"("block_hash":1,)") {
    return Event(R"({"type":"updated",)" + std::string(hash) + R"("cache_level":{)" +
                 std::string(levels) + "}}");
  };
  const struct {
    std::string bad;
    std::string_view detail;
  } rows[] = {
      {"7", "missing_field, field `data`"},
      {Event("{}"), "missing_field, field `type`"},
      {Event(R"({"type":"moved"})"), "type `moved`"},
      {R"({"data":)" + store + R"(,"window_size":"all"})", "wrong_type, field `window_size`"},
      {R"({"data":)" + store + R"(,"attention_dp_rank":"0"})",
       "wrong_type, field `attention_dp_rank`"},
      {R"({"data":)" + store + R"(,"attention_dp_rank":4294967296})",
       "out_of_range, field `attention_dp_rank`"},
      {Event(R"({"type":"stored"})"), "missing_field, field `blocks`"},
      {Event(Stored("true", Block(11, {1, 2, 3, 4}))), "wrong_type, field `parent_hash`"},
      {Event(Stored("null", Block(11, {1}), R"(,"lora_name":7)")), "wrong_type, field `lora_name`"},
      {Event(Stored("null", R"({"block_hash":1})")), "missing_field, field `tokens`"},
      {Event(Stored("null", R"({"tokens":[]})")), "missing_field, field `block_hash`"},
      {Event(Stored("null", R"({"tokens":[],"block_hash":"x"})")),
       "wrong_type, field `block_hash`"},
      {Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":-1}]})")),
       "wrong_type, field `token_id`"},
      {Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":4294967296}]})")),
       "out_of_range, field `token_id`"},
      {Event(Stored("null", R"({"block_hash":1,"tokens":[{"token_id":1,"token_extra_id":"x"}]})")),
       "wrong_type, field `token_extra_id`"},
      {block(R"(,"cache_level":"1")"), "wrong_type, field `cache_level`"},
      {block(R"(,"cache_level":3)"), "out_of_range, field `cache_level`"},
      {block(R"(,"cache_salt":7)"), "wrong_type, field `cache_salt`"},
      {block(R"(,"mm_keys":7)"), "wrong_type, field `mm_keys`"},
      {block(R"(,"mm_keys":[{"hash":7}])"), "wrong_type, field `hash`"},
      {Event(R"({"type":"removed"})"), "missing_field, field `block_hashes`"},
      {Removed(R"(11,"zz")"), "wrong_type, field `block_hashes`"},
      {moved(R"("old_value":0)"), "missing_field, field `new_value`"},
      {moved(R"("new_value":0)"), "missing_field, field `old_value`"},
      {moved(R"("new_value":3,"old_value":0)"), "out_of_range, field `new_value`"},
      {moved(R"("new_value":0,"old_value":3)"), "out_of_range, field `old_value`"},
      {moved(R"("new_value":1,"old_value":0)", ""), "missing_field, field `block_hash`"},
      {moved(R"("new_value":1,"old_value":0)", R"("block_hash":true,)"),
       "wrong_type, field `block_hash`"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.bad);
    Stream stream;
    Feed(stream, "[" + row.bad + "]");
    ASSERT_EQ(stream.batch().dropped.size(), 1u);
    EXPECT_EQ(placement::DropDetail(stream.batch().dropped[0], stream.translator().decoded(), 4),
              row.detail);
  }
}

TEST(TrtllmJson, ErrorsSayWhereTheirEventBegins) {
  const std::string good =
      Event(Stored("null", Block(11, {1, 2, 3, 4}), R"(,"lora_name":"a,]\"[{")"));
  const std::string start = " [ " + good + ",\n ";
  const std::string two = start + R"({"data":7} , [[1,2],"x"],)" + good + R"(,{"event_id":1}])";
  const std::vector<std::size_t> expected = {start.size(), two.find("[[1"), two.rfind("{\"event")};
  Stream stream;
  Feed(stream, two);
  const auto& bad = stream.translator().decoded().bad;
  ASSERT_EQ(bad.size(), expected.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(bad[i].begin, expected[i]);
    EXPECT_EQ(bad[i].error.offset, expected[i]);
    EXPECT_EQ(stream.batch().dropped[i].error.offset, expected[i]);
  }
  Feed(stream, "\n {\"data\":7}");
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].begin, 2u) << "an event that is no list's";
}

// What JSON has no words for, or is none, costs the event it is in and not the list.
TEST(TrtllmJson, ItemsThatAreNoJsonCostThemselves) {
  const auto store = [](std::string_view hash, std::string_view token, std::string_view more = "") {
    return Event(Stored("null", R"({"block_hash":)" + std::string(hash) +
                                    R"(,"tokens":[{"token_id":1},{"token_id":)" +
                                    std::string(token) + R"(},{"token_id":3},{"token_id":4}])" +
                                    std::string(more) + "}"));
  };
  const std::string first = store("11", "2");
  const std::string last = store("13", "2");
  const struct {
    std::string_view id;
    std::string bad;
  } rows[] = {
      {"a hash of 2^64", store("18446744073709551616", "2")},
      {"a token of 2^65", store("12", "36893488147419103232")},
      {"NaN", store("12", "2", R"(,"priority":NaN)")},
      {"infinity", store("12", "2", R"(,"priority":-Infinity)")},
      {"a lone surrogate", store("12", "2", R"(,"cache_salt":"\ud800")")},
      {"no UTF-8", store("12", "2", ",\"cache_salt\":\"\xff\"")},
      {"a control character", store("12", "2", ",\"cache_salt\":\"\n\"")},
      {"a comma or bracket in a text", store("NaN", "2", R"(,"cache_salt":"a],\"[{")")},
      {"brackets that do not match", R"({"data":[1}])"},
      {"nothing", ""},
      {"no value", "event"},
      {"two values", "{} {}"},
      {"nested too deep", std::string(5'000, '[') + std::string(5'000, ']')},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    const std::string start = "[" + first + ", ";
    EXPECT_EQ(Feed(stream, start + row.bad + " ,7,\n" + last + "]\n"),
              "stored device 11=A; stored device 13=A; drop 1 decode_error; drop 2 decode_error");
    ASSERT_EQ(stream.batch().dropped.size(), 2u);
    const wire::DecodeError expected{
        wire::DecodeErrc::kBadJson,
        row.bad.empty() ? start.size() + 1 : start.size()};  // behind the space
    EXPECT_EQ(stream.batch().dropped[0].error, expected);
    EXPECT_EQ(stream.translator().decoded().bad[0].begin, expected.offset);
    EXPECT_EQ(stream.batch().dropped[1].error.code, wire::DecodeErrc::kMissingField);
    EXPECT_EQ(stream.batch().lost_removals, placement::Concerned::kEveryRank);
  }
}

// A block that stays on its level is still there.
TEST(TrtllmJson, AMoveToTheSameLevelChangesNothing) {
  Stream stream;
  Feed(stream, "[" + Event(Stored("null", Block(11, {1, 2, 3, 4}))) + "]");
  const std::string moved =
      R"({"type":"updated","block_hash":11,"cache_level":{"type":"event_diff",)"
      R"("new_value":0,"old_value":0},"priority":null})";
  EXPECT_EQ(Feed(stream, "[" + Event(moved) + "]"), "drop 0 ignored_event");
}

// Of a digest all digits are looked at, though the first 16 are the name.
TEST(TrtllmJson, ADigestIsHexadecimalToItsEnd) {
  Stream stream;
  const std::string removed =
      R"({"type":"removed","block_hashes":["0123456789abcdef)" + std::string(47, '0') + R"(z"]})";
  EXPECT_EQ(Feed(stream, "[" + Event(removed) + "]"), "drop 0 decode_error");
}

// A list is of one rank: whoever brings one of several hears why those of the others are dropped.
TEST(TrtllmJson, EventsOfASecondRankSaySo) {
  const auto of = [](std::string_view rank) {
    std::string event = Event(Stored("null", Block(11, {1, 2, 3, 4})));
    event.pop_back();
    return event + R"(,"attention_dp_rank":)" + std::string(rank) + "}";
  };
  Stream stream;
  EXPECT_EQ(
      Feed(stream, "[" + of("1") + "," + of("2") + "," + of("1") + "," + of("4294967296") + "]"),
      "stored @1 device 11=A; stored @1 device 11=A; drop 1 decode_error; drop 3 decode_error");
  const auto& dropped = stream.batch().dropped;
  EXPECT_EQ(dropped[0].error.code, wire::DecodeErrc::kSecondRank);
  EXPECT_EQ(dropped[1].error.code, wire::DecodeErrc::kOutOfRange) << "no number of a rank";
}

// Where the list is not sure to be whole, nothing of it counts.
TEST(TrtllmJson, AListThatDoesNotEndIsRefused) {
  const std::string good = Event(Stored("null", Block(11, {1, 2, 3, 4})));
  auto options = StreamOptions();
  options.limits.events_max = 8;
  const std::string rows[] = {
      "[" + good + ",NaN",
      "[" + good + ",NaN}",
      "[" + good + ",NaN] x",
      "[" + good + ",NaN],[]",
      "[" + good + R"(,{"a":"])",
      "[" + good + R"(,"\)",
      "[" + good + R"(,[{"a":1}])",
      std::string(100'000, '['),
      "[" + std::string(100'000, ',') + "]",
      "[" + std::string(8, ',') + "]",
      R"({"data":NaN})",
      "{\"data\":",
      "[",
  };
  for (const std::string& row : rows) {
    SCOPED_TRACE(row.substr(0, 200));
    Stream stream(options);
    EXPECT_EQ(Feed(stream, row), "error bad_json");
    EXPECT_EQ(Feed(stream, good), "stored device 11=A") << "nothing was learned";
  }
  Stream stream(options);
  EXPECT_EQ(Feed(stream, "[" + std::string(7, ',') + "]").substr(0, 19), "drop 0 decode_error");
  EXPECT_EQ(stream.batch().dropped.size(), 8u);
}

// A bad removal is one whatever is wrong with it; a bad store takes no copies.
TEST(TrtllmJson, OnlyALostRemovalMakesCountsDoubtful) {
  const struct {
    std::string data;
    placement::Concerned concerned;
  } rows[] = {
      {R"({"type":"stored"})", placement::Concerned::kNone},
      {R"({"type":"created"},"attention_dp_rank":"x")", placement::Concerned::kEveryRank},
      {R"({"type":"removed","block_hashes":["11"]})", placement::Concerned::kBatchsRank},
      {R"({"type":"updated","block_hash":1,"cache_level":{"new_value":9,"old_value":0}})",
       placement::Concerned::kBatchsRank},
      {R"({"type":"removed","block_hashes":[11]},"attention_dp_rank":-1)",
       placement::Concerned::kEveryRank},
      {R"({"type":"moved"})", placement::Concerned::kNone},
      {"7", placement::Concerned::kEveryRank},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.data);
    Stream stream;
    Feed(stream, "[" + Event(row.data) + "]");
    EXPECT_EQ(stream.batch().dropped.size(), 1u);
    EXPECT_EQ(stream.batch().lost_removals, row.concerned);
  }
}

TEST(TrtllmJson, NullsAreAbsent) {
  Stream stream;
  EXPECT_EQ(
      Feed(stream, R"({"data":)" +
                       Stored("null",
                              Block(11, {1, 2, 3, 4},
                                    R"(,"cache_salt":null,"cache_level":null,"mm_keys":null)"),
                              R"(,"lora_name":null)") +
                       R"(,"window_size":null,"attention_dp_rank":null})"),
      "stored device 11=A");
}

TEST(TrtllmJson, SaltsMayChangeWithinAnEvent) {
  Stream stream;
  EXPECT_EQ(
      Feed(stream, Event(Stored("null", Block(11, {1, 2, 3, 4}, R"(,"cache_salt":"a")") + "," +
                                            Block(12, {5, 6, 7, 8}) + "," +
                                            Block(13, {5, 6, 7, 8}, R"(,"cache_salt":"b")")))),
      "stored device 11=" + Local('A', "", "a") + " 12=" + Local('B', "", "a") +
          "; stored device <12 13=" + Local('B', "", "b"));
}

// The same tokens with numbers of their own are other blocks to the engine.
TEST(TrtllmJson, TokensWithExtraIdsAreNoText) {
  Stream stream;
  const auto stored = [&](int extra_id) {
    std::string tokens;
    for (int token = 1; token <= 4; ++token) {
      tokens += R"({"token_id":)" + std::to_string(token) + R"(,"token_extra_id":)" +
                std::to_string(extra_id) + (token < 4 ? "}," : "}");
    }
    return Feed(stream, Event(Stored("null", R"({"block_hash":11,"tokens":[)" + tokens + "]}")));
  };
  EXPECT_EQ(stored(0), "stored device 11=A");
  Feed(stream, Removed("11"));
  const std::string marked = stored(7);
  EXPECT_TRUE(marked.starts_with("stored device 11=")) << marked;
  EXPECT_TRUE(marked.ends_with(" !eligible")) << marked;
  EXPECT_NE(marked, "stored device 11=A !eligible");
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
