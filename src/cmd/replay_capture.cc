#include "cmd/replay_capture.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/result.h"
#include "cmd/server_main.h"
#include "wire/capture_file.h"

namespace kvr::cmd {
namespace {

Result<wire::CaptureReader> OpenCapture(const std::string& path) {
  wire::FilePtr file(std::fopen(path.c_str(), "rb"));
  if (!file) return Fail(ErrorCode::kNotFound, fmt::format("cannot open `{}`", path));
  auto reader = wire::CaptureReader::Open(std::move(file), {});
  if (!reader)
    return Fail(reader.error().code, fmt::format("`{}`: {}", path, reader.error().message));
  return reader;
}

// Frames of a numbered message, as engines send them.
bool IsNumbered(const wire::CaptureMessage& message) {
  return message.frames.size() == 3 && message.frames[1].size() == 8;
}

std::uint64_t SequenceOf(const wire::CaptureMessage& message) {
  std::uint64_t sequence = 0;
  for (const std::byte byte : message.frames[1])
    sequence = sequence << 8 | std::to_integer<std::uint64_t>(byte);
  return sequence;
}

std::string TopicOf(const wire::CaptureMessage& message) {
  const auto topic = message.frames[0];
  return {reinterpret_cast<const char*>(topic.data()), topic.size()};
}

// The topic of each source's first numbered message.
Result<std::vector<std::string>> Topics(const std::string& path) {
  KVR_TRY(auto reader, OpenCapture(path));
  std::vector<std::optional<std::string>> found;
  wire::CaptureMessage message;
  while (reader.Next(message)) {
    found.resize(reader.sources().size());
    auto& topic = found[message.source];
    if (!topic && IsNumbered(message)) topic = TopicOf(message);
  }
  std::vector<std::string> topics;
  for (std::size_t i = 0; i < reader.sources().size(); ++i)
    topics.push_back(i < found.size() ? found[i].value_or("") : "");
  return topics;
}

struct Source {
  std::string topic;
  std::unique_ptr<net::EventPublisher> publisher;

  void Publish(const wire::CaptureMessage& message) {
    if (IsNumbered(message) && TopicOf(message) == topic) {
      publisher->PublishAt(SequenceOf(message), message.frames[2]);
    } else {
      publisher->SendRaw(message.frames);
    }
  }
};

Result<std::vector<Source>> BindAll(const ReplayCaptureArgs& args) {
  KVR_TRY(const auto topics, Topics(args.file));
  if (std::max(args.events_port, args.replay_port) + topics.size() > 65'536) {
    return Fail(ErrorCode::kInvalidArgument,
                "the ports of the last source exceed 65535; choose lower ones, or 0 for free ones");
  }
  const auto endpoint = [&args](std::uint16_t port, std::size_t i) {
    return port == 0 ? fmt::format("tcp://{}:*", args.address)
                     : fmt::format("tcp://{}:{}", args.address, port + i);
  };
  std::vector<Source> sources;
  for (std::size_t i = 0; i < topics.size(); ++i) {
    net::EventPublisher::Options options;
    options.endpoint = endpoint(args.events_port, i);
    options.replay_endpoint.reset();
    if (args.replay) options.replay_endpoint = endpoint(args.replay_port, i);
    options.topic = topics[i];
    options.replay_messages_max = args.replay_messages_max;
    if (args.layout) options.layout = *args.layout;
    KVR_TRY(auto publisher, net::EventPublisher::Create(options));
    AnnounceEndpoint(fmt::format("capture-{}-events", i), publisher->endpoint());
    if (args.replay) {
      AnnounceEndpoint(fmt::format("capture-{}-replay", i), publisher->replay_endpoint());
    }
    sources.push_back({topics[i], std::move(publisher)});
  }
  return sources;
}

Result<void> Play(const ReplayCaptureArgs& args, StopSignals& signals) {
  KVR_TRY(auto sources, BindAll(args));
  KVR_TRY(auto reader, OpenCapture(args.file));
  const SystemClock clock;
  const Nanos start = clock.Now();
  std::optional<Nanos> first;
  std::uint64_t count = 0;
  wire::CaptureMessage message;
  while (reader.Next(message)) {
    if (!first) first = message.received;
    const std::chrono::duration<double, std::nano> after = message.received - *first;
    const auto due = start + Nanos{static_cast<std::int64_t>(after.count() / args.speedup)};
    if (signals.WaitFor(std::max(due - clock.Now(), Nanos{0}))) return {};
    // The file may have grown since the sockets were made.
    if (message.source >= sources.size()) break;
    sources[message.source].Publish(message);
    ++count;
  }
  for (const Source& source : sources)
    source.publisher->Flush();
  std::printf("replayed %llu messages%s\n", static_cast<unsigned long long>(count),
              reader.damage().empty()
                  ? ""
                  : (", up to where the file is damaged: " + reader.damage()).c_str());
  std::fflush(stdout);
  signals.Wait();
  return {};
}

}  // namespace

int ReplayCapture(const ReplayCaptureArgs& args) {
  StopSignals signals;
  const auto played = Play(args, signals);
  if (played) return 0;
  std::fprintf(stderr, "kvroute mock: %s\n", played.error().message.c_str());
  return ExitCode(played.error().code);
}

}  // namespace kvr::cmd
