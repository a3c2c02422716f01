#include "service/indexer/access_log.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/bounded_queue.h"
#include "base/json_writer.h"
#include "base/mutex.h"
#include "base/thread_name.h"

namespace kvr::service {
namespace {

// An open file that is closed at the end.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Bytes that the file took before it refused more.
  std::size_t Append(std::string_view bytes) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t wrote = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    return done;
  }

 private:
  int fd_ = -1;
};

Result<File> OpenFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) return File(fd);
  return Fail(ErrorCode::kIo, fmt::format("cannot open access log {}: {}", path,
                                          std::generic_category().message(errno)));
}

std::string TimeText(Nanos wall, bool local) {
  const auto millis = std::chrono::duration_cast<Millis>(wall).count();
  const std::time_t seconds = millis / 1'000;
  std::tm parts{};
  if (!local) {
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, millis % 1'000);
  }
  ::localtime_r(&seconds, &parts);
  const std::string zone = fmt::format("{:%z}", parts);  // +hhmm
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}{}:{}", parts, millis % 1'000, zone.substr(0, 3),
                     zone.substr(3));
}

}  // namespace

struct AccessLog::Impl {
  Impl(const Options& wanted, const Clock& time, metrics::Registry& registry, File opened)
      : options(wanted),
        clock(time),
        queue(wanted.lines_max),
        written(registry.AddCounter("kvr_access_log_lines_total", "Access log lines written")),
        queue_full(Dropped(registry, "queue_full")),
        refused(Dropped(registry, "write_failed")),
        file(std::move(opened)) {}

  static metrics::Counter& Dropped(metrics::Registry& registry, const std::string& reason) {
    return registry.AddCounter("kvr_access_log_dropped_total",
                               "Access log lines that were not written, by reason",
                               {{"reason", reason}});
  }

  void Run() {
    while (auto line = queue.Pop()) {
      std::string batch = std::move(*line);
      while (batch.size() < options.batch_bytes_max) {
        auto next = queue.TryPop();
        if (!next) break;
        batch += *next;
      }
      Append(batch);
    }
  }

  void Append(std::string_view batch) KVR_EXCLUDES(mutex) {
    const Lock lock(mutex);
    if (torn && file.Append("\n") == 1) torn = false;
    const std::size_t took = torn ? 0 : file.Append(batch);
    const std::string_view done = batch.substr(0, took);
    const std::string_view lost = batch.substr(took);
    written.Add(static_cast<std::uint64_t>(std::ranges::count(done, '\n')));
    if (lost.empty()) return;
    refused.Add(static_cast<std::uint64_t>(std::ranges::count(lost, '\n')));
    torn |= !done.empty() && done.back() != '\n';
  }

  const Options options;
  const Clock& clock;
  BoundedQueue<std::string> queue;
  metrics::Counter& written;
  metrics::Counter& queue_full;
  metrics::Counter& refused;
  Mutex mutex;
  File file KVR_GUARDED_BY(mutex);
  bool torn KVR_GUARDED_BY(mutex) = false;  // the file ends within a line
  std::thread writer;
};

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const Options& options, const Clock& clock,
                                                   metrics::Registry& registry) {
  KVR_TRY(auto file, OpenFile(options.path));
  auto impl = std::make_unique<Impl>(options, clock, registry, std::move(file));
  return std::unique_ptr<AccessLog>(new AccessLog(std::move(impl)));
}

AccessLog::AccessLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->writer = std::thread([state = impl_.get()] {
    SetThreadName("access-log");
    state->Run();
  });
}

AccessLog::~AccessLog() {
  impl_->queue.Close();
  impl_->writer.join();
}

void AccessLog::Write(const AccessEntry& entry) {
  std::string line;
  JsonWriter json(line);
  json.BeginObject();
  json.Field("ts", TimeText(impl_->clock.WallTime(), impl_->options.local_time));
  json.Field("trace_id", entry.trace_id.empty() ? std::string_view("-") : entry.trace_id);
  json.Field("method", entry.method);
  json.Field("path", entry.path);
  if (!entry.model.empty()) json.Field("model", entry.model);
  json.Field("status", entry.status);
  json.Field("duration_ms", std::chrono::duration<double, std::milli>(entry.duration).count());
  json.EndObject();
  line += '\n';
  if (!impl_->queue.TryPush(std::move(line))) impl_->queue_full.Add();
}

Result<void> AccessLog::Reopen() {
  KVR_TRY(auto file, OpenFile(impl_->options.path));
  const Lock lock(impl_->mutex);
  std::swap(impl_->file, file);
  impl_->torn = false;
  return {};
}

bool IsHeaderName(std::string_view name) {
  constexpr std::string_view kSpecial = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kSpecial.find(c) != std::string_view::npos;
  });
}

}  // namespace kvr::service
