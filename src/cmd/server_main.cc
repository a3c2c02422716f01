#include "cmd/server_main.h"

#include <chrono>
#include <csignal>
#include <cstdio>

#include <pthread.h>
#include <unistd.h>

#include "base/check.h"

#ifndef KVR_VERSION
#error "KVR_VERSION is set by the build"
#endif

namespace kvr::cmd {

const std::string_view kVersion = KVR_VERSION;

namespace {

sigset_t Awaited(StopSignals::Hangup hangup) {
  sigset_t set;
  sigemptyset(&set);
  if (hangup == StopSignals::Hangup::kReported) sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

void SetDisposition(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  KVR_CHECK(sigaction(signal, &action, nullptr) == 0);
}

volatile std::sig_atomic_t end_code = 1;

void EndQuietly(int) {
  _exit(end_code);
}

// For what was asked twice. Only async-signal-safe calls.
void CutShort(int signal) {
  constexpr std::string_view kText = "second signal: ended without waiting for what is under way\n";
  static_cast<void>(!write(STDERR_FILENO, kText.data(), kText.size()));
  _exit(128 + signal);
}

// Further signals cut the process short.
void Unblock(const sigset_t& stops) {
  SetDisposition(SIGTERM, CutShort);
  SetDisposition(SIGINT, CutShort);
  KVR_CHECK(pthread_sigmask(SIG_UNBLOCK, &stops, nullptr) == 0);
}

}  // namespace

void EndOnSignals(int exit_code) {
  end_code = exit_code;
  SetDisposition(SIGTERM, EndQuietly);
  SetDisposition(SIGINT, EndQuietly);
}

void AnnounceListener(std::string_view what, std::string_view address_port) {
  std::printf("listening %.*s %.*s\n", static_cast<int>(what.size()), what.data(),
              static_cast<int>(address_port.size()), address_port.data());
  std::fflush(stdout);
}

void AnnounceEndpoint(std::string_view what, std::string_view endpoint) {
  const std::size_t scheme = endpoint.find("://");
  KVR_CHECK(scheme != std::string_view::npos);
  AnnounceListener(what, endpoint.substr(scheme + 3));
}

StopSignals::StopSignals(Hangup hangup) : hangup_(hangup) {
  SetDisposition(SIGPIPE, SIG_IGN);
  const sigset_t set = Awaited(hangup_);
  KVR_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  // A process started in the background may inherit that they are ignored; an ignored signal is
  // never delivered to a waiter.
  SetDisposition(SIGTERM, SIG_DFL);
  SetDisposition(SIGINT, SIG_DFL);
  if (hangup_ == Hangup::kReported) SetDisposition(SIGHUP, SIG_DFL);
}

int StopSignals::Wait(const std::function<void()>& on_hangup) {
  const sigset_t set = Awaited(hangup_);
  int signal = 0;
  while (true) {
    KVR_CHECK(sigwait(&set, &signal) == 0);
    if (signal != SIGHUP) break;
    if (on_hangup) on_hangup();
  }
  Unblock(Awaited(Hangup::kEnds));
  return signal;
}

bool StopSignals::WaitFor(Nanos timeout) {
  const sigset_t set = Awaited(Hangup::kEnds);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(seconds.count());
  limit.tv_nsec = static_cast<long>((timeout - seconds).count());
  if (sigtimedwait(&set, nullptr, &limit) < 0) return false;
  Unblock(set);
  return true;
}

}  // namespace kvr::cmd
