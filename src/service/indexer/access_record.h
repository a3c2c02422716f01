// A request on its way into the access log.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/http.h"
#include "service/indexer/access_log.h"

namespace kvr::service {

// One request under way: it is logged when it ends, however it ends.
class AccessRecord {
 public:
  // `log` may be null. All must outlive the record; `path` is the route.
  AccessRecord(AccessLog* log, std::string_view trace_id_header, const net::HttpRequest& request,
               std::string_view path, const Clock& clock)
      : log_(log), request_(request), path_(path), clock_(clock), begun_(clock.Now()) {
    if (log != nullptr) trace_id_ = request.headers.Find(trace_id_header).value_or("");
  }
  ~AccessRecord() {
    if (log_ == nullptr) return;
    log_->Write({trace_id_, request_.method, path_, model, status, clock_.Now() - begun_});
  }
  AccessRecord(const AccessRecord&) = delete;
  AccessRecord& operator=(const AccessRecord&) = delete;

  std::string model;
  int status = 499;  // the client left before it had the answer

 private:
  AccessLog* const log_;
  const net::HttpRequest& request_;
  const std::string_view path_;
  const Clock& clock_;
  const Nanos begun_;
  std::string trace_id_;
};

}  // namespace kvr::service
