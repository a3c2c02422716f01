#include "cmd/capture_command.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/result.h"
#include "cmd/parse_words.h"
#include "cmd/server_main.h"
#include "ingest/poll_transport.h"
#include "net/event_endpoint.h"
#include "net/event_socket.h"
#include "net/io_runtime.h"
#include "wire/capture_file.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute capture";
// How late a signal, a deadline and what reached the file are noticed at most.
constexpr Nanos kTick = std::chrono::milliseconds(100);
// How long an endpoint may take to be there before somebody is told.
constexpr Nanos kPatience = std::chrono::seconds(10);
// The exit code when all went well and nothing came.
constexpr int kNothingCaptured = 1;
// Of one endpoint before the next one gets its turn.
constexpr std::size_t kMessagesPerTurn = 256;

struct CaptureArgs {
  std::vector<std::string> endpoints;
  std::string topic;
  std::string out;
  double duration_s = 0;           // 0: until a signal
  std::uint64_t messages_max = 0;  // 0: no limit
  std::uint64_t bytes_max = std::uint64_t{4} << 30;
};

// Records until it is time to end. Everything but asking polled endpoints happens on the calling
// thread.
class Recorder {
 public:
  Recorder(const CaptureArgs& args, wire::CaptureWriter writer)
      : args_(args),
        runtime_({1, "poll"}),
        direct_(net::MakeZmqTransport(net::ZmqOptions{})),
        transport_(ingest::MakePollTransport(*direct_, runtime_, ingest::PollOptions{})),
        poller_(transport_->MakePoller()),
        writer_(std::move(writer)) {}
  ~Recorder() { runtime_.Stop(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Result<void> Subscribe() {
    for (const std::string& endpoint : args_.endpoints) {
      KVR_TRY(const std::uint16_t number, writer_.AddSource(endpoint, args_.topic));
      KVR_TRY(auto socket, poller_->Subscribe(endpoint, args_.topic));
      sources_.push_back({.number = number, .socket = std::move(socket), .note = {}});
    }
    return writer_.Flush();
  }

  Result<void> Run(StopSignals& signals) {
    const Nanos start = clock_.Now();
    while (!signals.WaitFor(Nanos{0}) && !Full() && !Over(start)) {
      poller_->Wait(more_ ? Nanos{0} : kTick);
      more_ = false;
      for (Source& source : sources_) {
        KVR_TRY_VOID(Take(source));
        Warn(source, start);
        TellNote(source);
      }
      if (!more_) KVR_TRY_VOID(writer_.Flush());
    }
    return writer_.Flush();
  }

  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::string Summary() const {
    std::string text =
        fmt::format("captured {} messages, {} bytes in the file", messages_, writer_.bytes());
    if (oversized_ > 0) text += fmt::format("; {} beyond the limits left out", oversized_);
    return text;
  }

 private:
  struct Source {
    std::uint16_t number;
    std::unique_ptr<net::EventSocket> socket;
    bool connected = false;
    bool told = false;  // of a connection, or that there is none
    std::string note;   // told last
  };

  [[nodiscard]] bool Full() const {
    return (args_.messages_max != 0 && messages_ >= args_.messages_max) ||
           writer_.bytes() >= args_.bytes_max;
  }
  [[nodiscard]] bool Over(Nanos start) const {
    return args_.duration_s > 0 &&
           std::chrono::duration<double>(clock_.Now() - start).count() >= args_.duration_s;
  }

  Result<void> Take(Source& source) {
    for (std::size_t i = 0; !Full(); ++i) {
      if (i == kMessagesPerTurn) {
        more_ = true;
        break;
      }
      const bool received = source.socket->Receive(frames_);
      for (net::LinkEvent event{}; source.socket->NextLinkEvent(event);)
        Tell(source, event);
      if (!received) break;
      parts_.clear();
      for (std::size_t k = 0; k < frames_.size(); ++k)
        parts_.push_back(frames_[k]);
      KVR_TRY(const bool fits, writer_.AddMessage(source.number, clock_.WallTime(), parts_));
      ++(fits ? messages_ : oversized_);
    }
    return {};
  }

  // What is published before the first of these lines went nowhere.
  void Tell(Source& source, net::LinkEvent event) {
    const bool connected = event == net::LinkEvent::kConnected;
    const char* const endpoint = args_.endpoints[source.number].c_str();
    if (event == net::LinkEvent::kRefused && !std::exchange(source.told, true)) {
      std::fprintf(stderr,
                   "%s: what answers at %s is no publisher; is it the engine's event port?\n",
                   kName.data(), endpoint);
    }
    if (std::exchange(source.connected, connected) == connected) return;
    source.told = true;
    std::printf("%s %s\n", connected ? "connected" : "disconnected", endpoint);
    std::fflush(stdout);
  }

  // Somebody may wait for messages that cannot come.
  void Warn(Source& source, Nanos start) {
    if (source.told || clock_.Now() - start < kPatience) return;
    source.told = true;
    std::fprintf(
        stderr, "%s: no connection to %s yet; is the engine up, and the port that of its events?\n",
        kName.data(), args_.endpoints[source.number].c_str());
  }

  // Why nothing comes, or what was lost.
  void TellNote(Source& source) {
    const std::string& endpoint = args_.endpoints[source.number];
    std::string note = poller_->NoteOf(endpoint);
    if (note == source.note) return;
    source.note = std::move(note);
    if (source.note.empty()) return;
    std::printf("%s: %s\n", endpoint.c_str(), source.note.c_str());
    std::fflush(stdout);
  }

  const CaptureArgs& args_;
  const SystemClock clock_;
  net::IoRuntime runtime_;  // asks the polled endpoints
  const std::unique_ptr<net::EventTransport> direct_;
  const std::unique_ptr<net::EventTransport> transport_;
  const std::unique_ptr<net::EventPoller> poller_;
  std::vector<Source> sources_;
  wire::CaptureWriter writer_;
  net::Frames frames_;
  std::vector<std::span<const std::byte>> parts_;
  std::uint64_t messages_ = 0;
  std::uint64_t oversized_ = 0;
  bool more_ = false;
};

int Failed(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", kName.data(), error.message.c_str());
  return ExitCode(error.code);
}

int Capture(const CaptureArgs& args) {
  for (const std::string& endpoint : args.endpoints) {
    if (const auto good = net::CheckEventEndpoint(endpoint); !good) {
      return UsageError(kName, good.error().message);
    }
  }
  StopSignals signals;
  auto writer = wire::CaptureWriter::Create(args.out);
  if (!writer) return Failed(writer.error());
  Recorder recorder(args, *std::move(writer));
  if (const auto subscribed = recorder.Subscribe(); !subscribed) return Failed(subscribed.error());
  std::printf("capturing %zu endpoint%s into %s\n", args.endpoints.size(),
              args.endpoints.size() == 1 ? "" : "s", args.out.c_str());
  std::fflush(stdout);
  const auto recorded = recorder.Run(signals);
  std::puts(recorder.Summary().c_str());
  if (!recorded) return Failed(recorded.error());
  return recorder.messages() > 0 ? 0 : kNothingCaptured;
}

int Run(const std::vector<std::string>& argv) {
  CaptureArgs args;
  CLI::App app(
      "Records the event messages of engines with the times at which they came. `kvroute decode` "
      "explains the file, `kvroute mock --replay-capture` publishes it again. It holds the tokens "
      "and cache salts of requests and is readable to its owner only. Exit code 1 when nothing "
      "came.",
      std::string(kName));
  app.add_option(
         "--endpoint", args.endpoints,
         "Event endpoint of an engine's rank, as tcp://host:5557 or trtllm+http://host:8000; may "
         "be given often. Asking for TensorRT-LLM's events drains them: nobody else may read "
         "them meanwhile")
      ->required()
      ->expected(1)
      ->take_all();
  app.add_option("--topic", args.topic, "Only messages whose topic starts so");
  app.add_option("--out", args.out, "The file to make; it must not be there yet")->required();
  app.add_option("--duration", args.duration_s, "Seconds to record; without it until a signal")
      ->check(AboveZero());
  app.add_option("--frames", args.messages_max, "End after so many messages")->check(AboveZero());
  app.add_option("--bytes", args.bytes_max, "End when the file has so many bytes")
      ->check(AboveZero())
      ->capture_default_str();
  if (const auto code = ParseWords(app, argv)) return *code;
  return Capture(args);
}

}  // namespace

const Command kCaptureCommand = {"capture", "record engines' event streams into a file", Run, true};

}  // namespace kvr::cmd
