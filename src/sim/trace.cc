#include "sim/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <queue>
#include <sstream>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

namespace kvr::sim {
namespace {

namespace json = simdjson::dom;

// Dates since 1970 fit up to the year 2096, and sums of two into 64-bit nanoseconds.
constexpr double kMillisecondsMax = 4e12;

// A row as written, before rows are tied together.
struct Row {
  TraceRequest request;
  std::size_t line = 0;
  std::optional<double> timestamp;
  std::optional<double> delay;
  std::vector<std::string> wait_for;
};

tl::unexpected<Error> LineError(std::size_t line, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("trace line {}: {}", line, what));
}

// Reads the fields of one row; the first that is wrong is kept as the error.
class RowReader {
 public:
  RowReader(json::object object, std::size_t line) : object_(object), line_(line) {}

  // The value under `name`, or else under `alias`; null counts as absent.
  std::optional<json::element> Find(std::string_view name, std::string_view alias = {}) {
    json::element value;
    if (object_.at_key(name).get(value) != simdjson::SUCCESS &&
        (alias.empty() || object_.at_key(alias).get(value) != simdjson::SUCCESS)) {
      return std::nullopt;
    }
    if (value.is_null()) return std::nullopt;
    return value;
  }

  // A time or duration in milliseconds.
  std::optional<double> Milliseconds(std::string_view name, std::string_view alias = {}) {
    const auto value = Find(name, alias);
    if (!value) return std::nullopt;
    double ms = 0;
    if (value->get(ms) != simdjson::SUCCESS) return Reject(name, "must be a number");
    if (ms < 0) return Reject(name, "must not be negative");
    if (ms > kMillisecondsMax) return Reject(name, "must be at most 4e12 ms");
    return ms;
  }

  template <typename Int>
  std::optional<Int> Integer(std::string_view name, std::string_view alias = {}) {
    const auto value = Find(name, alias);
    if (!value) return std::nullopt;
    return ToInteger<Int>(*value, name);
  }

  template <typename Int>
  std::vector<Int> Integers(std::string_view name) {
    std::vector<Int> result;
    const auto value = Find(name);
    if (!value) return result;
    json::array array;
    if (value->get(array) != simdjson::SUCCESS) {
      Reject(name, "must be an array");
      return result;
    }
    for (const json::element item : array)
      result.push_back(ToInteger<Int>(item, name).value_or(0));
    return result;
  }

  std::string Text(std::string_view name) {
    const auto value = Find(name);
    if (!value) return {};
    return ToText(*value, name);
  }

  // One string or an array of them.
  std::vector<std::string> Texts(std::string_view name) {
    const auto value = Find(name);
    if (!value) return {};
    json::array array;
    if (value->get(array) != simdjson::SUCCESS) return {ToText(*value, name)};
    std::vector<std::string> result;
    for (const json::element item : array)
      result.push_back(ToText(item, name));
    return result;
  }

  std::nullopt_t Reject(std::string_view name, std::string_view what) {
    if (error_.empty()) error_ = fmt::format("`{}` {}", name, what);
    return std::nullopt;
  }

  [[nodiscard]] Result<void> Check() const {
    if (error_.empty()) return {};
    return LineError(line_, error_);
  }

 private:
  template <typename Int>
  std::optional<Int> ToInteger(json::element value, std::string_view name) {
    if constexpr (std::is_signed_v<Int>) {
      std::int64_t number = 0;
      if (value.get(number) == simdjson::SUCCESS && std::in_range<Int>(number)) {
        return static_cast<Int>(number);
      }
    } else {
      std::uint64_t number = 0;
      if (value.get(number) == simdjson::SUCCESS && std::in_range<Int>(number)) {
        return static_cast<Int>(number);
      }
    }
    return Reject(name, "must be an integer in range");
  }

  std::string ToText(json::element value, std::string_view name) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      // Some recorders number their sessions and requests.
      std::uint64_t number = 0;
      if (value.get(number) == simdjson::SUCCESS) return std::to_string(number);
      Reject(name, "must be a string");
    }
    return std::string(text);
  }

  json::object object_;
  std::size_t line_;
  std::string error_;
};

void ReadLengths(RowReader& reader, const TraceOptions& options, TraceRequest& request) {
  request.blocks = reader.Integers<std::uint64_t>("hash_ids");
  if (request.blocks.empty()) reader.Reject("hash_ids", "must name at least one block");
  const auto input = reader.Integer<std::uint32_t>("input_length", "input_tokens");
  if (input.value_or(0) == 0) reader.Reject("input_length", "must be at least 1");
  const auto output = reader.Integer<std::uint32_t>("output_length", "output_tokens");
  if (!output) reader.Reject("output_length", "is missing");
  request.output_tokens = output.value_or(0);
  request.output_ids = reader.Integers<TokenId>("output_token_ids");
  if (!request.output_ids.empty() && request.output_ids.size() != request.output_tokens) {
    reader.Reject("output_token_ids", "must have output_length entries");
  }
  const std::uint64_t named = std::uint64_t{options.block_tokens} * request.blocks.size();
  request.input_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(input.value_or(0), named));
  request.blocks.resize((request.input_tokens + std::size_t{options.block_tokens} - 1) /
                        options.block_tokens);
}

Result<Row> ReadRow(json::object object, std::size_t line, const TraceOptions& options) {
  Row row;
  row.line = line;
  RowReader reader(object, line);
  ReadLengths(reader, options, row.request);
  row.timestamp = reader.Milliseconds("timestamp", "created_time");
  row.delay = reader.Milliseconds("delay", "delay_ms");
  if (const auto tool = reader.Milliseconds("tool_wait_ms"))
    row.delay = row.delay.value_or(0) + *tool;
  row.wait_for = reader.Texts("wait_for");
  row.request.request_id = reader.Text("request_id");
  row.request.session_id = reader.Text("session_id");
  row.request.priority = reader.Integer<std::int32_t>("priority").value_or(0);
  row.request.strict_priority = reader.Integer<std::uint32_t>("strict_priority").value_or(0);
  row.request.policy_class = reader.Text("policy_class");
  for (const std::string_view name : {"branches", "prefix_reset"}) {
    if (reader.Find(name)) reader.Reject(name, "is not supported");
  }
  KVR_TRY_VOID(reader.Check());
  return row;
}

Result<std::vector<Row>> ReadRows(std::string_view text, const TraceOptions& options) {
  std::vector<Row> rows;
  json::parser parser(options.line_bytes_max);
  std::size_t line = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view row_text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    if (row_text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (row_text.size() > options.line_bytes_max) {
      return LineError(line, fmt::format("longer than {} bytes", options.line_bytes_max));
    }
    json::object object;
    const auto error = parser.parse(row_text.data(), row_text.size()).get(object);
    if (error != simdjson::SUCCESS) {
      return LineError(line, fmt::format("no JSON object: {}", simdjson::error_message(error)));
    }
    KVR_TRY(Row row, ReadRow(object, line, options));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Turns of one session wait for each other.
Result<void> LinkSessions(std::vector<Row>& rows) {
  std::unordered_map<std::string, std::size_t> last_turn;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (row.request.session_id.empty()) continue;
    const auto [entry, first] = last_turn.try_emplace(row.request.session_id, i);
    if (first) continue;
    const Row& before = rows[entry->second];
    if (!row.delay) {
      if (!row.timestamp || !before.timestamp) {
        return LineError(row.line, "a later turn needs `delay` or `timestamp`");
      }
      if (*row.timestamp < *before.timestamp) {
        return LineError(row.line, "a later turn must not be earlier than the one before");
      }
      row.delay = *row.timestamp - *before.timestamp;
    }
    row.request.after.push_back(entry->second);
    entry->second = i;
  }
  return {};
}

Result<void> LinkWaits(std::vector<Row>& rows) {
  std::unordered_map<std::string_view, std::size_t> by_id;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& id = rows[i].request.request_id;
    if (!id.empty() && !by_id.try_emplace(id, i).second) {
      return LineError(rows[i].line, fmt::format("request_id `{}` is there twice", id));
    }
  }
  for (Row& row : rows) {
    for (const std::string& id : row.wait_for) {
      const auto entry = by_id.find(id);
      if (entry == by_id.end()) {
        return LineError(row.line, fmt::format("waits for `{}`, which is not in the trace", id));
      }
      row.request.after.push_back(entry->second);
    }
  }
  return {};
}

Result<void> CheckArrivals(std::vector<Row>& rows) {
  for (Row& row : rows) {
    if (row.request.after.empty()) {
      if (!row.timestamp) return LineError(row.line, "`timestamp` is missing");
      if (row.delay.value_or(0) != 0) {
        return LineError(row.line, "`delay` needs an earlier turn or a `wait_for`");
      }
    }
    row.request.delay_ms = row.delay.value_or(0);
  }
  return {};
}

// By arrival, those that wait after those they wait for. A cycle is an error.
Result<std::vector<TraceRequest>> InOrder(std::vector<Row> rows) {
  std::vector<std::vector<std::size_t>> waiters(rows.size());
  std::vector<std::size_t> open(rows.size());
  using Ready = std::pair<double, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].request.timestamp_ms = rows[i].timestamp.value_or(0);
    open[i] = rows[i].request.after.size();
    for (const std::size_t before : rows[i].request.after)
      waiters[before].push_back(i);
    if (open[i] == 0) ready.emplace(rows[i].request.timestamp_ms, i);
  }
  std::vector<TraceRequest> ordered;
  std::vector<std::size_t> place(rows.size(), rows.size());
  while (!ready.empty()) {
    const std::size_t i = ready.top().second;
    ready.pop();
    place[i] = ordered.size();
    ordered.push_back(std::move(rows[i].request));
    TraceRequest& request = ordered.back();
    for (std::size_t& before : request.after)
      before = place[before];
    for (const std::size_t waiter : waiters[i]) {
      double& timestamp = rows[waiter].request.timestamp_ms;
      timestamp = std::max(timestamp, request.timestamp_ms);
      if (--open[waiter] == 0) ready.emplace(timestamp, waiter);
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (place[i] == rows.size())
      return LineError(rows[i].line, "waits for itself, through a cycle");
  }
  return ordered;
}

void StartAtZero(std::vector<TraceRequest>& requests) {
  if (requests.empty()) return;
  const double start = requests.front().timestamp_ms;
  for (TraceRequest& request : requests)
    request.timestamp_ms -= start;
}

std::uint32_t Scaled(std::uint32_t tokens, double by) {
  return static_cast<std::uint32_t>(
      std::clamp(std::round(tokens * by), 0.0, double{std::numeric_limits<std::uint32_t>::max()}));
}

bool AboveZero(double value) {
  return std::isfinite(value) && value > 0;
}

// Keeps the requests that `keep` accepts; the others are forgotten by those that waited for them.
template <typename Keep>
void Filter(std::vector<TraceRequest>& requests, Keep keep) {
  std::vector<std::optional<std::size_t>> place(requests.size());
  std::vector<TraceRequest> kept;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!keep(i, requests[i])) continue;
    place[i] = kept.size();
    TraceRequest& request = kept.emplace_back(std::move(requests[i]));
    std::vector<std::size_t> after;
    for (const std::size_t before : request.after) {
      if (place[before]) after.push_back(*place[before]);
    }
    request.after = std::move(after);
    if (request.after.empty()) request.delay_ms = 0;
  }
  requests = std::move(kept);
}

}  // namespace

Result<Trace> ParseTrace(std::string_view text, const TraceOptions& options) {
  if (options.block_tokens == 0) {
    return Fail(ErrorCode::kInvalidArgument, "trace: block_tokens must be at least 1");
  }
  KVR_TRY(std::vector<Row> rows, ReadRows(text, options));
  KVR_TRY_VOID(LinkSessions(rows));
  KVR_TRY_VOID(LinkWaits(rows));
  KVR_TRY_VOID(CheckArrivals(rows));
  Trace trace;
  trace.block_tokens = options.block_tokens;
  KVR_TRY(trace.requests, InOrder(std::move(rows)));
  StartAtZero(trace.requests);
  return trace;
}

Result<Trace> ReadTrace(const std::string& path, const TraceOptions& options) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  // Of an empty file nothing could be inserted, which would look like a failure.
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || text.fail()) {
    return Fail(ErrorCode::kIo, fmt::format("cannot read the trace {}", path));
  }
  auto trace = ParseTrace(text.view(), options);
  if (!trace) {
    return Fail(trace.error().code, fmt::format("{}: {}", path, trace.error().message));
  }
  if (trace->requests.empty()) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{} holds no request; a trace has one a line, as "
                                                 "data/README.md shows",
                                                 path));
  }
  return trace;
}

Result<Trace> Transform(Trace trace, const TraceTransform& transform) {
  if (!AboveZero(transform.input_scale) || !AboveZero(transform.output_scale) ||
      !AboveZero(transform.speedup)) {
    return Fail(ErrorCode::kInvalidArgument, "trace: scales and speed-up must be above 0");
  }
  Filter(trace.requests, [&](std::size_t, const TraceRequest& request) {
    return request.timestamp_ms >= transform.from_ms &&
           (!transform.to_ms || request.timestamp_ms < *transform.to_ms);
  });
  if (transform.limit) {
    Filter(trace.requests,
           [&](std::size_t i, const TraceRequest&) { return i < *transform.limit; });
  }
  StartAtZero(trace.requests);

  const std::uint32_t block_tokens =
      std::max(1u, Scaled(trace.block_tokens, transform.input_scale));
  const double input_scale = static_cast<double>(block_tokens) / trace.block_tokens;
  for (TraceRequest& request : trace.requests) {
    request.input_tokens = std::max(1u, Scaled(request.input_tokens, input_scale));
    request.blocks.resize((request.input_tokens + std::size_t{block_tokens} - 1) / block_tokens);
    if (transform.output_scale != 1) {
      request.output_tokens = Scaled(request.output_tokens, transform.output_scale);
      request.output_ids.clear();
    }
    request.timestamp_ms /= transform.speedup;
    request.delay_ms /= transform.speedup;
  }
  trace.block_tokens = block_tokens;
  return trace;
}

CacheBound InfiniteCacheBound(const Trace& trace, std::uint32_t block_size) {
  CacheBound bound;
  // Tokens that were seen of a block, by its chain of ids from the root.
  std::unordered_map<std::uint64_t, std::uint32_t> seen;
  for (const TraceRequest& request : trace.requests) {
    std::uint32_t shared = 0;
    bool unbroken = true;
    std::uint64_t chain = 0;
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      const auto start = static_cast<std::uint32_t>(i * trace.block_tokens);
      const std::uint32_t tokens = std::min(trace.block_tokens, request.input_tokens - start);
      chain = (chain ^ (request.blocks[i] + 1)) * 0x9E3779B97F4A7C15u;
      chain ^= chain >> 29;
      std::uint32_t& known = seen[chain];
      if (unbroken) shared += std::min(tokens, known);
      unbroken = unbroken && known >= trace.block_tokens;
      known = std::max(known, tokens);
    }
    const std::uint32_t usable = std::min(shared, request.input_tokens - 1);
    bound.input_tokens += request.input_tokens;
    bound.cached_tokens += usable - usable % block_size;
  }
  return bound;
}

}  // namespace kvr::sim
