// Publishes a recorded capture again, for `kvroute mock --replay-capture`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "net/event_publisher.h"

namespace kvr::cmd {

struct ReplayCaptureArgs {
  std::string file;
  double speedup = 1;  // the recorded pauses take so much less time
  std::string address = "127.0.0.1";
  std::uint16_t events_port = 0;  // of the first source, then ascending; 0: free ones
  std::uint16_t replay_port = 0;
  bool replay = true;
  std::optional<net::ReplayLayout> layout{};
  std::size_t replay_messages_max = 10'000;
};

// One publisher for each recorded source, announced as "capture-N events" and "capture-N replay".
// Messages keep their frames, their numbers and, divided by the speed-up, their spacing. At the end
// one line says so, and the replay sockets go on answering until a signal comes. Returns the exit
// code.
int ReplayCapture(const ReplayCaptureArgs& args);

}  // namespace kvr::cmd
