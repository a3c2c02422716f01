#include "bench/replay_report.h"

#include <string_view>

#include <fmt/format.h>

#include "base/json_writer.h"

namespace kvr::bench {
namespace {

void Put(JsonWriter& json, std::string_view key, const Percentiles& p) {
  json.Key(key);
  json.BeginObject();
  json.Field("count", p.count);
  json.Field("mean_ns", p.mean_ns);
  json.Field("p50_ns", p.p50_ns);
  json.Field("p99_ns", p.p99_ns);
  json.Field("p999_ns", p.p999_ns);
  json.Field("max_ns", p.max_ns);
  json.EndObject();
}

void Put(JsonWriter& json, std::string_view key, const WriteResult& write) {
  json.Key(key);
  json.BeginObject();
  json.Field("seconds", write.seconds);
  json.Field("cpu_seconds", write.cpu_s);
  json.Field("blocks", write.blocks);
  json.Field("blocks_per_s", write.blocks_per_s());
  json.Field("blocks_per_cpu_s", write.blocks_per_cpu_s());
  json.EndObject();
}

void Put(JsonWriter& json, std::string_view key, const LoopResult& loop) {
  json.Key(key);
  json.BeginObject();
  json.Field("best_ns", loop.best_ns);
  json.Field("median_ns", loop.median_ns);
  json.Field("passes", loop.passes);
  json.EndObject();
}

void Put(JsonWriter& json, const OpCounts& counts) {
  json.Key("ops");
  json.BeginObject();
  json.Field("queries", counts.queries);
  json.Field("query_blocks", counts.query_blocks);
  json.Field("stores", counts.stores);
  json.Field("stored_blocks", counts.stored_blocks);
  json.Field("removals", counts.removals);
  json.Field("removed_blocks", counts.removed_blocks);
  json.Field("clears", counts.clears);
  json.EndObject();
}

double Per(std::uint64_t bytes, std::uint64_t blocks) {
  return static_cast<double>(bytes) / static_cast<double>(blocks);
}

std::string Line(std::string_view what, const Percentiles& p) {
  return fmt::format("{:<30} p50 {} ns, p99 {} ns, p99.9 {} ns, max {} ns ({} queries)\n", what,
                     p.p50_ns, p.p99_ns, p.p999_ns, p.max_ns, p.count);
}

}  // namespace

ReplayResult Replay(const IndexFeed& feed, const ReplayOptions& options) {
  ReplayResult result;
  result.counts = feed.counts();
  result.write = MeasureWrite(feed);
  result.fill = MeasureFill(feed);
  const FedIndex& index = *result.fill.index;
  result.checksum = ChecksumOf(feed, index);
  result.loop = MeasureLoop(feed, index, options.loop_s);
  result.loop_unread = MeasureLoop(feed, index, options.loop_s, Answers::kNotRead);
  result.alone = MeasureAlone(feed, index);
  result.readers = MeasureReaders(feed, index, options.readers_max, options.loop_s);
  result.fill.index.reset();
  result.beside = MeasureBeside(feed);
  result.open_loop.push_back(MeasureOpenLoop(feed, 0));
  if (options.window_s > 0) result.open_loop.push_back(MeasureOpenLoop(feed, options.window_s));
  return result;
}

std::string ReplayJson(const ReplayResult& result) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("index", "run_arena");
  Put(json, result.counts);
  json.Key("checksum");
  json.BeginObject();
  json.Field("depths", result.checksum.depths);
  json.Field("scored", result.checksum.scored);
  json.Field("read", result.checksum.read);
  json.EndObject();
  Put(json, "write", result.write);
  Put(json, "write_from_array", result.fill.write);
  json.Field("failed_updates", result.fill.failed_updates);
  const MemoryResult& memory = result.fill.memory;
  json.Key("memory");
  json.BeginObject();
  json.Field("held_blocks", memory.held_blocks);
  json.Field("distinct_blocks", memory.distinct_blocks);
  json.Field("idle_blocks", memory.idle_blocks);
  json.Field("heap_bytes", memory.heap_bytes);
  json.Field("reported_bytes", memory.reported_bytes);
  json.Key("bytes_of");
  json.BeginObject();
  for (std::size_t use = 0; use < index::kHeapUseCount; ++use)
    json.Field(index::kHeapUseNames[use], memory.bytes_of[use]);
  json.EndObject();
  json.Field("heap_bytes_per_held_block", Per(memory.heap_bytes, memory.held_blocks));
  json.EndObject();
  Put(json, "query_loop", result.loop);
  Put(json, "query_loop_unread", result.loop_unread);
  Put(json, "query_alone", result.alone);
  Put(json, "query_beside_writer", result.beside.query);
  Put(json, "write_second_half", result.beside.write_alone);
  Put(json, "write_beside_reader", result.beside.write_beside);
  json.Key("readers");
  json.BeginArray();
  for (const ReadersResult& r : result.readers) {
    json.BeginObject();
    json.Field("readers", r.readers);
    json.Field("queries_per_s", r.queries_per_s);
    json.Field("cpu_ns", r.cpu_ns);
    json.EndObject();
  }
  json.EndArray();
  json.Key("open_loop");
  json.BeginArray();
  for (const OpenLoopResult& r : result.open_loop) {
    json.BeginObject();
    json.Field("window_s", r.window_s);
    json.Field("total_s", r.total_s);
    json.Field("issue_span_s", r.issue_span_s);
    json.Field("drain_s", r.drain_s);
    if (r.window_s > 0) json.Field("offered_block_ops_per_s", r.offered());
    json.Field("achieved_block_ops_per_s", r.achieved());
    json.Field("failed_updates", r.failed_updates);
    json.Field("generator_valid", r.generator_valid());
    json.Field("kept_up", r.kept_up());
    Put(json, "query", r.query);
    Put(json, "query_from_deadline", r.query_to_end);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  out += '\n';
  return out;
}

std::string ReplayText(const ReplayResult& result) {
  const MemoryResult& memory = result.fill.memory;
  std::string out;
  out += fmt::format("checksum                       depths {}, scored {}\n",
                     result.checksum.depths, result.checksum.scored);
  out += fmt::format(
      "write, from empty              {:.2f} M blocks/s, {:.2f} M a processor second "
      "({} updates failed); from an array {:.2f} M\n",
      result.write.blocks_per_s() / 1e6, result.write.blocks_per_cpu_s() / 1e6,
      result.fill.failed_updates, result.fill.write.blocks_per_cpu_s() / 1e6);
  out += fmt::format(
      "memory                         {:.1f} bytes a held block, {:.1f} a distinct "
      "one by the allocator; {:.1f} a held block by the index itself\n",
      Per(memory.heap_bytes, memory.held_blocks), Per(memory.heap_bytes, memory.distinct_blocks),
      Per(memory.reported_bytes, memory.held_blocks));
  out += "  of it, bytes a held block    ";
  for (std::size_t use = 0; use < index::kHeapUseCount; ++use) {
    out += fmt::format("{}{} {:.1f}", use == 0 ? "" : ", ", index::kHeapUseNames[use],
                       Per(memory.bytes_of[use], memory.held_blocks));
  }
  out += '\n';
  out += fmt::format(
      "query, back to back            {:.0f} ns, fastest pass {:.0f} ns; answer not read {:.0f} "
      "ns\n",
      result.loop.median_ns, result.loop.best_ns, result.loop_unread.median_ns);
  out += Line("query, timed alone", result.alone);
  out += Line("query, beside a writer", result.beside.query);
  out += fmt::format("write, second half             {:.2f} M blocks/s, beside a reader {:.2f} M\n",
                     result.beside.write_alone.blocks_per_s() / 1e6,
                     result.beside.write_beside.blocks_per_s() / 1e6);
  for (const ReadersResult& r : result.readers) {
    out +=
        fmt::format("{:>3} reader(s)                  {:.2f} M queries/s, {:.0f} ns of processor\n",
                    r.readers, r.queries_per_s / 1e6, r.cpu_ns);
  }
  for (const OpenLoopResult& r : result.open_loop) {
    const std::string load = r.window_s > 0 ? fmt::format("window {:>7.3f} s    offered {:.2f} M, ",
                                                          r.window_s, r.offered() / 1e6)
                                            : "all at once         ";
    out += fmt::format("open loop, {}achieved {:.2f} M block operations/s, {}{}\n", load,
                       r.achieved() / 1e6,
                       r.generator_valid() ? "" : "INVALID (failures, or issued late), ",
                       r.kept_up() ? "kept up" : "no latencies");
    if (!r.kept_up()) continue;
    out += Line("  query, service time", r.query);
    out += Line("  query from its deadline", r.query_to_end);
  }
  return out;
}

}  // namespace kvr::bench
