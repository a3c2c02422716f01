// A child process of this binary, for commands that start a fleet.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::cmd {

// Runs one program with its standard output read by us; its standard error stays ours. Movable;
// ends the child when destroyed. Not thread-safe. The thread that starts it must live as long as
// it: when that ends, even by a signal nobody can catch, the child gets SIGTERM.
class ChildProcess {
 public:
  // `words[0]` is the program's path. kIo says why it could not be started.
  static Result<ChildProcess> Start(const std::vector<std::string>& words);
  // Another `kvroute` of the same file as the running one.
  static Result<ChildProcess> StartSelf(std::vector<std::string> words);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // Terminate with a grace of 5 s

  // The next line of its output, without the end of line. kTimeout when none came within `limit`;
  // kUnavailable when the child closed its output, which is what an early exit looks like.
  Result<std::string> ReadLine(Millis limit);

  // SIGTERM, then SIGKILL when it has not ended within `grace`. Returns the exit code, or 128 + the
  // signal that ended it. Idempotent.
  int Terminate(Millis grace);

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_ = -1;
  int output_ = -1;
  int exit_code_ = -1;
  std::string pending_;  // read but not yet returned
};

}  // namespace kvr::cmd
