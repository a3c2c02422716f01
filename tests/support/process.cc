#include "support/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace kvr::support {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;

  // Close-on-exec, so that a child started meanwhile by another test thread does not hold it open.
  Pipe() {
    std::array<int, 2> ends{};
    KVR_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
    read = ends[0];
    write = ends[1];
  }
};

void CloseOnce(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (auto& text : texts)
    out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Appends what is there; closes the descriptor at the end of the stream.
void ReadSome(int& fd, std::string& out) {
  std::array<char, 65536> room;
  const ssize_t got = read(fd, room.data(), room.size());
  if (got > 0) {
    out.append(room.data(), static_cast<std::size_t>(got));
  } else if (got == 0 || errno != EINTR) {
    CloseOnce(fd);
  }
}

void WriteSome(int& fd, std::string& input) {
  const ssize_t put = write(fd, input.data(), input.size());
  if (put > 0) {
    input.erase(0, static_cast<std::size_t>(put));
  } else if (errno != EINTR && errno != EAGAIN) {
    input.clear();  // the child closed its input
  }
  if (input.empty()) CloseOnce(fd);
}

}  // namespace

Process::Process(const std::vector<std::string>& words, const ProcessOptions& options)
    : deadline_(std::chrono::steady_clock::now() + options.timeout) {
  // A child that does not read its input must not end the test.
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> arguments = {KVR_KVROUTE};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  std::vector<std::string> environment = {std::string("PATH=") + (path != nullptr ? path : "")};
  for (const auto& [name, value] : options.env)
    environment.push_back(name + "=" + value);
  // Made before the fork: a child of a threaded process may only call async-signal-safe functions.
  const auto argv = Pointers(arguments);
  const auto envp = Pointers(environment);

  const Pipe in;
  const Pipe out;
  const Pipe err;
  pid_ = fork();
  KVR_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    dup2(in.read, STDIN_FILENO);
    dup2(out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(in.read);
  close(out.write);
  close(err.write);
  in_ = in.write;
  out_ = out.read;
  err_ = err.read;
  KVR_CHECK(fcntl(in_, F_SETFL, O_NONBLOCK) == 0);
}

Process::~Process() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    Reap();
  }
  CloseOnce(in_);
  CloseOnce(out_);
  CloseOnce(err_);
}

bool Process::Pump() {
  if (in_ >= 0 && input_.empty()) CloseOnce(in_);
  if (out_ < 0 && err_ < 0) return false;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  std::array<pollfd, 3> fds = {pollfd{in_, POLLOUT, 0}, pollfd{out_, POLLIN, 0},
                               pollfd{err_, POLLIN, 0}};
  const int ready =
      left.count() <= 0 ? 0 : poll(fds.data(), fds.size(), static_cast<int>(left.count()));
  if (ready < 0 && errno == EINTR) return true;
  if (ready <= 0) {
    timed_out_ = true;
    return false;
  }
  if (fds[0].revents != 0) WriteSome(in_, input_);
  if (fds[1].revents != 0) ReadSome(out_, output_.out);
  if (fds[2].revents != 0) ReadSome(err_, output_.err);
  return true;
}

std::string Process::WaitForLine(std::string_view prefix) {
  for (;;) {
    for (std::size_t end; (end = output_.out.find('\n', line_start_)) != std::string::npos;) {
      std::string line = output_.out.substr(line_start_, end - line_start_);
      line_start_ = end + 1;
      if (line.starts_with(prefix)) return line;
    }
    if (!Pump()) return {};
  }
}

bool Process::WaitForErr(std::string_view text) {
  while (output_.err.find(text) == std::string::npos) {
    if (!Pump()) return false;
  }
  return true;
}

std::string Process::WaitForListener(std::string_view what) {
  const std::string prefix = "listening " + std::string(what) + " ";
  const std::string line = WaitForLine(prefix);
  return line.substr(std::min(line.size(), prefix.size()));
}

void Process::Signal(int signal_number) const {
  if (pid_ >= 0) kill(pid_, signal_number);
}

ProcessOutput Process::Wait() {
  while (Pump()) {
  }
  if (timed_out_) Signal(SIGKILL);
  if (pid_ >= 0) Reap();
  if (timed_out_) output_.exit_code = -1;
  return output_;
}

void Process::Reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  output_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

ProcessOutput RunKvroute(const std::vector<std::string>& words, std::string_view input,
                         const ProcessOptions& options) {
  Process process(words, options);
  process.input_ = input;
  return process.Wait();
}

}  // namespace kvr::support
