#include "service/indexer/peer_recovery.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/io_runtime.h"
#include "net/task.h"
#include "service/indexer/binary_dump_reader.h"
#include "service/indexer/dump_chunks.h"
#include "service/media_type.h"

namespace kvr::service {
namespace {

using net::Task;

enum class Outcome : std::uint8_t { kRecovered, kEmpty, kSelf, kFailed };
constexpr std::array<std::string_view, 4> kOutcomeNames = {"recovered", "empty", "self", "failed"};

net::IoRuntime::Options OneThread() {
  net::IoRuntime::Options options;
  options.thread_name = "peers";
  return options;
}

net::HttpClient::Options ClientOptions(const PeerRecovery::Options& options) {
  net::HttpClient::Options client;
  client.connect_timeout = options.connect_timeout;
  client.read_timeout = options.idle_timeout;
  return client;
}

// Whichever reader the answer needs.
class AnyDumpReader {
 public:
  AnyDumpReader(const net::HttpStream& answer, const DumpReader::Options& options,
                DumpReader::Sink& sink) {
    const auto type = answer.headers().Find("Content-Type");
    if (type && IsMediaType(*type, kDumpMediaType)) {
      reader_.emplace<BinaryDumpReader>(options, sink);
    } else {
      const bool lines = type && IsMediaType(*type, "application/x-ndjson");
      reader_.emplace<DumpReader>(
          options, lines ? DumpReader::Form::kLines : DumpReader::Form::kObject, sink);
    }
  }

  Result<void> Put(std::string_view bytes) {
    if (auto* const binary = std::get_if<BinaryDumpReader>(&reader_)) return binary->Put(bytes);
    return std::get<DumpReader>(reader_).Put(bytes);
  }
  Result<void> Finish() {
    if (auto* const binary = std::get_if<BinaryDumpReader>(&reader_)) return binary->Finish();
    return std::get<DumpReader>(reader_).Finish();
  }

 private:
  std::variant<std::monostate, DumpReader, BinaryDumpReader> reader_;
};

}  // namespace

std::string MakeInstanceName() {
  std::random_device random;
  std::string name;
  for (int i = 0; i < 4; ++i)
    name += fmt::format("{:08x}", random());
  return name;
}

Result<void> PeerRecovery::Options::Validate() const {
  for (const std::string& peer : peers)
    KVR_TRY_VOID(net::ParseUrl(peer));
  if (connect_timeout <= Millis{0} || idle_timeout <= Millis{0} || retry_first <= Millis{0} ||
      retry_max < retry_first) {
    return Fail(ErrorCode::kInvalidArgument,
                "the times of peer recovery must be positive, retry_max the longest pause");
  }
  return {};
}

struct PeerRecovery::Impl {
  Impl(SourceRegistry& registry_of_sources, metrics::Registry& registry, const Clock& time,
       std::string name, const Options& wanted)
      : sources(registry_of_sources),
        clock(time),
        self(std::move(name)),
        options(wanted),
        begun(clock.Now()),
        runtime(OneThread()),
        client(runtime, ClientOptions(options)),
        bytes(registry.AddCounter("kvr_indexer_peer_bytes_total", "Bytes of peers' dumps read")),
        long_events(registry.AddCounter("kvr_indexer_peer_events_rejected_total",
                                        "Events of peers' dumps that were not used, by reason",
                                        {{"reason", "too_large"}})) {
    for (std::size_t i = 0; i < dumps.size(); ++i) {
      dumps[i] = &registry.AddCounter("kvr_indexer_peer_dumps_total", "Dumps asked for, by outcome",
                                      {{"outcome", std::string(kOutcomeNames[i])}});
    }
    for (std::size_t i = 0; i < rejects.size(); ++i) {
      rejects[i] = &registry.AddCounter("kvr_indexer_peer_partitions_rejected_total",
                                        "Partitions of peers' dumps that were not used, by reason",
                                        {{"reason", std::string(kDumpRejectNames[i])}});
    }
  }

  Task<void> Run() {
    Millis pause = options.retry_first;
    while (!co_await AskAll()) {
      Release();
      KVR_WARN("no peer could be asked for its blocks; asking again in {} ms", pause.count());
      const bool slept = co_await net::Sleep(pause);
      if (!slept) co_return;
      DropUnclaimed();  // of dumps that broke off
      pause = std::min(pause * 2, options.retry_max);
    }
    Release();
    done.store(true, std::memory_order_relaxed);
    while (sources.recovery_stats().waiting_ranks > 0) {
      const bool slept = co_await net::Sleep(kUnclaimedLook);
      if (!slept) co_return;
      DropUnclaimed();
    }
  }

  void DropUnclaimed() {
    const std::size_t dropped = sources.DropUnclaimed();
    if (dropped == 0) return;
    KVR_WARN("blocks of {} ranks came from peers and are dropped: nobody registered them", dropped);
  }

  // One round. True when there is nobody left worth asking.
  Task<bool> AskAll() {
    bool failed = false;
    bool answered = false;
    for (const std::string& peer : options.peers) {
      const Outcome outcome = co_await Ask(peer);
      dumps[static_cast<std::size_t>(outcome)]->Add();
      if (outcome == Outcome::kRecovered) co_return true;
      answered |= outcome == Outcome::kEmpty;
      failed |= outcome == Outcome::kFailed;
      ReleaseWhenDue();
    }
    co_return answered || !failed;
  }

  // Hands a dump's partitions to the sources.
  struct Collector final : DumpReader::Sink {
    Collector(Impl& impl, const std::string& url) : owner(impl), peer(url) {}

    void Take(RecoveredPartition partition) override {
      const std::string name =
          fmt::format("{}:{}", partition.partition.model_name, partition.partition.routing_group);
      DropHybridRanks(name, partition);
      const std::size_t its_ranks = partition.ranks.size();
      const std::size_t its_blocks = partition.blocks;
      const auto followed = owner.sources.Recover(std::move(partition));
      if (!followed) {
        Reject(name,
               followed.error().code == ErrorCode::kTooLarge ? DumpReject::kTooLarge
                                                             : DumpReject::kBlockSize,
               followed.error().message);
        return;
      }
      if (*followed > 0) {
        KVR_INFO("peer {}: {} ranks of {} are passed over, they have events of their own", peer,
                 *followed, name);
      }
      ++partitions;
      ranks += its_ranks - *followed;
      blocks += its_blocks;
    }

    // An engine names its cache groups by numbers that only its stream explains. Without them a
    // removal could be missed, and a prefix promise more than can be reused.
    void DropHybridRanks(std::string_view name, RecoveredPartition& partition) const {
      const std::size_t dropped = std::erase_if(partition.ranks, [&partition](const auto& entry) {
        if (entry.second.sides.empty()) return false;
        partition.blocks -= BlocksOf(entry.second);
        return true;
      });
      if (dropped > 0) {
        KVR_INFO("peer {}: {} ranks of {} are of hybrid models and begin without it", peer, dropped,
                 name);
      }
    }

    void Reject(std::string_view name, DumpReject reason, std::string_view detail) override {
      owner.rejects[static_cast<std::size_t>(reason)]->Add();
      KVR_WARN("peer {}: partition {} is not used ({}): {}", peer, name, DumpRejectName(reason),
               detail);
    }

    void PassOver(std::string_view name, std::size_t events) override {
      owner.long_events.Add(events);
      KVR_WARN(
          "peer {}: {} events of partition {} are too long and not used; no rank of it is exact",
          peer, events, name);
    }

    Impl& owner;
    const std::string& peer;
    std::size_t partitions = 0;
    std::size_t ranks = 0;
    std::size_t blocks = 0;
  };

  Task<Outcome> Ask(const std::string& peer) {
    KVR_INFO("asking peer {} for its blocks", peer);
    Collector collector(*this, peer);
    bool own = false;
    const auto read = co_await Read(peer, collector, own);
    if (own) {
      KVR_INFO("peer {} is this indexer itself", peer);
      co_return Outcome::kSelf;
    }
    if (!read) {
      KVR_WARN("peer {} failed: {}", peer, read.error().message);
      co_return Outcome::kFailed;
    }
    KVR_INFO("peer {}: {} blocks of {} ranks in {} partitions", peer, collector.blocks,
             collector.ranks, collector.partitions);
    co_return collector.partitions > 0 ? Outcome::kRecovered : Outcome::kEmpty;
  }

  Task<Result<void>> Read(const std::string& peer, Collector& collector, bool& own) {
    const auto url = net::ParseUrl(peer);
    KVR_CHECK(url);  // by Validate
    net::HttpRequest request;
    request.target = "/dump?format=binary";
    request.headers.Add("Accept",
                        fmt::format("{}, application/x-ndjson, application/json", kDumpMediaType));
    auto opened = co_await client.Open(*url, request);
    if (opened && (*opened)->status() == 400) {  // by one who does not know the binary form
      opened->reset();
      request.target = "/dump?format=ndjson";
      opened = co_await client.Open(*url, request);
    }
    if (!opened) co_return tl::make_unexpected(std::move(opened).error());
    net::HttpStream& answer = **opened;
    if (answer.headers().Find(kInstanceHeader) == self) {
      own = true;
      co_return Result<void>();
    }
    if (answer.status() != 200) {
      co_return Fail(ErrorCode::kUpstream,
                     fmt::format("its answer has status {}", answer.status()));
    }
    AnyDumpReader reader(answer, options.reader, collector);
    while (true) {
      const auto piece = co_await answer.Read();
      if (!piece) co_return tl::make_unexpected(piece.error());
      if (piece->empty()) break;
      bytes.Add(piece->size());
      if (auto put = reader.Put(*piece); !put)
        co_return tl::make_unexpected(std::move(put).error());
      ReleaseWhenDue();
    }
    co_return reader.Finish();
  }

  void ReleaseWhenDue() {
    if (clock.Now() - begun >= options.hold_max) Release();
  }

  void Release() {
    if (!holding.load(std::memory_order_relaxed)) return;
    sources.Release();
    // Relaxed: only what /ready says depends on it.
    holding.store(false, std::memory_order_relaxed);
  }

  // How often it is looked whether the grace of unregistered ranks is over.
  static constexpr Nanos kUnclaimedLook = std::chrono::seconds(1);

  SourceRegistry& sources;
  const Clock& clock;
  const std::string self;
  const Options options;
  const Nanos begun;
  std::atomic<bool> holding{true};
  std::atomic<bool> done{false};
  net::IoRuntime runtime;
  net::HttpClient client;
  metrics::Counter& bytes;
  metrics::Counter& long_events;
  std::array<metrics::Counter*, kOutcomeNames.size()> dumps{};
  std::array<metrics::Counter*, kDumpRejectNames.size()> rejects{};
};

PeerRecovery::PeerRecovery(SourceRegistry& sources, metrics::Registry& registry, const Clock& clock,
                           std::string instance_name, const Options& options)
    : impl_(std::make_unique<Impl>(sources, registry, clock, std::move(instance_name), options)) {
  KVR_CHECK(options.Validate());
  sources.Hold();
}

PeerRecovery::~PeerRecovery() {
  impl_->runtime.Stop();
}

void PeerRecovery::Start() {
  Impl* const impl = impl_.get();
  impl->runtime.Spawn([impl] { return impl->Run(); });
}

std::string PeerRecovery::not_ready_reason() const {
  if (impl_->done.load(std::memory_order_relaxed)) return {};
  if (impl_->holding.load(std::memory_order_relaxed)) {
    return fmt::format("recovering from peers: {} bytes read", impl_->bytes.value());
  }
  if (impl_->clock.Now() - impl_->begun >= impl_->options.ready_wait) return {};
  return "recovering from peers: none could be asked so far";
}

}  // namespace kvr::service
