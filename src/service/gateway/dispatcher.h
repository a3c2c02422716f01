// Finds an engine that takes a request, trying further ones before the first byte of an answer.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/catalog.h"
#include "net/http_client.h"
#include "net/task.h"
#include "openai/api_error.h"
#include "routing/router.h"
#include "service/gateway/engine_watch.h"
#include "service/gateway/gateway_metrics.h"
#include "service/gateway/selection_counts.h"

namespace kvr::service {

// An engine's answer whose head is here.
struct Dispatched {
  routing::Decision decision;  // with the booking
  std::unique_ptr<net::HttpStream> stream;
  std::size_t attempts = 1;
  // The first piece of its body, valid until the next Read; none: the answer is an error, whose
  // body has not been read.
  std::optional<std::string_view> first = {};
};

struct DispatchFailure {
  openai::ApiError error;
  std::optional<Outcome> outcome;  // none: the request was cancelled
};

// The 404 for a model that nobody serves in a routing group.
openai::ApiError UnknownModel(std::string_view model, std::string_view routing_group);

// A failure that is not the engine's doing: the client left, or the server stops.
inline bool IsCancel(const Error& error) {
  return error.code == ErrorCode::kCancelled || error.code == ErrorCode::kClientGone;
}

// Thread-safe.
class Dispatcher {
 public:
  // All must outlive the dispatcher.
  Dispatcher(routing::Router& router, const fleet::Catalog& catalog, net::HttpClient& client,
             EngineWatch& watch, std::size_t attempts_max)
      : router_(router),
        catalog_(catalog),
        client_(client),
        watch_(watch),
        attempts_max_(attempts_max) {}

  // Routes and sends `request`, whose rank header is set here, until an engine answers. Another
  // engine is tried when one cannot be reached, breaks off before the first byte of its answer's
  // body, or answers 429, 500, 502 or 503. When nobody is left, the last such answer is returned as
  // it is. An engine that is silent for too long is not replaced: it may be working on the request.
  net::Task<Result<Dispatched, DispatchFailure>> Send(routing::RouteRequest route,
                                                      net::HttpRequest& request,
                                                      RequestRecord& record);

  [[nodiscard]] const SelectionCounts& selections() const { return selections_; }

 private:
  // Ranks this request must not go to: first those that are down, then those that failed it.
  struct Excluded {
    std::vector<Rank> ranks;
    std::size_t down = 0;
  };

  Result<routing::Decision> Choose(routing::RouteRequest route, Excluded& excluded);
  net::Task<Result<std::unique_ptr<net::HttpStream>>> Open(const routing::Decision& decision,
                                                           net::HttpRequest& request);
  void Exclude(Rank rank, bool whole_worker, Excluded& excluded) const;

  routing::Router& router_;
  const fleet::Catalog& catalog_;
  net::HttpClient& client_;
  EngineWatch& watch_;
  const std::size_t attempts_max_;
  SelectionCounts selections_;
};

}  // namespace kvr::service
