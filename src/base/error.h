// What went wrong, as a value: a stable code for programs and a text for people.
#pragma once

#include <string>
#include <string_view>

namespace kvr {

// Each code has one HTTP status and one exit code (the table is in error.cc). The names are stable:
// they appear as "code" in the JSON errors of every service.
enum class ErrorCode {
  kInvalidArgument,   // the caller's words are off
  kBadJson,           // a body that is no JSON
  kUnprocessable,     // well-formed, but a field is missing, mistyped or out of range
  kUnsupportedMedia,  // a content type we do not read
  kTooLarge,          // beyond a stated limit
  kNotFound,
  kMethodNotAllowed,
  kAlreadyExists,  // conflicts with what is there
  kOverloaded,     // a queue or a limit is full; retry later
  kUnavailable,    // nothing can serve this now
  kTimeout,
  kClientGone,  // the peer closed before the answer was complete
  kUpstream,    // the engine answered wrongly or broke off
  kCancelled,   // shutdown or a caller's cancel
  kIo,          // a file or socket operation failed
  kCorrupt,     // data that fails its own checks
  kInternal,
};

// "bad_json", "not_found", ...
std::string_view CodeName(ErrorCode code);
// The HTTP status that answers a request which failed with `code`.
int HttpStatus(ErrorCode code);
// 1 failed, 2 usage.
int ExitCode(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one line: what, where and how to mend it
};

}  // namespace kvr
