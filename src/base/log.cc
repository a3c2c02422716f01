#include "base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kvr {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("kvr", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetLogLevel(LogLevel level) {
  Logger().set_level(ToSpdlog(level));
}

bool LogEnabled(LogLevel level) {
  return Logger().should_log(ToSpdlog(level));
}

void LogWrite(LogLevel level, std::string_view text) {
  Logger().log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

bool LogLimiter::Pass(Nanos now, std::uint64_t& suppressed) {
  // Relaxed: only how many lines are written depends on it.
  std::int64_t next = next_.load(std::memory_order_relaxed);
  if (now.count() < next ||
      !next_.compare_exchange_strong(next, (now + interval_).count(), std::memory_order_relaxed)) {
    swallowed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  suppressed = swallowed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace kvr
