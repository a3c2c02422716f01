#include "net/http_routes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvr::net {
namespace {

bool IsParameter(std::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> segments;
  while (path.starts_with('/')) {
    path.remove_prefix(1);
    const std::size_t end = std::min(path.find('/'), path.size());
    segments.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return segments;
}

// Walks both in step, so that looking a path up allocates nothing.
bool Matches(const std::vector<std::string>& segments, std::string_view path) {
  for (const std::string& segment : segments) {
    if (!path.starts_with('/')) return false;
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    if (IsParameter(segment) ? part.empty() : part != segment) return false;
    path.remove_prefix(part.size());
  }
  return path.empty();
}

}  // namespace

void HttpRoutes::Add(HttpRoute route) {
  KVR_CHECK(route.path.starts_with('/'));
  auto segments = Split(route.path);
  const auto same = [&](const auto& path) { return path->segments == segments; };
  auto at = std::ranges::find_if(paths_, same);
  if (at == paths_.end()) {
    const bool exact = std::ranges::none_of(segments, IsParameter);
    at = paths_.insert(exact ? paths_.begin() : paths_.end(), std::make_unique<Path>());
    (*at)->segments = std::move(segments);
  }
  for (const auto& other : (*at)->routes)
    KVR_CHECK(other->method != route.method);
  (*at)->routes.push_back(std::make_unique<HttpRoute>(std::move(route)));
}

const HttpRoutes::Path* HttpRoutes::FindPath(std::string_view path) const {
  for (const auto& known : paths_) {
    if (Matches(known->segments, path)) return known.get();
  }
  return nullptr;
}

HttpRoutes::Match HttpRoutes::Find(std::string_view method, std::string_view path) const {
  Match match;
  const Path* const known = FindPath(path);
  if (known == nullptr) return match;
  match.path_known = true;
  const auto find = [&](std::string_view wanted) -> const HttpRoute* {
    for (const auto& route : known->routes) {
      if (route->method == wanted) return route.get();
    }
    return nullptr;
  };
  match.route = find(method);
  if (match.route == nullptr && method == "HEAD") match.route = find("GET");
  if (match.route != nullptr) return match;
  for (const auto& route : known->routes) {
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route->method;
    if (route->method == "GET") match.allow += ", HEAD";
  }
  return match;
}

}  // namespace kvr::net
