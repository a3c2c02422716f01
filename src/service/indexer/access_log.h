// One JSON line for each request served, in a file that may be rotated.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "metrics/registry.h"

namespace kvr::service {

struct AccessEntry {
  std::string_view trace_id;  // empty is shown as "-"
  std::string_view method;
  std::string_view path;   // the route, without parameters
  std::string_view model;  // empty is left out
  int status = 0;
  Nanos duration{0};
};

// Appends {"ts":"2026-08-21T10:00:00.123Z","trace_id":"-","method":"POST","path":"/query",
// "model":"M","status":200,"duration_ms":0.42}. A thread of its own writes; whoever logs never
// waits for the disk. A line is dropped and counted when the queue is full or the file does not
// take it; requests are served all the same. Thread-safe.
class AccessLog {
 public:
  struct Options {
    std::string path;
    bool local_time = false;                   // time stamps with the zone's offset instead of UTC
    std::size_t lines_max = 65'536;            // waiting to be written
    std::size_t batch_bytes_max = 256u << 10;  // written at once
  };

  // kIo names the file and the reason. `registry` and `clock` must outlive the log.
  static Result<std::unique_ptr<AccessLog>> Open(const Options& options, const Clock& clock,
                                                 metrics::Registry& registry);
  ~AccessLog();  // writes what waits
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(const AccessEntry& entry);

  // Goes on in a new file of the same name, after the old one was moved away. On failure (kIo) the
  // old one stays in use.
  Result<void> Reopen();

 private:
  struct Impl;
  explicit AccessLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether `name` can be the name of a header.
bool IsHeaderName(std::string_view name);

}  // namespace kvr::service
