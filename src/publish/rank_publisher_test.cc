// From events of sources to messages, ids and answers: the rows P1, P3, P12, P13, P23, P24, P27 to
// P30, P33, L1 to L5, L10, L12 to L15, L17 to L19 and D4, and eligibility through all of it.
#include "publish/rank_publisher.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "publish/test_mutations.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// "1:+1,2" with the id before what TextOf says, worker and rank checked.
std::string TextOfEvent(const wire::RouterBatch& batch, const wire::RouterEvent& event) {
  EXPECT_EQ(event.worker_id, 7u);
  EXPECT_EQ(event.dp_rank, 3u);
  EXPECT_EQ(event.domain, wire::ResidencyDomain::kWorker);
  std::vector<PlacedBlock> blocks;
  Mutation mutation;
  mutation.event.tier = event.tier;
  mutation.event.session_id = event.session_id;
  mutation.event.eligible = event.eligible;
  mutation.start_position = event.start_position;
  if (event.type == wire::EventType::kStored) {
    mutation.event.parent = event.parent;
    for (std::size_t i = 0; i < event.blocks.count; ++i) {
      const wire::RouterBlock& block = batch.blocks[event.blocks.begin + i];
      blocks.push_back({block.engine, block.local});
    }
    mutation.event.blocks = blocks;
  } else if (event.type == wire::EventType::kRemoved) {
    mutation.event.kind = PlacementKind::kRemoved;
    mutation.event.removed =
        std::span(batch.removed).subspan(event.removed.begin, event.removed.count);
  } else {
    mutation.event.kind = PlacementKind::kCleared;
  }
  return fmt::format("{}:{}", event.event_id, publish::TextOf(mutation));
}

std::string TextOfEvents(const wire::RouterBatch& batch) {
  std::string text;
  EXPECT_TRUE(batch.bad.empty());
  for (const wire::RouterEvent& event : batch.events)
    text += (text.empty() ? "" : "; ") + TextOfEvent(batch, event);
  return text;
}

// Decodes each message as a router would.
class Network final : public Outlet {
 public:
  bool Send(std::uint64_t sequence, std::span<const std::byte> envelope) override {
    sequences.push_back(sequence);
    bytes.push_back(envelope.size());
    wire::RouterBatch batch;
    EXPECT_TRUE(wire::DecodeRouterEvents(envelope, {}, batch));
    EXPECT_EQ(batch.publisher_id, 42u);
    EXPECT_EQ(batch.sequence, sequence);
    counts.push_back(batch.events.size());
    messages.push_back(TextOfEvents(batch));
    return !std::exchange(broken, false);
  }
  // All since the last call, one in brackets each.
  std::string Drain() {
    std::string text;
    for (const std::string& message : messages)
      text += "[" + message + "]";
    messages.clear();
    return text;
  }

  std::vector<std::uint64_t> sequences;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> bytes;
  std::vector<std::string> messages;
  bool broken = false;  // the next message is lost
};

struct Bench {
  explicit Bench(const std::function<void(RankPublisher::Options&)>& change = {})
      : publisher(
            [&] {
              RankPublisher::Options options;
              options.rank = {WorkerId{7}, 3};
              options.publisher_id = 42;
              if (change) change(options);
              return options;
            }(),
            clock, network) {}

  std::string Feed(const std::vector<Mutation>& list, std::size_t source = 0) {
    for (const Mutation& mutation : list)
      publisher.Apply(source, mutation);
    publisher.EndList(source);
    return network.Drain();
  }
  std::string Events(std::optional<std::uint64_t> start, std::optional<std::uint64_t> end = {}) {
    const auto answer = publisher.Query(start, end);
    if (answer.range.answer != RangeAnswer::kEvents) {
      return fmt::format("answer {}", static_cast<int>(answer.range.answer));
    }
    return Decoded(answer.events, answer.range.count);
  }
  static std::string Decoded(std::string_view events, std::size_t count) {
    std::string list;
    // A list of more than 15 has another head.
    EXPECT_LE(count, 15u);
    list += static_cast<char>(0x90 | count);
    list += events;
    wire::RouterBatch batch;
    EXPECT_TRUE(wire::DecodeRouterEvents(Bytes(list), {}, batch));
    return TextOfEvents(batch);
  }

  Script script;
  ManualClock clock;
  Network network;
  RankPublisher publisher;
};

std::string TextOf(const Snapshot& snapshot) {
  std::string text = fmt::format("@{}", snapshot.cursor);
  for (const Snapshot::Run& run : snapshot.runs) {
    text += " " + publish::TextOf(StoreOf(snapshot, run));
  }
  return text;
}

TEST(RankPublisher, P1ChainsAreMergedNumberedAndSent) {
  Bench b;
  EXPECT_EQ(b.Feed({b.script.Store({}, 1), b.script.Store(1, 2), b.script.Remove({9})}),
            "[1:+1,2; 2:-9]");
  EXPECT_EQ(b.Feed({b.script.Store(2, 3)}), "[3:+2<3]");
  EXPECT_EQ(b.network.sequences, (std::vector<std::uint64_t>{0, 1}));
}

TEST(RankPublisher, P23IdsHaveNoHoles) {
  Bench b([](RankPublisher::Options& options) { options.sources = 2; });
  b.Feed({b.script.Store({}, 1)});
  b.Feed({b.script.Store({}, 1)}, 1);
  // D4: wholly suppressed, no id and no message.
  EXPECT_EQ(b.Feed({b.script.Remove({1})}), "");
  EXPECT_EQ(b.Feed({b.script.Store(1, 2, 0), b.script.Remove({})}), "");
  EXPECT_EQ(b.Feed({b.script.Remove({1})}, 1), "[2:-1001]") << "by its sequence hash";
  EXPECT_EQ(b.Feed({Script::Clear()}), "") << "of one of two, which holds nothing";
  EXPECT_EQ(b.Feed({Script::Clear()}, 1), "[3:!]");
  EXPECT_EQ(b.publisher.stats().published_events, 3u);
  EXPECT_EQ(b.publisher.stats().received_events, 8u);
}

TEST(RankPublisher, P24ALostMessageShowsAsAGap) {
  Bench b;
  for (const std::uint64_t n : {1u, 2u, 3u}) {
    b.network.broken = n == 2;
    b.Feed({b.script.Store({}, n)});
  }
  EXPECT_EQ(b.network.sequences, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(b.publisher.stats().dropped_messages, 1u);
  EXPECT_EQ(b.publisher.stats().dropped_events, 1u);
  EXPECT_EQ(b.publisher.stats().messages, 3u);
  EXPECT_EQ(b.Events(2), "2:+2; 3:+3") << "and can be fetched";
}

TEST(RankPublisher, P27ToP29MessagesAreFilledAndEventsNotSplit) {
  const auto counts = [](const std::function<std::vector<Mutation>(Script&)>& make) {
    Bench b([](RankPublisher::Options& options) { options.message_bytes_max = 1u << 20; });
    b.Feed(make(b.script));
    return b.network.counts;
  };
  using Counts = std::vector<std::size_t>;
  using List = std::vector<Mutation>;
  EXPECT_EQ(counts([](Script& s) {
              List list;
              for (std::uint64_t n = 1; n <= 129; ++n)
                list.push_back(s.Store({}, n));
              return list;
            }),
            (Counts{128, 1}))
      << "P27";
  EXPECT_EQ(counts([](Script& s) {
              return List{s.Store({}, 1, 8'000), s.Store({}, 10'000, 193)};
            }),
            (Counts{1, 1}))
      << "P28";
  EXPECT_EQ(counts([](Script& s) {
              return List{s.Store({}, 1, 8'000), s.Store({}, 10'000, 192)};
            }),
            (Counts{2}))
      << "P28, one less";
  EXPECT_EQ(counts([](Script& s) {
              return List{s.Store({}, 1), s.Store({}, 10'000, 9'000), s.Store({}, 2)};
            }),
            (Counts{1, 1, 1}))
      << "P29";
}

TEST(RankPublisher, NoMessageIsBeyondItsBytes) {
  Bench b([](RankPublisher::Options& options) { options.message_bytes_max = 4'096; });
  std::vector<std::uint64_t> names;
  for (std::uint64_t n = 1; n <= 1'500; ++n)
    names.push_back(n);
  for (const Mutation& large :
       {At(7, In("s", b.script.Store(9, 1, 1'500))), b.script.Remove(names)}) {
    b.network.bytes.clear();
    b.Feed({large});
    EXPECT_GE(b.network.bytes.size(), 2u);
    for (const std::size_t bytes : b.network.bytes)
      EXPECT_LE(bytes, 4'096u + 256) << "with its envelope";
  }
  // A small limit: what is sent is the same chain, link by link.
  Bench whole;
  Bench cut([](RankPublisher::Options& options) { options.message_bytes_max = 4'096; });
  whole.Feed({At(7, whole.script.Store(9, 1, 100))});
  cut.Feed({At(7, cut.script.Store(9, 1, 100))});
  const std::string first = cut.Events(1);
  EXPECT_EQ(first.find("1:+9<1,"), 0u) << first;
  EXPECT_NE(first.find("@7; 2:+50<51,"), std::string::npos) << first;
  EXPECT_EQ(first.substr(first.size() - 3), "@57") << first;
  EXPECT_EQ(TextOf(*cut.publisher.TakeSnapshot()->base).substr(2),
            TextOf(*whole.publisher.TakeSnapshot()->base).substr(2));
}

TEST(RankPublisher, MessagesOfManyEventsAreCutByBytes) {
  Bench b([](RankPublisher::Options& options) { options.message_bytes_max = 4'096; });
  std::vector<Mutation> list;
  for (std::uint64_t n = 1; n <= 100; ++n)
    list.push_back(b.script.Store({}, n));
  b.Feed(list);
  EXPECT_GT(b.network.bytes.size(), 3u);
  std::size_t events = 0;
  for (const std::size_t count : b.network.counts)
    events += count;
  EXPECT_EQ(events, 100u) << "and none is split";
  for (const std::size_t bytes : b.network.bytes)
    EXPECT_LE(bytes, 4'096u + 256);
}

TEST(RankPublisher, ALongSessionIdIsLeftOut) {
  Bench b;
  const std::string longest(RankPublisher::kSessionBytesMax, 's');
  const std::string longer = longest + "s";
  EXPECT_EQ(b.Feed({In(longest, b.script.Store({}, 1)), In(longer, b.script.Store({}, 2))}),
            "[1:+1 '" + longest + "'; 2:+2]");
}

TEST(RankPublisher, P30AnEmptyListIsNothing) {
  Bench b;
  EXPECT_EQ(b.Feed({}), "");
  EXPECT_EQ(b.publisher.stats().messages, 0u);
}

TEST(RankPublisher, P3ListsAreMergedInTime) {
  Bench b([](RankPublisher::Options& options) { options.coalescer.timeout = Millis{10}; });
  EXPECT_EQ(b.Feed({Script::Clear()}), "[1:!]");
  EXPECT_EQ(b.Feed({b.script.Store({}, 1)}), "");
  EXPECT_EQ(b.Feed({b.script.Store(1, 2)}), "");
  EXPECT_EQ(b.publisher.deadline(), Millis{10});
  b.publisher.OnTick();
  EXPECT_EQ(b.network.Drain(), "");
  b.clock.Advance(Millis{10});
  b.publisher.OnTick();
  EXPECT_EQ(b.network.Drain(), "[2:+1,2]");
  EXPECT_FALSE(b.publisher.deadline());
}

TEST(RankPublisher, P3WhatIsPendingWaitsOnWhenSomebodyAsksWhereTheStreamIs) {
  Bench b([](RankPublisher::Options& options) { options.coalescer.timeout = Millis{10'000}; });
  b.Feed({Script::Clear()});
  b.Feed({b.script.Store({}, 1)});
  const auto position = b.publisher.Locate();
  EXPECT_EQ(position.next_sequence, 1u);
  EXPECT_EQ(position.last_event_id, 1u) << "what is pending has no number yet";
  b.Feed({b.script.Store(1, 2)});
  EXPECT_EQ(b.network.Drain(), "");
  b.publisher.Flush();
  EXPECT_EQ(b.network.Drain(), "[2:+1,2]");
  EXPECT_EQ(b.publisher.Locate().next_sequence, 2u);
}

TEST(RankPublisher, P33WhatIsPendingGoesOutAtTheEnd) {
  Bench b([](RankPublisher::Options& options) { options.coalescer.timeout = Millis{10'000}; });
  b.Feed({Script::Clear()});
  b.Feed({b.script.Store({}, 1)});
  b.publisher.Flush();
  EXPECT_EQ(b.network.Drain(), "[2:+1]");
}

// Eligible and not: the four pairings, whether parents hold the chain together or not. The flag and
// the link are those of the wire.
TEST(RankPublisher, P12P13EligibilityOnTheWire) {
  const auto store = [](Script& s, bool eligible, std::uint64_t parent, std::uint64_t name) {
    return eligible ? Eligible(s.Store(parent, name)) : s.Store(parent, name);
  };
  const struct {
    bool first;
    bool second;
    std::string_view chained;
    std::string_view apart;
  } rows[] = {
      {true, true, "[1:+9<1,2 sce]", "[1:+9<1 sce; 2:+8<2 sce]"},
      {true, false, "[1:+9<1 sce; 2:+1<2]", "[1:+9<1 sce; 2:+8<2]"},
      {false, true, "[1:+9<1; 2:+1<2 sce]", "[1:+9<1; 2:+8<2 sce]"},
      {false, false, "[1:+9<1,2]", "[1:+9<1; 2:+8<2]"},
  };
  for (const auto& row : rows) {
    Bench chained;
    EXPECT_EQ(chained.Feed({store(chained.script, row.first, 9, 1),
                            store(chained.script, row.second, 1, 2)}),
              row.chained);
    Bench apart;
    EXPECT_EQ(
        apart.Feed({store(apart.script, row.first, 9, 1), store(apart.script, row.second, 8, 2)}),
        row.apart);
    // L15: kept as it was sent.
    EXPECT_EQ("[" + chained.Events(1) + "]", row.chained);
    EXPECT_EQ("[" + apart.Events(1) + "]", row.apart);
  }
}

TEST(RankPublisher, L1ToL5AnswersAreThoseOfTheRing) {
  Bench b;
  b.Feed({b.script.Store({}, 1), b.script.Store({}, 2), In("s", b.script.Store({}, 3))});
  EXPECT_EQ(b.Events(2, 2), "2:+2; 3:+3 's'");
  EXPECT_EQ(b.publisher.Query(4, {}).range.answer, RangeAnswer::kTooNew);
  EXPECT_EQ(b.publisher.Query(4, {}).range.last, 3u);
  EXPECT_EQ(b.publisher.Query(3, 1).range.answer, RangeAnswer::kInvalidRange);
  EXPECT_EQ(b.publisher.Query({}, {}).range.answer, RangeAnswer::kSnapshot);
}

// L10: a clear of the worker's domain is an event like others.
TEST(RankPublisher, L10ClearsAreOfTheWorkersDomain) {
  Bench b;
  b.Feed({b.script.Store({}, 1), Script::Clear(), b.script.Store({}, 2)});
  EXPECT_EQ(b.Events(1), "1:+1; 2:!; 3:+2");
}

TEST(RankPublisher, L12L13SnapshotsHaveEveryTierAndAnExactCursor) {
  Bench b([](RankPublisher::Options& options) { options.coalescer.timeout = Millis{10'000}; });
  EXPECT_EQ(TextOf(*b.publisher.TakeSnapshot()->base), "@0");
  EXPECT_EQ(b.Feed({b.script.Store({}, 1, 2), On(Tier::kHostPinned, b.script.Store({}, 1))}),
            "[1:+1,2]");
  EXPECT_TRUE(b.publisher.deadline()) << "the last one is pending";
  const auto answer = *b.publisher.TakeSnapshot();
  EXPECT_EQ(b.network.Drain(), "[2:+1/host_pinned]") << "what it has was published";
  EXPECT_EQ(answer.last, 2u);
  EXPECT_EQ(answer.base->rank, (Rank{WorkerId{7}, 3}));
}

TEST(RankPublisher, L14SnapshotsKeepEligibility) {
  Bench b;
  b.Feed({Eligible(b.script.Store({}, 1)), b.script.Store(1, 2)});
  EXPECT_EQ(TextOf(*b.publisher.TakeSnapshot()->base), "@2 +1 sce +1<2");
}

TEST(RankPublisher, L17ToL19SnapshotsAreUsedAgain) {
  Bench b;
  b.Feed({b.script.Store({}, 1)});
  const auto first = *b.publisher.TakeSnapshot();
  b.Feed({Eligible(b.script.Store(1, 2)), b.script.Remove({1})});
  const auto second = *b.publisher.TakeSnapshot();
  EXPECT_EQ(second.base, first.base) << "L17";
  EXPECT_EQ(second.last, 3u);
  EXPECT_EQ(Bench::Decoded(second.tail, second.tail_events), "2:+1<2 sce; 3:-1");
  for (std::uint64_t n = 0; n < 511; ++n)
    b.Feed({b.script.Store({}, 100 + n)});
  const auto third = *b.publisher.TakeSnapshot();
  EXPECT_NE(third.base, first.base) << "L18";
  EXPECT_EQ(third.tail_events, 0u);
  b.Feed({Script::Clear()});
  const auto fourth = *b.publisher.TakeSnapshot();
  EXPECT_EQ(TextOf(*fourth.base), "@515") << "L19";
  EXPECT_EQ(b.publisher.TakeSnapshot()->base, fourth.base);
  EXPECT_EQ(b.publisher.stats().snapshots_built, 3u);
  EXPECT_EQ(b.publisher.stats().snapshots_reused, 2u);
}

TEST(RankPublisher, SnapshotsBeingReadAreBounded) {
  Bench b([](RankPublisher::Options& options) {
    options.snapshot_tail_max = 0;
    options.snapshots_max = 2;
    options.ring.events_max = 3;
  });
  b.Feed({b.script.Store({}, 1)});
  const auto first = *b.publisher.TakeSnapshot();
  b.Feed({b.script.Store({}, 2)});
  auto second = b.publisher.TakeSnapshot();
  EXPECT_NE(second->base, first.base);
  b.Feed({b.script.Store({}, 3)});
  const auto third = *b.publisher.TakeSnapshot();
  EXPECT_EQ(third.base, second->base) << "with a longer tail";
  EXPECT_EQ(Bench::Decoded(third.tail, third.tail_events), "3:+3");
  for (std::uint64_t n = 10; n < 20; ++n)
    b.Feed({b.script.Store({}, n)});
  const auto none = b.publisher.TakeSnapshot();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kOverloaded);
}

TEST(RankPublisher, SourcesThatNameOtherRanksAreMerged) {
  Bench b([](RankPublisher::Options& options) {
    options.sources = 2;
    options.coalescer.timeout = Millis{10'000};
  });
  b.Feed({Script::Clear()});
  b.Feed({b.script.Remove({1})});
  b.Feed({Of({WorkerId{70}, 9}, b.script.Remove({2}))}, 1);
  b.publisher.Flush();
  EXPECT_EQ(b.network.Drain(), "[2:-1,2]");
}

TEST(RankPublisher, NoTickCutsAList) {
  Bench b([](RankPublisher::Options& options) { options.coalescer.timeout = Millis{10}; });
  b.publisher.Apply(0, b.script.Store({}, 1));
  b.clock.Advance(Millis{11});
  b.publisher.OnTick();
  EXPECT_EQ(b.network.Drain(), "");
  b.publisher.Apply(0, b.script.Store(1, 2));
  b.publisher.EndList(1);
  EXPECT_EQ(b.network.Drain(), "") << "not its list";
  b.publisher.EndList(0);
  EXPECT_EQ(b.network.Drain(), "[1:+1,2]");
}

TEST(RankPublisher, WarmItAllocatesNothing) {
  struct Nowhere final : Outlet {
    bool Send(std::uint64_t, std::span<const std::byte>) override { return true; }
  };
  ManualClock clock;
  Nowhere outlet;
  RankPublisher::Options options;
  options.ring.bytes_max = 64u << 10;
  RankPublisher publisher(options, clock, outlet);
  Script script;
  std::vector<Mutation> list;
  std::vector<std::uint64_t> names;
  for (std::uint64_t n = 1; n <= 300; ++n) {
    list.push_back(script.Store(n - 1, n));
    names.push_back(n);
  }
  list.push_back(script.Remove(names));
  const auto feed = [&] {
    for (const Mutation& mutation : list)
      publisher.Apply(0, mutation);
    publisher.EndList(0);
  };
  for (int i = 0; i < 40; ++i)
    feed();
  EXPECT_EQ(test::AllocationsIn(feed), 0u);
}

TEST(RankPublisher, OptionsNeedRoom) {
  RankPublisher::Options options;
  EXPECT_TRUE(options.Validate());
  options.message_events_max = 0;
  EXPECT_FALSE(options.Validate());
  options = {};
  options.message_bytes_max = RankPublisher::kMessageBytesMin - 1;
  EXPECT_FALSE(options.Validate());
  options = {};
  options.sources = 9;
  EXPECT_FALSE(options.Validate());
  options = {};
  options.ring.events_max = 0;
  EXPECT_FALSE(options.Validate());
}

}  // namespace
}  // namespace kvr::publish
