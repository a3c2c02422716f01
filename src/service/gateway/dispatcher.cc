#include "service/gateway/dispatcher.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "model/ids.h"

namespace kvr::service {
namespace {

constexpr std::string_view kRankHeader = "X-data-parallel-rank";

bool IsWorthAnother(int status) {
  return status == 429 || status == 500 || status == 502 || status == 503;
}

// What a request that no rank could be chosen for is told.
DispatchFailure FromRouting(const Error& error, const routing::RouteRequest& route) {
  DispatchFailure failure{openai::FromError(error), Outcome::kRefused};
  if (error.code == ErrorCode::kNotFound) {
    failure.error = UnknownModel(route.model_name, route.routing_group);
  } else if (error.code == ErrorCode::kOverloaded) {
    failure.outcome = Outcome::kShed;
  } else if (failure.error.status >= 500) {
    failure.outcome = Outcome::kNoEngine;
  }
  return failure;
}

RetryReason WhyRetry(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable:
      return RetryReason::kUnreachable;
    case ErrorCode::kOverloaded:
      return RetryReason::kOutOfResources;
    default:
      return RetryReason::kBroke;
  }
}

// What a request is told whose engines all failed; `error` is the last one's.
DispatchFailure FromEngine(const Error& error) {
  if (IsCancel(error)) return {openai::FromError(error), std::nullopt};
  if (error.code == ErrorCode::kTimeout) {
    return {openai::FromError({ErrorCode::kTimeout, "the engine did not answer in time"}),
            Outcome::kEngineTimeout};
  }
  if (error.code == ErrorCode::kOverloaded) {
    return {openai::FromStatus(503, "out_of_resources",
                               "the gateway is out of file descriptors, memory or ports for a "
                               "connection to an engine, retry later"),
            Outcome::kShed};
  }
  if (error.code == ErrorCode::kUnavailable) {
    return {openai::FromError({ErrorCode::kUnavailable, "no engine can be reached"}),
            Outcome::kNoEngine};
  }
  return {openai::FromError({ErrorCode::kUpstream, "the engine gave no valid answer"}),
          Outcome::kEngineFailed};
}

}  // namespace

openai::ApiError UnknownModel(std::string_view model, std::string_view routing_group) {
  return {
      404, "invalid_request_error", "model_not_found",
      fmt::format("no worker serves the model `{}` in the routing group `{}`; GET /workers lists "
                  "the models and groups that are served",
                  model, routing_group),
      "model"};
}

net::Task<Result<Dispatched, DispatchFailure>> Dispatcher::Send(routing::RouteRequest route,
                                                                net::HttpRequest& request,
                                                                RequestRecord& record) {
  using Answer = Result<Dispatched, DispatchFailure>;
  Excluded excluded;
  excluded.ranks = watch_.DownRanks(*catalog_.snapshot());
  excluded.down = excluded.ranks.size();
  std::optional<Dispatched> refused;  // the last answer that was worth another try
  std::optional<Error> failed;
  std::optional<RetryReason> why;
  for (std::size_t attempt = 1; attempt <= attempts_max_; ++attempt) {
    auto decision = Choose(route, excluded);
    record.EndStage(Stage::kRoute);
    if (!decision) {
      if (refused || failed) break;
      co_return tl::unexpected<DispatchFailure>(FromRouting(decision.error(), route));
    }
    if (why) record.Retry(*why);
    const Rank rank = decision->rank;
    selections_.Count(rank);
    auto stream = co_await Open(*decision, request);
    record.EndStage(Stage::kConnect);
    if (!stream) {
      failed = std::move(stream).error();
      if (failed->code == ErrorCode::kTimeout || IsCancel(*failed)) break;
      if (failed->code == ErrorCode::kUnavailable) watch_.Failed(rank.worker, failed->message);
      why = WhyRetry(failed->code);
      Exclude(rank, true, excluded);
      continue;
    }
    watch_.Answered(rank.worker);
    const int status = (*stream)->status();
    Dispatched answer{*std::move(decision), *std::move(stream), attempt, {}};
    if (status >= 400 && !IsWorthAnother(status)) co_return Answer(std::move(answer));
    if (status < 400) {
      const auto first = co_await answer.stream->Read();
      if (first && !first->empty()) {
        answer.first = *first;
        co_return Answer(std::move(answer));
      }
      failed = first ? Error{ErrorCode::kUpstream, "the answer has no body"} : first.error();
      if (failed->code == ErrorCode::kTimeout || IsCancel(*failed)) break;
      why = RetryReason::kBroke;
      Exclude(rank, true, excluded);
      continue;
    }
    // The engine does not work on it, so it costs nothing.
    answer.decision.booking.Free();
    refused = std::move(answer);
    why = RetryReason::kStatus;
    Exclude(rank, status != 429, excluded);
  }
  if (refused && !(failed && IsCancel(*failed))) co_return Answer(*std::move(refused));
  co_return tl::unexpected<DispatchFailure>(FromEngine(*failed));
}

Result<routing::Decision> Dispatcher::Choose(routing::RouteRequest route, Excluded& excluded) {
  route.constraints.excluded = excluded.ranks;
  auto decision = router_.Route(route);
  if (decision || decision.error().code != ErrorCode::kUnavailable || excluded.down == 0) {
    return decision;
  }
  // Better an engine that could not be reached before than none.
  excluded.ranks.erase(excluded.ranks.begin(),
                       excluded.ranks.begin() + static_cast<std::ptrdiff_t>(excluded.down));
  excluded.down = 0;
  route.constraints.excluded = excluded.ranks;
  return router_.Route(route);
}

net::Task<Result<std::unique_ptr<net::HttpStream>>> Dispatcher::Open(
    const routing::Decision& decision, net::HttpRequest& request) {
  using Answer = Result<std::unique_ptr<net::HttpStream>>;
  const auto url = net::ParseUrl(decision.endpoint);
  if (!url) co_return Answer(Fail(ErrorCode::kUnavailable, url.error().message));
  request.headers.Remove(kRankHeader);
  if (decision.send_dp_rank) {
    request.headers.Add(kRankHeader, std::to_string(decision.rank.dp_rank));
  }
  auto stream = co_await client_.Open(*url, request);
  co_return stream;
}

void Dispatcher::Exclude(Rank rank, bool whole_worker, Excluded& excluded) const {
  if (!whole_worker) {
    excluded.ranks.push_back(rank);
    return;
  }
  const auto ranks = RanksOf(*catalog_.snapshot(), rank.worker);
  excluded.ranks.insert(excluded.ranks.end(), ranks.begin(), ranks.end());
}

}  // namespace kvr::service
