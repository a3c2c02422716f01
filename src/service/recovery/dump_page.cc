#include "service/recovery/dump_page.h"

#include <functional>
#include <utility>

#include <fmt/format.h>

#include "service/recovery/binary_dump_writer.h"
#include "service/recovery/dump_chunks.h"
#include "service/recovery/peer_dumps.h"

namespace kvr::service {
namespace {

// A streamed dump hands on pieces of about this size.
constexpr std::size_t kDumpPieceBytes = 256u << 10;

}  // namespace

Result<void> CheckQuery(const net::HttpRequest& request) {
  if (net::PercentDecode(request.query())) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the query string has a percent sign without two hex digits after it");
}

PartitionFilter PartitionFilter::Of(const net::HttpRequest& request) {
  return {net::QueryParameter(request.query(), "model_name"),
          net::QueryParameter(request.query(), "routing_group")};
}

bool PartitionFilter::Passes(const Partition& partition) const {
  return (!model_name || partition.model_name == *model_name) &&
         (!routing_group || partition.routing_group == *routing_group);
}

Result<std::shared_ptr<DumpJob>> StartDump(const net::HttpRequest& request,
                                           const index::IndexSet& indexes,
                                           const fleet::Catalog& catalog, Nanos now) {
  KVR_TRY_VOID(CheckQuery(request));
  const PartitionFilter wanted = PartitionFilter::Of(request);
  const std::string format =
      net::QueryParameter(request.query(), "format").value_or(std::string("json"));
  auto partitions = indexes.List();
  std::erase_if(partitions,
                [&wanted](const auto& partition) { return !wanted.Passes(partition->partition); });
  auto snapshot = catalog.snapshot();
  auto job = std::make_shared<DumpJob>();
  if (format == "json") {
    job->media_type = "application/json";
    job->source = std::make_unique<DumpWriter>(DumpWriter::Form::kObject, std::move(partitions),
                                               std::move(snapshot));
  } else if (format == "ndjson") {
    job->media_type = "application/x-ndjson";
    job->source = std::make_unique<DumpWriter>(DumpWriter::Form::kLines, std::move(partitions),
                                               std::move(snapshot));
  } else if (format == "binary") {
    job->media_type = kDumpMediaType;
    job->source =
        std::make_unique<BinaryDumpWriter>(std::move(partitions), std::move(snapshot), now);
  } else {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown format `{}`: json, ndjson or binary", format));
  }
  return job;
}

net::Task<bool> SendDump(net::HttpServer& server, net::HttpExchange& exchange,
                         std::shared_ptr<DumpJob> job, std::string_view instance_name) {
  net::HttpHeaders headers;
  headers.Set("Content-Type", job->media_type);
  headers.Set(kInstanceHeader, instance_name);
  if (!co_await exchange.BeginStream(200, headers)) co_return false;
  while (true) {
    // A piece may wait until the blocks of a rank are copied.
    std::function<void()> next = [job] {
      job->more = job->source->Next(kDumpPieceBytes, job->piece);
    };
    co_await server.Aside(std::move(next));
    if (!job->more) break;
    if (!co_await exchange.Write(job->piece)) co_return false;
  }
  const auto ended = co_await exchange.EndStream();
  co_return ended.has_value();
}

}  // namespace kvr::service
