// The agent's HTTP side.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "net/task.h"
#include "service/agent/published_rank.h"

namespace kvr::service {

//   GET /events?from=&to=&worker_id=&dp_rank=   EventsJsonWriter, in pieces; without `from` as if
//                                               all were gone
//   GET /snapshot?worker_id=&dp_rank=           SnapshotJsonWriter, in pieces
//   GET /ranks                                  what is published where, and how it is known
//   GET /workers/{id}/rejected                  RejectedPage, of a source
//   GET /health, /ready, /metrics
//
// worker_id and dp_rank may be left out where one rank is published. A rank that is not published
// is 404, a parameter that is no number 400.
class AgentService {
 public:
  // What answers of /events and /snapshot under way may hold together: each has a piece of its text
  // and its own copy of events that are kept, up to ring_bytes_max of them. Beyond it they are 503
  // with Retry-After, but for one that is alone.
  static constexpr std::size_t kAnswersBytesMax = std::size_t{64} << 20;

  // All must outlive the service; `catalog` has the sources of `ranks`.
  AgentService(std::vector<PublishedRank*> ranks, const fleet::Catalog& catalog,
               metrics::Registry& registry);
  ~AgentService();
  AgentService(const AgentService&) = delete;
  AgentService& operator=(const AgentService&) = delete;

  // Before the server starts. The service must outlive the server.
  void Mount(net::HttpServer& server);

  // Sends what has waited for `coalesce`, until the task is cancelled.
  net::Task<void> Tick(Nanos coalesce);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
