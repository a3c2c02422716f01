#include "cmd/child_process.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kvr::cmd {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::string Reason(int number) {
  return std::generic_category().message(number);
}

int MillisUntil(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

// True when the process ended within the limit. A pidfd becomes readable at that moment.
bool WaitForExit(pid_t pid, Millis limit) {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (handle < 0) return errno == ESRCH;
  pollfd watch{handle, POLLIN, 0};
  const auto deadline = SteadyClock::now() + limit;
  int ready = 0;
  do {
    ready = poll(&watch, 1, MillisUntil(deadline));
  } while (ready < 0 && errno == EINTR);
  close(handle);
  return ready > 0;
}

using Pipe = std::array<int, 2>;

// The child between fork and exec, where only async-signal-safe calls are allowed. Says through
// `failure` why there is no new program.
[[noreturn]] void Become(char* const* words, pid_t parent, int output, int failure) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // A parent that ended before the call above sends no signal.
  if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0) execv(words[0], words);
  const int reason = errno;
  const ssize_t told = write(failure, &reason, sizeof reason);
  _exit(told == sizeof reason ? 127 : 126);
}

// The child's errno when it could not become the program, else 0.
int ReadFailure(int failure) {
  int reason = 0;
  while (read(failure, &reason, sizeof reason) < 0 && errno == EINTR) {
  }
  return reason;
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(const std::vector<std::string>& words) {
  Pipe output{};
  Pipe failure{};
  if (pipe2(output.data(), O_CLOEXEC) != 0) {
    return Fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", Reason(errno)));
  }
  if (pipe2(failure.data(), O_CLOEXEC) != 0) {
    const int reason = errno;
    close(output[0]);
    close(output[1]);
    return Fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", Reason(reason)));
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));  // exec does not write to them
  }
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(arguments.data(), parent, output[1], failure[1]);
  const int not_forked = pid < 0 ? errno : 0;
  close(output[1]);
  close(failure[1]);
  const int failed = pid < 0 ? not_forked : ReadFailure(failure[0]);
  close(failure[0]);
  if (failed == 0) return ChildProcess(pid, output[0]);
  close(output[0]);
  if (pid > 0) waitpid(pid, nullptr, 0);
  return Fail(ErrorCode::kIo, fmt::format("cannot start {}: {}", words[0], Reason(failed)));
}

Result<ChildProcess> ChildProcess::StartSelf(std::vector<std::string> words) {
  words.insert(words.begin(), "/proc/self/exe");
  return Start(words);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      exit_code_(other.exit_code_),
      pending_(std::move(other.pending_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Terminate(Millis{5'000});
    pid_ = std::exchange(other.pid_, -1);
    output_ = std::exchange(other.output_, -1);
    exit_code_ = other.exit_code_;
    pending_ = std::move(other.pending_);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  Terminate(Millis{5'000});
}

Result<std::string> ChildProcess::ReadLine(Millis limit) {
  const auto deadline = SteadyClock::now() + limit;
  while (true) {
    if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    pollfd watch{output_, POLLIN, 0};
    const int ready = poll(&watch, 1, MillisUntil(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Fail(ErrorCode::kTimeout, "the child process printed nothing in time");
    std::array<char, 4096> piece{};
    const ssize_t got = read(output_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Fail(ErrorCode::kUnavailable, "the child process ended early");
    pending_.append(piece.data(), static_cast<std::size_t>(got));
  }
}

int ChildProcess::Terminate(Millis grace) {
  if (pid_ < 0) return exit_code_;
  kill(pid_, SIGTERM);
  if (!WaitForExit(pid_, grace)) kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  close(output_);
  pid_ = -1;
  output_ = -1;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

}  // namespace kvr::cmd
