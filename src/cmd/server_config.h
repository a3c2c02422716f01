// What servers are told alike: one name, one range, one default each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "index/options.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "net/event_socket.h"
#include "net/http_server.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct ServerConfig {
  // `name` labels the HTTP metrics.
  ServerConfig(std::string name, std::uint16_t port);

  net::HttpServer::Options http;
  std::size_t io_threads = 2;
  Millis drain{30'000};  // for requests under way at SIGTERM
  ingest::Ingest::Options ingest;
  net::ZmqOptions zmq;
  ingest::PollOptions poll;
  index::IndexOptions index;  // with a hash seed of its own, so that nobody can aim at the tables
  std::size_t index_shards = 1;  // see index::MakeIndex
  LogLevel log_level = LogLevel::kInfo;

  // The sections server, ingest, identity, index and log.
  void Bind(config::OptionTable& table);
  // The same without index, for a server that has none.
  void BindWithoutIndex(config::OptionTable& table);

  // kInvalidArgument.
  [[nodiscard]] Result<void> Validate() const;
};

// Of the operating system, for what nobody outside may guess.
std::uint64_t RandomSeed();

}  // namespace kvr::cmd
