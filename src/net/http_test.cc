#include "net/http.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http_routes.h"

namespace kvr::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(HttpHeaders, NamesCompareWithoutCaseAndKeepTheirOrder) {
  HttpHeaders headers;
  headers.Add("Accept", "a");
  headers.Add("X-Tag", "1");
  headers.Add("accept", "b");
  EXPECT_EQ(headers.Find("ACCEPT"), "a");
  EXPECT_EQ(headers.Find("missing"), std::nullopt);
  headers.Set("ACCEPT", "c");
  EXPECT_THAT(headers.all(), ElementsAre(Pair("X-Tag", "1"), Pair("ACCEPT", "c")));
  headers.Remove("x-tag");
  EXPECT_THAT(headers.all(), ElementsAre(Pair("ACCEPT", "c")));
}

TEST(HttpRequest, SplitsItsTarget) {
  HttpRequest request;
  request.target = "/a/b?x=1?y";
  EXPECT_EQ(request.path(), "/a/b");
  EXPECT_EQ(request.query(), "x=1?y");
  request.target = "/a";
  EXPECT_EQ(request.path(), "/a");
  EXPECT_EQ(request.query(), "");
}

TEST(QueryParameter, FindsAndDecodes) {
  struct Case {
    std::string query;
    std::string name;
    std::optional<std::string> value;
  };
  const std::vector<Case> cases = {
      {"a=1&b=2", "b", "2"},
      {"a=1&a=2", "a", "1"},
      {"a", "a", ""},
      {"a=", "a", ""},
      {"", "a", std::nullopt},
      {"ab=1", "a", std::nullopt},
      {"a=x%2Fy", "a", "x/y"},
      {"a=x+y", "a", "x y"},
      {"a=x%2By", "a", "x+y"},
      {"%61=1", "a", "1"},
      {"a=%", "a", std::nullopt},
      {"a=%4", "a", std::nullopt},
      {"a=%zz", "a", std::nullopt},
      {"&&a=1", "a", "1"},
      {"a=b=c", "a", "b=c"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(QueryParameter(c.query, c.name), c.value) << c.query;
}

TEST(ParseUrl, Accepts) {
  struct Case {
    std::string text;
    Url url;
    std::string authority;
  };
  const std::vector<Case> cases = {
      {"http://engine", {"engine", 80, ""}, "engine:80"},
      {"HTTP://engine:8000/", {"engine", 8000, ""}, "engine:8000"},
      {"http://10.0.0.1:1/a/b/", {"10.0.0.1", 1, "/a/b"}, "10.0.0.1:1"},
      {"http://[::1]:65535/v1", {"::1", 65535, "/v1"}, "[::1]:65535"},
      {"http://[fe80::1]", {"fe80::1", 80, ""}, "[fe80::1]:80"},
  };
  for (const Case& c : cases) {
    const auto url = ParseUrl(c.text);
    ASSERT_TRUE(url) << c.text;
    EXPECT_EQ(*url, c.url) << c.text;
    EXPECT_EQ(url->authority(), c.authority);
  }
}

TEST(ParseUrl, RefusesAndSaysWhy) {
  struct Case {
    std::string text;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"", "must start with http://"},
      {"engine:80", "must start with http://"},
      {"https://engine", "must start with http://"},
      {"http://", "host is missing"},
      {"http://:80", "host is missing"},
      {"http://engine:0", "not in 1..65535"},
      {"http://engine:65536", "not in 1..65535"},
      {"http://engine:8x", "not in 1..65535"},
      {"http://engine:", "not in 1..65535"},
      {"http://::1:80", "needs brackets"},
      {"http://[::1", "without `]`"},
      {"http://[::1]x", "unexpected text"},
      {"http://a b", "space"},
      {"http://a\r\nX: y", "control character"},
      {"http://user@host", "no user"},
      {"http://host/?q", "query"},
  };
  for (const Case& c : cases) {
    const auto url = ParseUrl(c.text);
    ASSERT_FALSE(url) << c.text;
    EXPECT_EQ(url.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(url.error().message, HasSubstr(c.why)) << c.text;
  }
}

TEST(JsonError, HasOneShape) {
  EXPECT_EQ(JsonError({ErrorCode::kNotFound, "no \"x\""}).body,
            R"({"error":"no \"x\"","code":"not_found"})");
  EXPECT_EQ(JsonError({ErrorCode::kNotFound, "x"}).status, 404);
  const HttpResponse detailed = JsonError(422, "unprocessable", "x", R"({"field":"a"})");
  EXPECT_EQ(detailed.body, R"({"error":"x","code":"unprocessable","details":{"field":"a"}})");
  EXPECT_EQ(detailed.headers.Find("content-type"), "application/json");
}

TEST(HttpRoutes, MatchesWholeSegments) {
  HttpRoutes routes;
  for (const auto& [method, path] :
       std::vector<std::pair<std::string, std::string>>{{"GET", "/"},
                                                        {"GET", "/workers"},
                                                        {"GET", "/workers/{id}"},
                                                        {"DELETE", "/workers/{id}"},
                                                        {"POST", "/workers/all"},
                                                        {"POST", "/r/{id}/done"}}) {
    HttpRoute route;
    route.method = method;
    route.path = path;
    routes.Add(std::move(route));
  }
  struct Case {
    std::string method;
    std::string path;
    std::string route;  // empty: no such route
    std::string allow;
  };
  const std::vector<Case> cases = {
      {"GET", "/", "/", ""},
      {"GET", "/workers", "/workers", ""},
      {"HEAD", "/workers", "/workers", ""},
      {"GET", "/workers/", "", ""},
      {"GET", "/workers/7", "/workers/{id}", ""},
      {"GET", "/workers/a%2Fb", "/workers/{id}", ""},
      {"GET", "/workers/7/8", "", ""},
      {"POST", "/workers/all", "/workers/all", ""},
      {"GET", "/workers/all", "", "POST"},
      {"PUT", "/workers/7", "", "GET, HEAD, DELETE"},
      {"POST", "/r/x/done", "/r/{id}/done", ""},
      {"HEAD", "/r/x/done", "", "POST"},
      {"POST", "/r//done", "", ""},
      {"GET", "workers", "", ""},
      {"GET", "", "", ""},
      {"OPTIONS", "*", "", ""},
  };
  for (const Case& c : cases) {
    const auto match = routes.Find(c.method, c.path);
    EXPECT_EQ(match.route == nullptr ? "" : match.route->path, c.route) << c.method << c.path;
    EXPECT_EQ(match.allow, c.allow) << c.method << c.path;
    EXPECT_EQ(match.path_known, !c.route.empty() || !c.allow.empty()) << c.method << c.path;
  }
}

}  // namespace
}  // namespace kvr::net
