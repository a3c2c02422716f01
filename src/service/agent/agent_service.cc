#include "service/agent/agent_service.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/result.h"
#include "base/text.h"
#include "model/rank_state.h"
#include "net/io_runtime.h"
#include "service/agent/agent_metrics.h"
#include "service/agent/answer_budget.h"
#include "service/agent/rank_answers.h"
#include "service/agent/rank_standing.h"
#include "service/agent/recovery_answers.h"
#include "service/common_pages.h"
#include "service/optional_field.h"
#include "service/rejected_page.h"

namespace kvr::service {
namespace {

using net::HttpExchange;
using net::HttpRequest;
using net::HttpResponse;
using net::Task;

constexpr std::size_t kPieceBytes = 256u << 10;

// None when it is not given.
template <typename Number>
Result<std::optional<Number>> NumberOf(const HttpRequest& request, std::string_view name) {
  const auto text = net::QueryParameter(request.query(), name);
  if (!text) return std::optional<Number>();
  const auto number = ParseNumber<Number>(*text);
  if (!number) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} must be a whole number, not `{}`", name, *text));
  }
  return std::optional<Number>(*number);
}

void WriteRank(const PublishedRank& rank, const fleet::Snapshot& fleet, JsonWriter& json) {
  const PublishedRank::Stats stats = rank.stats();
  json.BeginObject();
  json.Field("worker_id", Raw(rank.rank().worker));
  json.Field("dp_rank", rank.rank().dp_rank);
  json.Field("publisher_id", rank.publisher_id());
  json.Field("endpoint", rank.endpoint());
  json.Key("replay_endpoint");
  if (rank.replay_endpoint().empty()) {
    json.Null();
  } else {
    json.Value(rank.replay_endpoint());
  }
  json.Field("blocks", stats.publisher.blocks);
  json.Field("last_event_id", stats.publisher.last_event_id);
  json.Field("refused", rank.refuses());
  json.Key("sources");
  json.BeginArray();
  for (const auto& worker : fleet.workers) {
    const fleet::RankEntry* const source = worker->FindRank(rank.rank().dp_rank);
    if (source == nullptr) continue;
    const fleet::RankHealth::Status status = source->health->status();
    json.BeginObject();
    json.Field("worker_id", Raw(worker->spec.id));
    json.Field("state", RankStateName(status.state));
    json.Field("reason", StateReasonName(status.reason));
    json.Field("detail", source->health->detail());
    WriteOptional("watermark", source->health->watermark(), json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

}  // namespace

struct AgentService::Impl {
  Impl(std::vector<PublishedRank*> published, const fleet::Catalog& known,
       metrics::Registry& counted)
      : ranks(std::move(published)),
        catalog(known),
        registry(counted),
        collector(registry.AddCollector(
            [this](metrics::SampleSink& sink) { CollectPublished(ranks, sink); })) {
    for (PublishedRank* const rank : ranks) {
      answers.push_back(std::make_unique<RankAnswers>(*rank, catalog));
      rank->SetAnswers(answers.back().get());
    }
  }
  ~Impl() {
    for (PublishedRank* const rank : ranks)
      rank->SetAnswers(nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // The rank that the request is about.
  Result<PublishedRank*> RankOf(const HttpRequest& request) const {
    KVR_TRY(const auto worker, NumberOf<std::uint64_t>(request, "worker_id"));
    KVR_TRY(const auto dp_rank, NumberOf<std::uint32_t>(request, "dp_rank"));
    PublishedRank* found = nullptr;
    for (PublishedRank* const rank : ranks) {
      if (worker && Raw(rank->rank().worker) != *worker) continue;
      if (dp_rank && rank->rank().dp_rank != *dp_rank) continue;
      if (found != nullptr) {
        return Fail(ErrorCode::kInvalidArgument,
                    "several ranks are published here; say which with worker_id and dp_rank");
      }
      found = rank;
    }
    if (found == nullptr) {
      return Fail(ErrorCode::kNotFound, "no such rank is published here; /ranks lists them");
    }
    return found;
  }

  HttpResponse RanksPage() const {
    const auto fleet = catalog.snapshot();
    std::string body;
    JsonWriter json(body);
    json.BeginArray();
    for (const PublishedRank* const rank : ranks)
      WriteRank(*rank, *fleet, json);
    json.EndArray();
    return net::JsonResponse(200, std::move(body));
  }

  HttpResponse Ready() const {
    const auto fleet = catalog.snapshot();
    std::vector<std::string> reasons;
    for (const auto& worker : fleet->workers) {
      for (const fleet::RankEntry& entry : worker->ranks) {
        const auto status = entry.health->status();
        if (status.state == RankState::kExact || status.state == RankState::kDegraded) continue;
        reasons.push_back(fmt::format("worker {} rank {} is {} ({})", Raw(entry.rank.worker),
                                      entry.rank.dp_rank, RankStateName(status.state),
                                      StateReasonName(status.reason)));
      }
    }
    for (const PublishedRank* const rank : ranks) {
      if (!rank->refuses()) continue;
      reasons.push_back(
          fmt::format("rank {} has side groups and is not published", rank->rank().dp_rank));
    }
    return ReadyPage(fleet->workers.size(), reasons);
  }

  // An answer that is told in pieces, with what it holds.
  struct Told {
    std::unique_ptr<PieceWriter> writer;
    AnswerBudget::Share share;
  };
  using Teller = std::function<Result<Told>(const HttpRequest&)>;

  // `copied`: bytes that the answer has for itself beside its piece.
  Result<Told> Tell(std::unique_ptr<PieceWriter> writer, std::size_t copied) const {
    auto share = budget.Take(copied + kPieceBytes);
    if (!share) {
      return Fail(ErrorCode::kOverloaded,
                  "answers that others are slow to take hold all memory there is for them; ask "
                  "again");
    }
    return Told{std::move(writer), *std::move(share)};
  }

  Result<Told> Events(const HttpRequest& request) const {
    KVR_TRY(PublishedRank* const rank, RankOf(request));
    KVR_TRY(const auto from, NumberOf<std::uint64_t>(request, "from"));
    KVR_TRY(const auto to, NumberOf<std::uint64_t>(request, "to"));
    KVR_TRY(const auto publisher, NumberOf<std::uint64_t>(request, "publisher_id"));
    // Numbers of another life of the agent say nothing here.
    const bool ours = !publisher || *publisher == rank->publisher_id();
    auto answer = rank->Query(ours ? from : std::nullopt, ours ? to : std::nullopt);
    const std::size_t copied = answer.events.size();
    return Tell(
        std::make_unique<EventsJsonWriter>(std::move(answer), rank->publisher_id(), from, to),
        copied);
  }

  Result<Told> Snapshot(const HttpRequest& request) const {
    KVR_TRY(PublishedRank* const rank, RankOf(request));
    KVR_TRY(auto taken, TakeSnapshot(*rank, catalog));
    const std::size_t copied = taken.answer.tail.size();
    return Tell(std::make_unique<SnapshotJsonWriter>(std::move(taken.answer), taken.head), copied);
  }

  // Shared by the handler and the work it leaves to the thread aside.
  struct Job {
    Teller tell;
    HttpRequest request;
    std::optional<Told> told;
    std::optional<Error> refusal;
    std::string piece;
    bool more = true;
  };

  static Task<void> Stream(net::HttpServer& server, HttpExchange& exchange, Teller tell) {
    const auto job = std::make_shared<Job>();
    job->tell = std::move(tell);
    job->request = std::move(exchange.request());
    std::function<void()> begin = [job] {
      auto told = job->tell(job->request);
      if (told) {
        job->told.emplace(*std::move(told));
      } else {
        job->refusal = told.error();
      }
    };
    co_await server.Aside(std::move(begin));
    if (job->refusal) {
      HttpResponse refusal = net::JsonError(*job->refusal);
      if (job->refusal->code == ErrorCode::kOverloaded) {
        refusal.status = 503;  // of our own making, not of the client's many requests
        refusal.headers.Set("Retry-After", "1");
      }
      static_cast<void>(co_await exchange.Respond(std::move(refusal)));
      co_return;
    }
    net::HttpHeaders headers;
    headers.Set("Content-Type", "application/json");
    if (!co_await exchange.BeginStream(200, headers)) co_return;
    for (;;) {
      std::function<void()> next = [job] {
        job->more = job->told->writer->Next(kPieceBytes, job->piece);
      };
      co_await server.Aside(std::move(next));
      if (!job->more) break;
      if (!co_await exchange.Write(job->piece)) co_return;
    }
    static_cast<void>(co_await exchange.EndStream());
  }

  const std::vector<PublishedRank*> ranks;
  const fleet::Catalog& catalog;
  metrics::Registry& registry;
  mutable AnswerBudget budget{kAnswersBytesMax};
  std::vector<std::unique_ptr<RankAnswers>> answers;  // of the ranks
  metrics::Registry::Collector collector;             // last: it reads the others
};

AgentService::AgentService(std::vector<PublishedRank*> ranks, const fleet::Catalog& catalog,
                           metrics::Registry& registry)
    : impl_(std::make_unique<Impl>(std::move(ranks), catalog, registry)) {}

AgentService::~AgentService() = default;

void AgentService::Mount(net::HttpServer& server) {
  const Impl* const impl = impl_.get();
  server.Route("GET", "/events", [impl, &server](HttpExchange& exchange) {
    return Impl::Stream(server, exchange,
                        [impl](const HttpRequest& request) { return impl->Events(request); });
  });
  server.Route("GET", "/snapshot", [impl, &server](HttpExchange& exchange) {
    return Impl::Stream(server, exchange,
                        [impl](const HttpRequest& request) { return impl->Snapshot(request); });
  });
  server.RoutePage("/workers/{id}/rejected", [impl](const HttpRequest& request) {
    return RejectedPage(impl->catalog, request);
  });
  server.RoutePage("/ranks", [impl](const HttpRequest&) { return impl->RanksPage(); });
  server.RoutePage("/ready", [impl](const HttpRequest&) { return impl->Ready(); });
  server.RoutePage("/metrics", [impl](const HttpRequest&) { return MetricsPage(impl->registry); });
  server.Route("GET", "/health", [](HttpExchange& exchange) -> Task<void> {
    HttpResponse response = net::JsonResponse(200, R"({"status":"ok"})");
    static_cast<void>(co_await exchange.Respond(std::move(response)));
  });
}

Task<void> AgentService::Tick(Nanos coalesce) {
  for (Nanos next = coalesce;;) {
    const bool slept = co_await net::Sleep(next);
    if (!slept) co_return;
    next = coalesce;
    for (PublishedRank* const rank : impl_->ranks)
      next = std::min(next, rank->OnTick(coalesce));
  }
}

}  // namespace kvr::service
