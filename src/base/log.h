// Logging. ERROR: an operator must act. WARN: degraded but serving. INFO: lifecycle and
// configuration only. DEBUG: per request. TRACE: per event. Never prompts, tokens or keys.
// Modules up to `sched` do not log: they return errors and expose counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"

namespace kvr {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// Lines go to stderr, one a line, as "time level text". Thread-safe.
void SetLogLevel(LogLevel level);
[[nodiscard]] bool LogEnabled(LogLevel level);
void LogWrite(LogLevel level, std::string_view text);

template <typename... Args>
void LogAt(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogWrite(level, fmt::format(format, std::forward<Args>(args)...));
}

// Lets one line pass per interval and counts the rest, so that a bad peer cannot flood the log.
// Thread-safe.
class LogLimiter {
 public:
  explicit LogLimiter(Nanos interval) : interval_(interval) {}

  // True when a line may be written now; `suppressed` is then how many were swallowed before it.
  bool Pass(Nanos now, std::uint64_t& suppressed);

 private:
  const Nanos interval_;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint64_t> swallowed_{0};
};

}  // namespace kvr

#define KVR_TRACE(...) ::kvr::LogAt(::kvr::LogLevel::kTrace, __VA_ARGS__)
#define KVR_DEBUG(...) ::kvr::LogAt(::kvr::LogLevel::kDebug, __VA_ARGS__)
#define KVR_INFO(...) ::kvr::LogAt(::kvr::LogLevel::kInfo, __VA_ARGS__)
#define KVR_WARN(...) ::kvr::LogAt(::kvr::LogLevel::kWarn, __VA_ARGS__)
#define KVR_ERROR(...) ::kvr::LogAt(::kvr::LogLevel::kError, __VA_ARGS__)
