// What every command that serves does the same way: say where it listens, and end on a signal.
#pragma once

#include <functional>
#include <string_view>

#include "base/clock.h"

namespace kvr::cmd {

// Of this build, as --version prints it.
extern const std::string_view kVersion;

// Prints "listening WHAT ADDRESS:PORT" on stdout and flushes, so that whoever started the process
// can wait for the line and read the port. Call it once the listener accepts. `what` is one word.
void AnnounceListener(std::string_view what, std::string_view address_port);
// The same of "SCHEME://ADDRESS:PORT".
void AnnounceEndpoint(std::string_view what, std::string_view endpoint);

// From now on SIGTERM and SIGINT end the process with `exit_code`, and not by the signal. For a
// command that has nothing to take down: what it started ends with it.
void EndOnSignals(int exit_code);

// SIGTERM and SIGINT as something to wait for. Construct it in main's thread before any other
// thread starts: threads inherit that the two are blocked. SIGPIPE is ignored from then on.
class StopSignals {
 public:
  // What a SIGHUP does: end the process, as by default, or be reported by Wait.
  enum class Hangup { kEnds, kReported };

  explicit StopSignals(Hangup hangup = Hangup::kEnds);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Blocks until one of them arrives and returns its number; calls `on_hangup` for each SIGHUP
  // meanwhile, if those are reported. From then on a further one ends the
  // process at once with exit code 128 plus its number, so that an impatient operator need not wait
  // for the drain. Once an object.
  int Wait(const std::function<void()>& on_hangup = {});
  // Without hang-ups, for at most `timeout`, for commands with a loop of their own: whether one
  // arrived.
  bool WaitFor(Nanos timeout);

 private:
  const Hangup hangup_;
};

}  // namespace kvr::cmd
