#include "cmd/descriptor_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

namespace kvr::cmd {

std::optional<std::string> RaiseDescriptorLimit(std::uint64_t needed) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= needed) return std::nullopt;
  return fmt::format(
      "at most {} files and sockets can be open, but {} may be needed; raise the hard limit "
      "(`ulimit -Hn`, LimitNOFILE) or lower server.connections_max",
      limit.rlim_cur, needed);
}

}  // namespace kvr::cmd
