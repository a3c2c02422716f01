// Runs the kvroute binary of this build as a child process and sees what a user sees.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace kvr::support {

struct ProcessOptions {
  // Variables added to an environment that holds PATH only, so that no KVR_* of the caller leaks
  // in.
  std::vector<std::pair<std::string, std::string>> env = {};
  // A child that runs longer is killed, and the wait reports exit code -1.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

struct ProcessOutput {
  int exit_code = 0;  // 128 + n when signal n ended it, as a shell says; -1 timed out
  std::string out;
  std::string err;
};

// `kvroute WORDS...` with `input` as its standard input; returns when it ended.
ProcessOutput RunKvroute(const std::vector<std::string>& words, std::string_view input = {},
                         const ProcessOptions& options = {});

// A kvroute that keeps running: a server. Ends with the object (killed if it still runs). Output is
// read only inside a wait: a child that prints more than a pipe holds (64 KiB) in between stalls.
// One thread uses it.
class Process {
 public:
  explicit Process(const std::vector<std::string>& words, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The first unread line of standard output that starts with `prefix`, without the line feed.
  // Empty when the child ended or the timeout passed first; err() tells why.
  std::string WaitForLine(std::string_view prefix);

  // ADDRESS:PORT of the line `listening WHAT ADDRESS:PORT`, empty as above.
  std::string WaitForListener(std::string_view what);

  // Whether standard error holds `text`, waited for as above.
  bool WaitForErr(std::string_view text);

  void Signal(int signal_number) const;

  // Reads to the end and returns everything it printed.
  ProcessOutput Wait();

  [[nodiscard]] const std::string& out() const { return output_.out; }
  [[nodiscard]] const std::string& err() const { return output_.err; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  friend ProcessOutput RunKvroute(const std::vector<std::string>&, std::string_view,
                                  const ProcessOptions&);

  // Moves some bytes. False when both outputs are closed or the deadline passed.
  bool Pump();
  void Reap();

  std::chrono::steady_clock::time_point deadline_;
  pid_t pid_ = -1;
  int in_ = -1;   // write end of the child's standard input
  int out_ = -1;  // read ends
  int err_ = -1;
  std::string input_;  // not written yet
  std::size_t line_start_ = 0;
  ProcessOutput output_;
  bool timed_out_ = false;
};

}  // namespace kvr::support
