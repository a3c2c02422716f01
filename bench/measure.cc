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

std::uint32_t TimedMatch(const FedIndex& index, std::size_t query, OverlapScores& scores) {
  const Time::time_point start = Time::now();
  index.Match(query, scores);
  return NanosBetween(start, Time::now());
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

LoopResult MeasureLoop(const IndexFeed& feed, const FedIndex& index, double seconds) {
  OverlapScores scores;
  std::vector<double> passes;
  const Time::time_point start = Time::now();
  do {
    const double pass = ThreadSeconds();
    for (std::size_t i = 0; i < feed.queries(); ++i)
      index.Match(i, scores);
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

BesideResult MeasureBeside(const IndexFeed& feed, std::size_t readers) {
  const std::size_t end = feed.updates().size();
  const std::size_t half = end / 2;
  BesideResult result;
  {
    FedIndex index(feed);
    index.Apply(0, half);
    result.write_alone = TimedApply(feed, index, half, end);
  }
  FedIndex index(feed);
  index.Apply(0, half);
  std::atomic<bool> done{false};
  std::atomic<std::size_t> ready{0};
  std::vector<std::vector<std::uint32_t>> samples(readers);
  {
    std::vector<std::jthread> threads;
    for (std::size_t reader = 0; reader < readers; ++reader) {
      threads.emplace_back([&, reader] {
        OverlapScores scores;
        index.Match(0, scores);
        samples[reader].reserve(1u << 20);
        ++ready;
        for (std::size_t i = feed.queries() * reader / readers; !done; ++i)
          samples[reader].push_back(TimedMatch(index, i % feed.queries(), scores));
      });
    }
    while (ready != readers)
      std::this_thread::yield();
    result.write_beside = TimedApply(feed, index, half, end);
    done = true;
  }
  std::vector<std::uint32_t> all;
  for (const auto& of_one : samples)
    all.insert(all.end(), of_one.begin(), of_one.end());
  result.query = PercentilesOf(all);
  return result;
}

ReadersResult MeasureReaders(const IndexFeed& feed, const FedIndex& index, std::size_t readers,
                             double seconds) {
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> done{false};
  std::vector<std::uint64_t> asked(readers * 16);  // a cache line or two each
  std::vector<std::jthread> threads;
  for (std::size_t reader = 0; reader < readers; ++reader) {
    threads.emplace_back([&, reader] {
      OverlapScores scores;
      index.Match(0, scores);
      ++ready;
      while (!go)
        std::this_thread::yield();
      std::uint64_t count = 0;
      for (std::size_t i = feed.queries() * reader / readers; !done; ++i, ++count)
        index.Match(i % feed.queries(), scores);
      asked[reader * 16] = count;
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
  std::uint64_t total = 0;
  for (const std::uint64_t count : asked)
    total += count;
  return {.readers = readers, .queries_per_s = static_cast<double>(total) / elapsed};
}

OpenLoopResult MeasureOpenLoop(const IndexFeed& feed, double window_s) {
  FedIndex index(feed);
  BoundedQueue<std::uint32_t> lane(feed.updates().size() + 1);  // nothing is ever refused
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
  Time::time_point issued, applied, answered;
  {
    std::jthread issuer([&] {
      for (std::uint32_t i = 0; i < feed.updates().size(); ++i) {
        WaitUntil(deadline(feed.update_times_ns()[i]));
        const bool pushed = lane.TryPush(std::uint32_t{i});
        KVR_CHECK(pushed);
      }
      issued = Time::now();
      lane.Close();
    });
    std::jthread applier([&] {
      while (const auto update = lane.Pop())
        index.Apply(*update, *update + 1);
      applied = Time::now();
    });
    std::jthread asker([&] {
      OverlapScores scores;
      for (std::size_t i = 0; i < feed.queries(); ++i) {
        const Time::time_point due = deadline(feed.query_times_ns()[i]);
        WaitUntil(due);
        const Time::time_point begin = Time::now();
        index.Match(i, scores);
        const Time::time_point end = Time::now();
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
          .drain_s = std::max(0.0, seconds(applied) - seconds(issued)),
          .block_ops = feed.counts().block_ops(),
          .query = PercentilesOf(alone),
          .query_to_end = PercentilesOf(to_end)};
}

}  // namespace kvr::bench
