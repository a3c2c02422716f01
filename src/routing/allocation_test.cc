#include <vector>

#include <gtest/gtest.h>

#include "load/load_book.h"
#include "routing/router_fixture.h"
#include "support/alloc_counter.h"

namespace kvr::routing {
namespace {

TEST(Allocation, AWarmRouterAllocatesTheEndpointAndTheExplanation) {
  RouterFixture fixture;
  for (std::uint64_t worker = 0; worker < 32; ++worker)
    fixture.AddWorker(worker, 1, RankState::kExact, "http://a.rather.long.host.name.example:");
  const auto prompt = MakePrompt(1, 40);
  fixture.Store({WorkerId{7}, 0}, prompt);
  RouteRequest request = RequestFor(prompt);
  request.request_id = "0f8fad5b-d9cb-469f-a165-70867728950e";
  const auto route = [&] {
    auto decision = fixture.router.Route(request);
    ASSERT_TRUE(decision);
    decision->booking.PrefillDone();
    decision->booking.AddOutput(1000);
  };
  for (int i = 0; i < 8; ++i)
    route();
  EXPECT_LE(test::AllocationsIn(route), 2u);
}

TEST(Allocation, AWarmBookAllocatesNothing) {
  ManualClock clock;
  load::LoadBook book(clock, {});
  std::vector<load::LoadSlot> slots;
  std::vector<SequenceHash> path;
  for (std::uint64_t i = 0; i < 100; ++i)
    path.push_back(SequenceHash{i});
  std::vector<load::Projection> projections;
  const auto cycle = [&] {
    std::array<load::Booking, 4> bookings;
    for (std::size_t i = 0; i < bookings.size(); ++i) {
      // Every path leaves the others at another depth.
      path[20 * i + 10] = SequenceHash{1000 + i};
      const Lock lock(book.mutex);
      book.Project(path, projections);
      bookings[i] = *book.Reserve(slots[i % slots.size()],
                                  {.path = path, .block_size = 16, .prefill_tokens = 5});
    }
  };
  {
    const Lock lock(book.mutex);
    for (std::uint64_t worker = 0; worker < 3; ++worker)
      slots.push_back(book.AddRank({WorkerId{worker}, 0}));
  }
  for (int i = 0; i < 8; ++i)
    cycle();
  EXPECT_EQ(test::AllocationsIn(cycle), 0u);
}

}  // namespace
}  // namespace kvr::routing
