// Finds the handler of a request. For this module only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metrics/registry.h"
#include "net/http_server.h"

namespace kvr::net {

struct HttpRoute {
  std::string method;
  std::string path;
  HttpHandler handler;
  std::size_t body_bytes_max = 0;
  metrics::Histogram* seconds = nullptr;
};

// Filled before the server starts, then read by every I/O thread.
class HttpRoutes {
 public:
  // Replaces nothing: adding the same method and path twice is our bug.
  void Add(HttpRoute route);

  // What is known about a path; `route` is null when the method, or the path itself, is not.
  struct Match {
    const HttpRoute* route = nullptr;
    bool path_known = false;
    std::string allow;  // the methods of a known path when the asked one is not among them
  };
  [[nodiscard]] Match Find(std::string_view method, std::string_view path) const;

 private:
  struct Path {
    std::vector<std::string> segments;  // "{name}" matches any one segment
    std::vector<std::unique_ptr<HttpRoute>> routes;
  };
  [[nodiscard]] const Path* FindPath(std::string_view path) const;

  std::vector<std::unique_ptr<Path>> paths_;  // those without "{" first, so that exact ones win
};

}  // namespace kvr::net
