// Rows T4..T31 of the active-sequence specification, as far as they are about one book.
#include "load/load_book.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::load {
namespace {

using std::chrono::seconds;

constexpr Rank kRank{WorkerId{1}, 0};
constexpr Rank kOther{WorkerId{2}, 0};

class LoadBookTest : public testing::Test {
 protected:
  LoadBookTest() {
    Add(kRank);
    Add(kOther);
  }

  void Add(Rank rank) {
    const Lock lock(book_.mutex);
    book_.AddRank(rank);
  }
  bool Remove(Rank rank) {
    const Lock lock(book_.mutex);
    return book_.RemoveRank(rank);
  }
  Result<Booking> TryReserve(BookingRequest request, const std::vector<std::uint64_t>& path,
                             Rank rank = kRank) {
    std::vector<SequenceHash> hashes;
    for (const std::uint64_t hash : path)
      hashes.push_back(SequenceHash{hash});
    request.path = hashes;
    if (request.block_size == 1) request.block_size = 4;
    if (request.isl_tokens == 0) request.isl_tokens = 4 * path.size();
    const Lock lock(book_.mutex);
    const auto slot = book_.Find(rank);
    return book_.Reserve(slot.value_or(LoadSlot{999}), request);
  }
  Booking Reserve(BookingRequest request, const std::vector<std::uint64_t>& path,
                  Rank rank = kRank) {
    auto booking = TryReserve(request, path, rank);
    EXPECT_TRUE(booking) << booking.error().message;
    return booking ? *std::move(booking) : Booking{};
  }
  RankLoad LoadOf(Rank rank) {
    for (const RankLoad& load : book_.Loads()) {
      if (load.rank == rank) return load;
    }
    ADD_FAILURE() << "no such rank";
    return {};
  }
  std::uint64_t Blocks(Rank rank = kRank) { return LoadOf(rank).active_blocks; }
  std::uint64_t Prefill(Rank rank = kRank) { return LoadOf(rank).active_prefill_tokens; }
  std::uint32_t Requests(Rank rank = kRank) { return LoadOf(rank).active_requests; }
  Projection Project(const std::vector<std::uint64_t>& path, Rank rank = kRank) {
    std::vector<SequenceHash> hashes;
    for (const std::uint64_t hash : path)
      hashes.push_back(SequenceHash{hash});
    std::vector<Projection> out;
    const Lock lock(book_.mutex);
    book_.Project(hashes, out);
    return out[Raw(*book_.Find(rank))];
  }

  ManualClock clock_;
  LoadBook book_{clock_, {}};
};

TEST_F(LoadBookTest, ProjectsAllRanksAtOnce) {
  const Booking a = Reserve({.prefill_tokens = 8}, {1, 2, 3});
  const Booking b = Reserve({.prefill_tokens = 3}, {1, 9}, kOther);
  const Projection here = Project({1, 2, 4});
  EXPECT_EQ(here.active_prefill_tokens, 8u);
  EXPECT_EQ(here.active_blocks, 3u);
  EXPECT_EQ(here.shared_blocks, 2u);  // 3 + (3 - 2) = 4 blocks with this request
  EXPECT_EQ(here.active_requests, 1u);
  EXPECT_EQ(Project({1, 2, 4}, kOther).shared_blocks, 1u);
}

TEST_F(LoadBookTest, ProjectionsAreNoReservations) {
  Project({1, 2, 3});
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, DifferentIdentitiesShareNothing_T4) {
  const Booking base = Reserve({}, {10, 11});
  const Booking lora = Reserve({}, {20, 21});  // the same tokens hash differently
  EXPECT_EQ(Blocks(), 4u);
}

TEST_F(LoadBookTest, DuplicateIdIsRefusedOnAnyRank_T6) {
  const Booking first = Reserve({.request_id = "r", .prefill_tokens = 8}, {1, 2});
  for (const Rank rank : {kRank, kOther}) {
    const auto second = TryReserve({.request_id = "r", .prefill_tokens = 5}, {3}, rank);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  }
  EXPECT_EQ(Blocks(), 2u);
  EXPECT_EQ(Prefill(), 8u);
  EXPECT_EQ(Blocks(kOther), 0u);
}

TEST_F(LoadBookTest, FreeIsIdempotent_T7) {
  Booking booking = Reserve({.request_id = "r"}, {1, 2});
  EXPECT_TRUE(book_.Free("r"));
  EXPECT_FALSE(book_.Free("r"));
  EXPECT_FALSE(book_.Free("never"));
  EXPECT_EQ(Blocks(), 0u);
  // Someone else takes the place of the booking; its old handle must not reach it.
  const Booking next = Reserve({.request_id = "r", .prefill_tokens = 4}, {7});
  booking.PrefillDone();
  booking.AddOutput(100);
  booking.Free();
  booking.Free();
  EXPECT_FALSE(booking);
  EXPECT_EQ(Blocks(), 1u);
  EXPECT_EQ(Prefill(), 4u);
}

TEST_F(LoadBookTest, FreeEndsThePrefillToo_T8) {
  { const Booking booking = Reserve({.prefill_tokens = 8}, {1, 2}); }
  EXPECT_EQ(Prefill(), 0u);
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Requests(), 0u);
}

TEST_F(LoadBookTest, PrefillDoneTwiceAndUnknown_T9) {
  const Booking booking = Reserve({.request_id = "r", .prefill_tokens = 8}, {1, 2});
  EXPECT_TRUE(book_.PrefillDone("r"));
  EXPECT_EQ(Prefill(), 0u);
  EXPECT_EQ(Blocks(), 2u);
  EXPECT_TRUE(book_.PrefillDone("r"));
  EXPECT_EQ(book_.PrefillDone("x").error().code, ErrorCode::kNotFound);
}

TEST_F(LoadBookTest, FullyCachedPromptHasNoPrefill_T10_T11) {
  Booking booking = Reserve({.request_id = "r", .prefill_tokens = 0}, {1, 2});
  EXPECT_EQ(Prefill(), 0u);
  EXPECT_TRUE(book_.PrefillDone("r"));
  booking.PrefillDone();
  EXPECT_EQ(Blocks(), 2u);
}

TEST_F(LoadBookTest, WithoutPathOnlyPrefillCounts_T12) {
  const Booking booking = Reserve({.isl_tokens = 40, .prefill_tokens = 40}, {});
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Prefill(), 40u);
  EXPECT_EQ(Project({}).active_blocks, 0u);
}

TEST_F(LoadBookTest, OutputOfAnEmptyPath_T13) {
  {
    Booking booking = Reserve({.isl_tokens = 4}, {});
    booking.AddOutput(1);
    EXPECT_EQ(Blocks(), 1u);
  }
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, OutputBlocksWeighOneAndAreNeverShared_T14) {
  Booking a = Reserve({}, {1});
  Booking b = Reserve({}, {1});
  a.AddOutput(1);
  b.AddOutput(1);
  EXPECT_EQ(Blocks(), 3u);
}

TEST_F(LoadBookTest, FractionsFixture) {
  Booking first = Reserve({.expected_output = 8}, {1, 2, 3});
  Booking second = Reserve({}, {1, 2, 4});
  Booking duplicate = Reserve({}, {1, 2, 3});
  EXPECT_EQ(Blocks(), 4u);
  duplicate.Free();
  // Only the prompt block that nobody else uses fades, and the output blocks.
  first.AddOutput(2);
  EXPECT_EQ(Blocks(), 5u);  // 3.75 + 0.75 = 4.5
  first.AddOutput(4);
  EXPECT_EQ(Blocks(), 4u);  // 3.25 + 2 · 0.25 = 3.75
  first.Free();
  EXPECT_EQ(Blocks(), 3u);
  second.Free();
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, AnswerFadesTowardsItsExpectedLength_T17) {
  Booking booking = Reserve({.expected_output = 8}, {1, 2});
  booking.AddOutput(4);
  EXPECT_EQ(Blocks(), 2u);  // (2 + 1) · 0.5 = 1.5
  booking.AddOutput(4);
  EXPECT_EQ(Blocks(), 0u);
  booking.AddOutput(100);
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Requests(), 1u);
}

TEST_F(LoadBookTest, ExpectedOutputOfZeroDividesByOne_T18) {
  Booking booking = Reserve({.expected_output = 0}, {1, 2});
  booking.AddOutput(1);
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, AChunkAcrossThreeBoundariesAddsThreeBlocks_T19) {
  Booking booking = Reserve({}, {1, 2});
  booking.AddOutput(12);
  EXPECT_EQ(Blocks(), 5u);
}

TEST_F(LoadBookTest, OutputGrowsBlockByBlockFromAPartialTail) {
  Booking booking = Reserve({.isl_tokens = 10}, {1, 2});  // two blocks and half of a third
  booking.AddOutput(2);
  EXPECT_EQ(Blocks(), 2u);
  booking.AddOutput(1);
  EXPECT_EQ(Blocks(), 3u);
  booking.AddOutput(3);
  EXPECT_EQ(Blocks(), 3u);
  booking.AddOutput(1);
  EXPECT_EQ(Blocks(), 4u);
}

TEST_F(LoadBookTest, WithoutReuseEveryPromptBlockCosts) {
  Booking a = Reserve({.share_blocks = false, .expected_output = 8}, {1, 2});
  const Booking b = Reserve({.share_blocks = false}, {1, 2});
  EXPECT_EQ(Blocks(), 4u);
  EXPECT_EQ(Project({1, 2}).shared_blocks, 0u);
  a.AddOutput(4);
  EXPECT_EQ(Blocks(), 4u);  // 2 + 3 · 0.5 = 3.5
  a.Free();
  EXPECT_EQ(Blocks(), 2u);
}

TEST_F(LoadBookTest, ExpiresWhatNobodyTouches_T26) {
  Booking silent = Reserve({.request_id = "r", .prefill_tokens = 8}, {1, 2});
  clock_.Advance(seconds{300});
  EXPECT_EQ(book_.Sweep(), 0u);
  clock_.Advance(seconds{1});
  EXPECT_EQ(book_.Sweep(), 1u);
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Prefill(), 0u);
  EXPECT_EQ(book_.Stats().expired, 1u);
  EXPECT_EQ(book_.Stats().bookings, 0u);
  const Booking again = Reserve({.request_id = "r"}, {1, 2});
  silent.AddOutput(50);
  silent.Free();
  EXPECT_EQ(Blocks(), 2u);
}

TEST_F(LoadBookTest, ActivityPutsExpiryOff) {
  Booking busy = Reserve({.prefill_tokens = 8}, {1, 2});
  const Booking silent = Reserve({}, {3});
  clock_.Advance(seconds{200});
  busy.PrefillDone();
  clock_.Advance(seconds{200});
  EXPECT_EQ(book_.Sweep(), 1u);
  busy.AddOutput(1);
  clock_.Advance(seconds{300});
  EXPECT_EQ(book_.Sweep(), 0u);
  EXPECT_EQ(Requests(), 1u);
}

TEST_F(LoadBookTest, ReserveSweepsToo) {
  const Booking old = Reserve({}, {1});
  clock_.Advance(seconds{301});
  const Booking fresh = Reserve({}, {2});
  EXPECT_EQ(Requests(), 1u);
}

TEST_F(LoadBookTest, RemovedRankLosesItsBookings_T28) {
  Booking booking = Reserve({.request_id = "r", .prefill_tokens = 8}, {1, 2});
  Booking elsewhere = Reserve({.request_id = "s"}, {1}, kOther);
  EXPECT_TRUE(Remove(kRank));
  EXPECT_FALSE(Remove(kRank));
  EXPECT_EQ(book_.PrefillDone("r").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(book_.Free("r"));
  Add(kRank);
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Prefill(), 0u);
  booking.Free();
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Blocks(kOther), 1u);
  EXPECT_EQ(book_.Stats().lost_with_rank, 1u);
}

TEST_F(LoadBookTest, ReserveOnARemovedRankDoesNotBringItBack_T29) {
  Remove(kRank);
  EXPECT_EQ(TryReserve({}, {1}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(book_.Stats().ranks, 1u);
}

TEST_F(LoadBookTest, FreeOnlyOnTheOwnersRank_T39) {
  const Booking booking = Reserve({.request_id = "r"}, {1});
  EXPECT_FALSE(book_.Free("r", kOther));
  EXPECT_EQ(Blocks(), 1u);
  EXPECT_TRUE(book_.Free("r", kRank));
}

TEST_F(LoadBookTest, DroppedBeforeItIsUsed_T40) {
  { const auto ignored = TryReserve({.request_id = "r", .prefill_tokens = 9}, {1, 2, 3}); }
  EXPECT_EQ(Blocks(), 0u);
  EXPECT_EQ(Prefill(), 0u);
  EXPECT_FALSE(book_.Free("r"));
}

TEST_F(LoadBookTest, MovingABookingMovesTheDuty) {
  Booking a = Reserve({}, {1, 2});
  Booking b = std::move(a);
  EXPECT_TRUE(b);
  a.Free();  // NOLINT(bugprone-use-after-move): a moved-from booking is empty
  EXPECT_EQ(Blocks(), 2u);
  b = Reserve({}, {5});
  EXPECT_EQ(Blocks(), 1u);
  b = Booking{};
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, DetachedBookingsLiveByTheirId) {
  {
    Booking booking = Reserve({.request_id = "r"}, {1, 2});
    booking.Detach();
    EXPECT_FALSE(booking);
  }
  EXPECT_EQ(Blocks(), 2u);
  EXPECT_TRUE(book_.Free("r"));
  EXPECT_EQ(Blocks(), 0u);
}

TEST_F(LoadBookTest, ModelledPrefillFadesWithTheClock) {
  const Booking booking =
      Reserve({.isl_tokens = 100, .prefill_tokens = 100, .prefill_duration = seconds{10}}, {});
  clock_.Advance(seconds{4});
  EXPECT_EQ(Prefill(), 60u);
}

TEST(LoadBook, RefusesBeyondItsMaximum) {
  ManualClock clock;
  LoadBook book(clock, {.bookings_max = 2});
  std::vector<Booking> bookings;
  const auto reserve = [&](const BookingRequest& request) -> Result<void> {
    const Lock lock(book.mutex);
    KVR_TRY(bookings.emplace_back(), book.Reserve(book.AddRank(kRank), request));
    return {};
  };
  EXPECT_EQ(reserve({.isl_tokens = kTokensMax + 1}).error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(reserve({}));
  EXPECT_TRUE(reserve({}));
  EXPECT_EQ(reserve({}).error().code, ErrorCode::kOverloaded);
}

TEST(LoadBookDeathTest, MustOutliveItsBookings) {
  EXPECT_DEATH(
      {
        ManualClock clock;
        Booking booking;
        LoadBook book(clock, {});
        const Lock lock(book.mutex);
        booking = *book.Reserve(book.AddRank(kRank), {});
      },
      "stats_.handles == 0");
}

TEST(BookOptions, Validate_T27) {
  EXPECT_TRUE(BookOptions{}.Validate());
  EXPECT_EQ(BookOptions{}.expiry, seconds{300});
  EXPECT_FALSE(BookOptions{.expiry = seconds{0}}.Validate());
  EXPECT_FALSE(BookOptions{.bookings_max = 0}.Validate());
}

// Whatever happens in whatever order, a drained book is empty to the last bit.
TEST(LoadBookRandom, DrainsToExactlyZero) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    ManualClock clock;
    LoadBook book(clock, {});
    std::vector<LoadSlot> slots;
    {
      const Lock lock(book.mutex);
      for (std::uint64_t worker = 0; worker < 6; ++worker)
        slots.push_back(book.AddRank({WorkerId{worker}, 0}));
    }
    std::vector<Booking> live;
    std::vector<SequenceHash> path;
    for (int step = 0; step < 3000; ++step) {
      clock.Advance(std::chrono::milliseconds{rng.Below(400)});
      const std::uint64_t what = rng.Below(8);
      if (what < 3 || live.empty()) {
        path.resize(rng.Below(7));
        for (auto& hash : path)
          hash = SequenceHash{rng.Below(3)};
        BookingRequest request{.path = path,
                               .share_blocks = rng.Below(4) != 0,
                               .block_size = 4,
                               .isl_tokens = 4 * path.size() + rng.Below(4),
                               .prefill_tokens = rng.Below(30)};
        if (rng.Below(2) == 0) request.prefill_duration = std::chrono::milliseconds{rng.Below(900)};
        if (rng.Below(2) == 0) request.expected_output = rng.Below(60);
        const Lock lock(book.mutex);
        auto booking = book.Reserve(slots[rng.Below(slots.size())], request);
        ASSERT_TRUE(booking);
        live.push_back(*std::move(booking));
      } else {
        Booking& one = live[rng.Below(live.size())];
        if (what < 5) one.AddOutput(rng.Below(9));
        if (what == 5) one.PrefillDone();
        if (what > 5) {
          std::swap(one, live.back());
          live.pop_back();
        }
      }
      if (step % 500 == 499) book.Sweep();
    }
    live.clear();
    for (const RankLoad& load : book.Loads()) {
      EXPECT_EQ(load.active_blocks, 0u);
      EXPECT_EQ(load.active_prefill_tokens, 0u);
      EXPECT_EQ(load.active_requests, 0u);
    }
    EXPECT_EQ(book.Stats().bookings, 0u);
    // RemoveRank checks that the weights are exactly zero.
    const Lock lock(book.mutex);
    for (std::uint64_t worker = 0; worker < 6; ++worker)
      EXPECT_TRUE(book.RemoveRank({WorkerId{worker}, 0}));
  }
}

}  // namespace
}  // namespace kvr::load
