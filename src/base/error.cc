#include "base/error.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace kvr {
namespace {

struct Row {
  ErrorCode code;
  std::string_view name;
  int http_status;
  int exit_code;
};

constexpr std::array kTable = {
    Row{ErrorCode::kInvalidArgument, "invalid_argument", 400, 2},
    Row{ErrorCode::kBadJson, "bad_json", 400, 1},
    Row{ErrorCode::kUnprocessable, "unprocessable", 422, 1},
    Row{ErrorCode::kUnsupportedMedia, "unsupported_media_type", 415, 1},
    Row{ErrorCode::kTooLarge, "too_large", 413, 1},
    Row{ErrorCode::kNotFound, "not_found", 404, 1},
    Row{ErrorCode::kMethodNotAllowed, "method_not_allowed", 405, 1},
    Row{ErrorCode::kAlreadyExists, "conflict", 409, 1},
    Row{ErrorCode::kOverloaded, "overloaded", 429, 1},
    Row{ErrorCode::kUnavailable, "unavailable", 503, 1},
    Row{ErrorCode::kTimeout, "timeout", 504, 1},
    Row{ErrorCode::kClientGone, "client_gone", 499, 1},
    Row{ErrorCode::kUpstream, "upstream", 502, 1},
    Row{ErrorCode::kCancelled, "cancelled", 503, 1},
    Row{ErrorCode::kIo, "io", 500, 1},
    Row{ErrorCode::kCorrupt, "corrupt", 500, 1},
    Row{ErrorCode::kInternal, "internal", 500, 1},
};

constexpr bool RowsFollowTheEnum() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].code != static_cast<ErrorCode>(i)) return false;
  }
  return kTable.back().code == ErrorCode::kInternal;
}
static_assert(RowsFollowTheEnum());

const Row& Find(ErrorCode code) {
  const auto index = static_cast<std::size_t>(code);
  KVR_CHECK(index < kTable.size());
  return kTable[index];
}

}  // namespace

std::string_view CodeName(ErrorCode code) {
  return Find(code).name;
}
int HttpStatus(ErrorCode code) {
  return Find(code).http_status;
}
int ExitCode(ErrorCode code) {
  return Find(code).exit_code;
}

}  // namespace kvr
