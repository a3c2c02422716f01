#include "placement/chunk_book.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::placement {
namespace {

MemoryLimits Limits() {
  MemoryLimits limits;
  limits.chunk_blocks_max = 64;
  limits.chunks_max = 8;
  return limits;
}

// A block of its own for each number.
std::vector<BlockHash> Blocks(std::uint64_t number) {
  return {BlockHash{number}};
}

std::size_t Learn(ChunkBook& book, std::uint64_t name, std::uint64_t block) {
  const std::vector<EngineHash> names = {EngineHash{name}};
  return book.Learn(std::nullopt, Blocks(block), names);
}

bool Knows(ChunkBook& book, std::uint64_t chunk, std::uint64_t block, double now) {
  bool repeated = false;
  return book.Store(EngineHash{chunk}, std::nullopt, Blocks(block), true, Tier::kHostPinned, now,
                    repeated) != nullptr;
}

TEST(ChunkBook, APlaceOfTwoNamesGoesWithTheLast) {
  ChunkBook book(Limits());
  Learn(book, 1, 77);
  Learn(book, 2, 77);
  book.Forget(EngineHash{1});
  EXPECT_FALSE(Knows(book, 100, 77, 0)) << "whose the chunk was nobody can tell";
  book.Forget(EngineHash{2});
  EXPECT_EQ(book.entries(), 0u);
  Learn(book, 3, 77);
  EXPECT_TRUE(Knows(book, 101, 77, 0));
}

TEST(ChunkBook, ANameThatMovesLeavesItsPlace) {
  ChunkBook book(Limits());
  Learn(book, 1, 77);
  Learn(book, 1, 78);
  EXPECT_EQ(book.entries(), 2u);
  EXPECT_FALSE(Knows(book, 100, 77, 0));
  EXPECT_TRUE(Knows(book, 101, 78, 0));
  book.Forget(EngineHash{1});
  EXPECT_FALSE(Knows(book, 102, 78, 0));
}

TEST(ChunkBook, AFullBookStillTakesNamesThatItKnows) {
  MemoryLimits limits = Limits();
  limits.chunk_blocks_max = 1;
  ChunkBook book(limits);
  EXPECT_EQ(Learn(book, 1, 77), 0u);
  EXPECT_EQ(Learn(book, 2, 78), 1u);
  EXPECT_EQ(Learn(book, 1, 79), 0u);
  EXPECT_TRUE(Knows(book, 100, 79, 0));
}

// The names of all chunks together are bounded, and not only the chunks.
TEST(ChunkBook, LongChunksGiveWay) {
  ChunkBook book(Limits());
  book.Begin();
  std::vector<BlockHash> blocks;
  std::vector<EngineHash> names;
  for (std::uint64_t i = 1; i <= 40; ++i) {
    blocks.push_back(BlockHash{i});
    names.push_back(EngineHash{100 + i});
  }
  book.Learn(std::nullopt, blocks, names);
  const std::size_t alone = book.bytes();
  bool repeated = false;
  for (std::uint64_t chunk = 1; chunk <= 2; ++chunk) {
    book.Store(EngineHash{chunk}, std::nullopt, blocks, true, Tier::kHostPinned, 0, repeated);
    EXPECT_EQ(book.chunk_names(), 40 * chunk);
  }
  EXPECT_GE(book.bytes(), alone + 80 * sizeof(EngineHash));
  const auto gone = book.Expire(0);
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->names, names);
  EXPECT_GT(gone->expires, 0);
  EXPECT_FALSE(book.Expire(0));
  EXPECT_EQ(book.chunk_names(), 40u);
  book.Clear();
  EXPECT_EQ(book.chunk_names(), 0u);
}

// Whatever is learned, moved, shared, forgotten and stored, at whatever time.
TEST(ChunkBook, IsBounded) {
  const MemoryLimits limits = Limits();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    ChunkBook book(limits);
    double now = 0;
    for (int step = 0; step < 5'000; ++step) {
      now += rng.Below(100) == 0 ? -1e300 : static_cast<double>(rng.Below(3));
      const std::uint64_t name = rng.Below(10'000);
      if (rng.Below(3) == 0) {
        book.Forget(EngineHash{name});
      } else if (rng.Below(2) == 0) {
        Learn(book, name, rng.Below(200));
      } else {
        Knows(book, rng.Below(200), rng.Below(200), now);
      }
      while (book.Expire(now)) {
      }
      ASSERT_LE(book.chunk_names(), limits.chunk_blocks_max);
      ASSERT_LE(book.entries(), 2 * limits.chunk_blocks_max + 3 * limits.chunks_max);
    }
  }
}

}  // namespace
}  // namespace kvr::placement
