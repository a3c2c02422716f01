#include "service/recovery/peer_dumps.h"

#include <chrono>
#include <optional>
#include <random>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "net/http.h"
#include "service/media_type.h"
#include "service/recovery/binary_dump_reader.h"
#include "service/recovery/dump_chunks.h"

namespace kvr::service {
namespace {

net::HttpClient::Options ClientOptions(const PeerDumps::Options& options) {
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

Result<void> PeerDumps::Options::Validate() const {
  for (const std::string& url : urls)
    KVR_TRY_VOID(net::ParseUrl(url));
  if (connect_timeout > Millis{0} && idle_timeout > Millis{0} && dump_max > Millis{0}) return {};
  return Fail(ErrorCode::kInvalidArgument, "the time-outs of peers must be positive");
}

PeerDumps::PeerDumps(net::IoRuntime& runtime, StreamStart& streams, RecoveryCounts& counts,
                     const Clock& clock, const Options& options)
    : streams_(streams),
      counts_(counts),
      clock_(clock),
      options_(options),
      client_(runtime, ClientOptions(options)) {}

net::Task<DumpOutcome> PeerDumps::AskAll() {
  bool failed = false;
  bool answered = false;
  for (const std::string& peer : options_.urls) {
    const std::optional<DumpOutcome> outcome = co_await Ask(peer);
    if (!outcome) co_return DumpOutcome::kFailed;
    counts_.Count(*outcome);
    if (*outcome == DumpOutcome::kRecovered) co_return *outcome;
    answered |= *outcome == DumpOutcome::kEmpty;
    failed |= *outcome == DumpOutcome::kFailed;
  }
  co_return answered || !failed ? DumpOutcome::kEmpty : DumpOutcome::kFailed;
}

net::Task<std::optional<DumpOutcome>> PeerDumps::Ask(const std::string& peer) {
  KVR_INFO("asking peer {} for its blocks", peer);
  RecoveredTaker taker(streams_, counts_, "peer " + peer);
  bool own = false;
  const auto read = co_await Read(peer, taker, own);
  if (own) {
    KVR_INFO("peer {} is this process itself", peer);
    co_return DumpOutcome::kSelf;
  }
  if (!read && read.error().code == ErrorCode::kCancelled) co_return std::nullopt;
  if (!read) {
    KVR_WARN("peer {} failed: {}", peer, read.error().message);
    co_return DumpOutcome::kFailed;
  }
  KVR_INFO("peer {}: {} blocks of {} ranks in {} partitions", peer, taker.blocks(), taker.ranks(),
           taker.partitions());
  co_return taker.partitions() > 0 ? DumpOutcome::kRecovered : DumpOutcome::kEmpty;
}

net::Task<Result<void>> PeerDumps::Read(const std::string& peer, RecoveredTaker& taker, bool& own) {
  const auto url = net::ParseUrl(peer);
  KVR_CHECK(url);  // by Validate
  net::HttpRequest request;
  request.target = "/dump?format=binary";
  request.headers.Add("Accept",
                      fmt::format("{}, application/x-ndjson, application/json", kDumpMediaType));
  auto opened = co_await client_.Open(*url, request);
  if (opened && (*opened)->status() == 400) {  // by one who does not know the binary form
    opened->reset();
    request.target = "/dump?format=ndjson";
    opened = co_await client_.Open(*url, request);
  }
  if (!opened) co_return tl::make_unexpected(std::move(opened).error());
  net::HttpStream& answer = **opened;
  if (answer.headers().Find(kInstanceHeader) == options_.self) {
    own = true;
    co_return Result<void>();
  }
  if (answer.status() != 200) {
    co_return Fail(ErrorCode::kUpstream, fmt::format("its answer has status {}", answer.status()));
  }
  AnyDumpReader reader(answer, options_.reader, taker);
  const Nanos asked = clock_.Now();
  while (true) {
    const auto piece = co_await answer.Read();
    if (!piece) co_return tl::make_unexpected(piece.error());
    if (piece->empty()) break;
    counts_.bytes.Add(piece->size());
    if (auto put = reader.Put(*piece); !put) {
      co_return tl::make_unexpected(std::move(put).error());
    }
    if (clock_.Now() - asked >= options_.dump_max) {
      co_return Fail(
          ErrorCode::kTimeout,
          fmt::format("its dump has not ended after {} s",
                      std::chrono::floor<std::chrono::seconds>(options_.dump_max).count()));
    }
  }
  co_return reader.Finish();
}

}  // namespace kvr::service
