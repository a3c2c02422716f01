// GET /dump, wherever it is served.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "model/ids.h"
#include "net/http.h"
#include "net/http_server.h"
#include "net/task.h"
#include "service/recovery/dump_writer.h"

namespace kvr::service {

// A parameter that cannot be decoded would read like one that is absent: kInvalidArgument.
Result<void> CheckQuery(const net::HttpRequest& request);

// ?model_name=&routing_group=
struct PartitionFilter {
  static PartitionFilter Of(const net::HttpRequest& request);
  [[nodiscard]] bool Passes(const Partition& partition) const;

  std::optional<std::string> model_name;
  std::optional<std::string> routing_group;
};

// A dump under way, shared by the handler and the work it leaves to the thread aside.
struct DumpJob {
  std::unique_ptr<DumpSource> source;
  std::string_view media_type;
  std::string piece;
  bool more = true;
};

// As one object in the reference's shape, with ?format=ndjson as lines, or with ?format=binary. Of
// the partitions that the query chooses. `now` is the wall time. kInvalidArgument.
Result<std::shared_ptr<DumpJob>> StartDump(const net::HttpRequest& request,
                                           const index::IndexSet& indexes,
                                           const fleet::Catalog& catalog, Nanos now);

// Answers with it, a piece at a time, made beside the I/O threads. True when all was sent.
net::Task<bool> SendDump(net::HttpServer& server, net::HttpExchange& exchange,
                         std::shared_ptr<DumpJob> job, std::string_view instance_name);

}  // namespace kvr::service
