#include "bench/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <thread>

#include <malloc.h>

#include "base/bounded_queue.h"
#include "base/check.h"

namespace kvr::bench {
namespace {

using Time = std::chrono::steady_clock;

double SecondsSince(Time::time_point from) {
  return std::chrono::duration<double>(Time::now() - from).count();
}

// Processor time of this thread.
double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::uint32_t NanosBetween(Time::time_point from, Time::time_point to) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(ns, 0, std::numeric_limits<std::uint32_t>::max()));
}

std::uint64_t BlocksIn(const IndexFeed& feed, std::size_t begin, std::size_t end) {
  std::uint64_t blocks = 0;
  for (const PlacementEvent& event : feed.updates().subspan(begin, end - begin))
    blocks += event.blocks.size() + event.removed.size();
  return blocks;
}

WriteResult TimedApply(const IndexFeed& feed, FedIndex& index, std::size_t begin, std::size_t end) {
  const Time::time_point start = Time::now();
  const double cpu_start = ThreadSeconds();
  index.Apply(begin, end);
  return {.seconds = SecondsSince(start),
          .cpu_s = ThreadSeconds() - cpu_start,
          .blocks = BlocksIn(feed, begin, end)};
}

// What malloc has given out and not got back, in all arenas.
std::uint64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Sorts `values`, which are some.
double Median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Lets no compiler drop what made the value.
void Keep(std::uint64_t value) {
  asm volatile("" : : "r"(value));
}

void MatchAndRead(const FedIndex& index, std::size_t query, OverlapScores& scores) {
  index.Match(query, scores);
  Keep(ReadAnswer(scores));
}

std::uint32_t TimedMatch(const FedIndex& index, std::size_t query, OverlapScores& scores) {
  const Time::time_point start = Time::now();
  MatchAndRead(index, query, scores);
  return NanosBetween(start, Time::now());
}

using UpdateQueue = BoundedQueue<OwnedUpdate>;

void Push(UpdateQueue& queue, OwnedUpdate& update) {
  const bool pushed = queue.TryPush(std::move(update));
  KVR_CHECK(pushed);  // queues here have room for all
}

// Until the queue is closed and empty. Each update is freed once it is applied.
void Drain(UpdateQueue& queue, FedIndex& index) {
  while (const auto update = queue.Pop())
    index.Apply(update->event);
}

// Sleeps until shortly before, then spins: a wake-up may come tens of microseconds late.
void WaitUntil(Time::time_point deadline) {
  constexpr auto kSpin = std::chrono::microseconds(60);
  if (deadline - Time::now() > kSpin) {
    const auto ns = std::chrono::nanoseconds((deadline - kSpin).time_since_epoch()).count();
    const timespec wake{.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000),
                        .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
  }
  while (Time::now() < deadline) {
  }
}

}  // namespace

Percentiles PercentilesOf(std::span<std::uint32_t> samples_ns) {
  Percentiles result;
  if (samples_ns.empty()) return result;
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto at = [&](std::uint64_t per_mille) {
    const std::uint64_t rank = (samples_ns.size() * per_mille + 999) / 1'000;
    return samples_ns[std::max<std::uint64_t>(rank, 1) - 1];
  };
  double sum = 0;
  for (const std::uint32_t ns : samples_ns)
    sum += ns;
  result.count = samples_ns.size();
  result.mean_ns = sum / static_cast<double>(samples_ns.size());
  result.p50_ns = at(500);
  result.p99_ns = at(990);
  result.p999_ns = at(999);
  result.max_ns = samples_ns.back();
  return result;
}

FillResult MeasureFill(const IndexFeed& feed) {
  const std::uint64_t before = HeapBytes();
  FillResult result;
  result.index = std::make_unique<FedIndex>(feed);
  result.write = TimedApply(feed, *result.index, 0, feed.updates().size());
  result.memory.heap_bytes = HeapBytes() - before;
  const index::IndexStats stats = result.index->index().Stats();
  result.memory.held_blocks = stats.memberships;
  result.memory.distinct_blocks = stats.nodes;
  result.memory.idle_blocks = stats.idle_nodes;
  result.memory.reported_bytes = stats.bytes;
  result.memory.bytes_of = stats.bytes_of;
  result.failed_updates = result.index->failed();
  return result;
}

WriteResult MeasureWrite(const IndexFeed& feed) {
  FedIndex index(feed);
  UpdateQueue queue(feed.updates().size());
  for (OwnedUpdate& update : feed.OwnedUpdates(0, feed.updates().size()))
    Push(queue, update);
  queue.Close();
  const Time::time_point start = Time::now();
  const double cpu_start = ThreadSeconds();
  Drain(queue, index);
  return {.seconds = SecondsSince(start),
          .cpu_s = ThreadSeconds() - cpu_start,
          .blocks = BlocksIn(feed, 0, feed.updates().size())};
}

ProvenanceResult MeasureProvenance(const IndexFeed& plain, const IndexFeed& eligible,
                                   std::size_t rounds) {
  std::vector<double> heap;
  std::vector<double> apply;
  for (std::size_t round = 0; round < rounds; ++round) {
    const FillResult without = MeasureFill(plain);
    const FillResult with = MeasureFill(eligible);
    heap.push_back(static_cast<double>(with.memory.heap_bytes) /
                   static_cast<double>(without.memory.heap_bytes));
    apply.push_back(with.write.cpu_s / without.write.cpu_s);
  }
  return {.heap_ratio = Median(heap), .apply_ratio = Median(apply), .rounds = rounds};
}

LoopResult MeasureLoop(const IndexFeed& feed, const FedIndex& index, double seconds,
                       Answers answers) {
  OverlapScores scores;
  std::vector<double> passes;
  const Time::time_point start = Time::now();
  do {
    const double pass = ThreadSeconds();
    for (std::size_t i = 0; i < feed.queries(); ++i) {
      index.Match(i, scores);
      if (answers == Answers::kRead) Keep(ReadAnswer(scores));
    }
    passes.push_back((ThreadSeconds() - pass) * 1e9 / static_cast<double>(feed.queries()));
  } while (SecondsSince(start) < seconds);
  const double median = Median(passes);
  return {.best_ns = passes.front(), .median_ns = median, .passes = passes.size()};
}

Percentiles MeasureAlone(const IndexFeed& feed, const FedIndex& index) {
  OverlapScores scores;
  std::vector<std::uint32_t> samples(feed.queries());
  for (std::size_t i = 0; i < feed.queries(); ++i)
    samples[i] = TimedMatch(index, i, scores);
  return PercentilesOf(samples);
}

namespace {

// With `samples`: asks beside it and adds the time of each query.
WriteResult WriteSecondHalf(const IndexFeed& feed, std::vector<std::uint32_t>* samples) {
  const std::size_t end = feed.updates().size();
  const std::size_t half = end / 2;
  FedIndex index(feed);
  std::vector<OwnedUpdate> updates = feed.OwnedUpdates(half, end);
  UpdateQueue queue(updates.size());
  std::atomic<bool> ready{false};
  std::atomic<bool> applied{false};
  WriteResult result{.blocks = BlocksIn(feed, half, end)};
  OverlapScores scores;
  std::jthread applier([&] {
    index.Apply(0, half);
    ready = true;
    ready.notify_one();
    const double cpu_start = ThreadSeconds();
    Drain(queue, index);
    result.cpu_s = ThreadSeconds() - cpu_start;
    applied = true;
    applied.notify_one();
  });
  ready.wait(false);
  if (samples != nullptr) index.Match(0, scores);
  const Time::time_point start = Time::now();
  for (OwnedUpdate& update : updates)
    Push(queue, update);
  queue.Close();
  if (samples != nullptr) {
    for (std::size_t i = 0; !applied; ++i)
      samples->push_back(TimedMatch(index, i % feed.queries(), scores));
  } else {
    applied.wait(false);
  }
  result.seconds = SecondsSince(start);
  return result;
}

// Of some readers at once, for a while.
ReadersResult ReadForAWhile(const IndexFeed& feed, const FedIndex& index, std::size_t readers,
                            double seconds) {
  constexpr std::size_t kWarmUp = 128;
  struct alignas(128) Asked {
    std::uint64_t queries = 0;
    double cpu_s = 0;
  };
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> done{false};
  std::vector<Asked> asked(readers);
  std::vector<std::jthread> threads;
  for (std::size_t reader = 0; reader < readers; ++reader) {
    threads.emplace_back([&, reader] {
      OverlapScores scores;
      std::size_t next = feed.queries() * reader / readers;
      const auto ask = [&] {
        MatchAndRead(index, next, scores);
        next = next + 1 == feed.queries() ? 0 : next + 1;
      };
      for (std::size_t i = 0; i < kWarmUp; ++i)
        ask();
      ++ready;
      while (!go)
        std::this_thread::yield();
      std::uint64_t count = 0;
      const double cpu_start = ThreadSeconds();
      for (; !done; ++count)
        ask();
      asked[reader] = {.queries = count, .cpu_s = ThreadSeconds() - cpu_start};
    });
  }
  while (ready != readers)
    std::this_thread::yield();
  const Time::time_point start = Time::now();
  go = true;
  WaitUntil(start +
            std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds)));
  done = true;
  const double elapsed = SecondsSince(start);
  threads.clear();
  Asked all;
  for (const Asked& of_one : asked) {
    all.queries += of_one.queries;
    all.cpu_s += of_one.cpu_s;
  }
  return {.readers = readers,
          .queries_per_s = static_cast<double>(all.queries) / elapsed,
          .cpu_ns = all.cpu_s * 1e9 / static_cast<double>(std::max<std::uint64_t>(1, all.queries))};
}

}  // namespace

BesideResult MeasureBeside(const IndexFeed& feed) {
  BesideResult result;
  result.write_alone = WriteSecondHalf(feed, nullptr);
  std::vector<std::uint32_t> samples;
  samples.reserve(1u << 20);
  result.write_beside = WriteSecondHalf(feed, &samples);
  result.query = PercentilesOf(samples);
  return result;
}

std::vector<ReadersResult> MeasureReaders(const IndexFeed& feed, const FedIndex& index,
                                          std::size_t readers_max, double seconds) {
  constexpr std::size_t kSlices = 5;
  std::vector<std::vector<ReadersResult>> slices;  // by number of readers
  for (std::size_t slice = 0; slice < kSlices; ++slice) {
    std::size_t row = 0;
    for (std::size_t readers = 1; readers <= readers_max; readers *= 2, ++row) {
      if (slice == 0) slices.emplace_back();
      slices[row].push_back(ReadForAWhile(feed, index, readers, seconds / kSlices));
    }
  }
  std::vector<ReadersResult> results;
  for (const auto& of_number : slices) {
    std::vector<double> rates;
    std::vector<double> costs;
    for (const ReadersResult& one : of_number) {
      rates.push_back(one.queries_per_s);
      costs.push_back(one.cpu_ns);
    }
    results.push_back({.readers = of_number.front().readers,
                       .queries_per_s = Median(rates),
                       .cpu_ns = Median(costs)});
  }
  return results;
}

OpenLoopResult MeasureOpenLoop(const IndexFeed& feed, double window_s) {
  FedIndex index(feed);
  std::vector<OwnedUpdate> updates = feed.OwnedUpdates(0, feed.updates().size());
  UpdateQueue queue(updates.size());
  std::uint64_t last_ns = 1;
  for (const auto times : {feed.update_times_ns(), feed.query_times_ns()}) {
    if (!times.empty()) last_ns = std::max(last_ns, times.back());
  }
  const double scale = window_s * 1e9 / static_cast<double>(last_ns);
  const Time::time_point start = Time::now() + std::chrono::milliseconds(20);
  const auto deadline = [&](std::uint64_t time_ns) {
    return start + std::chrono::nanoseconds(
                       static_cast<std::int64_t>(static_cast<double>(time_ns) * scale));
  };

  std::vector<std::uint32_t> alone(feed.queries());
  std::vector<std::uint32_t> to_end(feed.queries());
  Time::time_point issued, applied, asked, answered;
  {
    std::jthread issuer([&] {
      for (std::size_t i = 0; i < updates.size(); ++i) {
        WaitUntil(deadline(feed.update_times_ns()[i]));
        Push(queue, updates[i]);
      }
      issued = Time::now();
      queue.Close();
    });
    std::jthread applier([&] {
      Drain(queue, index);
      applied = Time::now();
    });
    std::jthread asker([&] {
      OverlapScores scores;
      for (std::size_t i = 0; i < feed.queries(); ++i) {
        const Time::time_point due = deadline(feed.query_times_ns()[i]);
        WaitUntil(due);
        const Time::time_point begin = Time::now();
        MatchAndRead(index, i, scores);
        const Time::time_point end = Time::now();
        asked = begin;
        alone[i] = NanosBetween(begin, end);
        to_end[i] = NanosBetween(due, end);
      }
      answered = Time::now();
    });
  }
  const auto seconds = [&](Time::time_point end) {
    return std::chrono::duration<double>(end - start).count();
  };
  return {.window_s = window_s,
          .total_s = std::max(seconds(applied), seconds(answered)),
          .issue_span_s = std::max(seconds(issued), seconds(asked)),
          .drain_s = std::max(0.0, seconds(applied) - seconds(issued)),
          .block_ops = feed.counts().block_ops(),
          .failed_updates = index.failed(),
          .query = PercentilesOf(alone),
          .query_to_end = PercentilesOf(to_end)};
}

}  // namespace kvr::bench
