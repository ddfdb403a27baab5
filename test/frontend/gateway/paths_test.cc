// Paths and queries of the HTTP front end.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

HttpAnswer Visit(Cluster& c, const std::string& path) {
  HttpClient client(c.node->http()->address());
  client.Get(path);
  return client.Read();
}

HttpAnswer PostTo(Cluster& c, const std::string& path, const std::string& body) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  return client.Read();
}

std::string RefusalOf(const HttpAnswer& answer) { return nlohmann::json::parse(answer.body)["error"]["message"]; }

TEST_CASE("A router ignores a query on routes without query parameters") {
  Cluster c;
  for (const char* path : {"/version", "/metrics", "/v1/models", "/v1/models/bytes", "/"}) {
    INFO(path);
    CHECK(Visit(c, absl::StrCat(path, "?api-version=2024-10-21&beta=true")).status == 200);
  }
  CHECK(PostTo(c, "/tokenize?beta=true", R"({"prompt": "a"})").status == 200);
  CHECK(RefusalOf(PostTo(c, "/prefill_only?beta=true", "{}")).find("beta=true") != std::string::npos);
}

TEST_CASE("A router ignores a slash at the end of a path") {
  Cluster c;
  CHECK(Visit(c, "/version/").status == 200);
  CHECK(Visit(c, "/v1/models/").body == Visit(c, "/v1/models").body);
  CHECK(Visit(c, "/v1/models/bytes/").body == Visit(c, "/v1/models/bytes").body);
  CHECK(PostTo(c, "/tokenize/", R"({"prompt": "a"})").status == 200);
  CHECK(Visit(c, "/version//").status == 404);
}

TEST_CASE("A router names its routes at the root") {
  Cluster c;
  const nlohmann::json index = nlohmann::json::parse(Visit(c, "/").body);
  CHECK(index["openai_base_url"] == "/v1");
  const std::vector<std::string> routes = index["routes"];
  for (const char* route : {"POST /v1/chat/completions", "GET /v1/models/NAME", "GET /health", "GET /"}) {
    CHECK(std::ranges::count(routes, route) == 1);
  }
}

TEST_CASE("A router names the right path when it refuses a near one") {
  Cluster c;
  const std::pair<const char*, const char*> paths[] = {{"/chat/completions", "/v1/chat/completions"},
                                                       {"/completions", "/v1/completions"},
                                                       {"/v1/v1/chat/completions", "/v1/chat/completions"},
                                                       {"/v1//chat/completions", "/v1/chat/completions"},
                                                       {"/openai/v1/chat/completions/", "/v1/chat/completions"},
                                                       {"/v1/chat/completion", "/v1/chat/completions"},
                                                       {"/v1/health", "/health"},
                                                       {"/models", "/v1/models"}};
  for (const auto& [path, right] : paths) {
    const HttpAnswer answer = PostTo(c, path, "{}");
    CHECK(answer.status == 404);
    CHECK(RefusalOf(answer) == absl::StrCat("unknown path '", path, "'. Did you mean '", right, "'?"));
  }
  CHECK(RefusalOf(Visit(c, "/wp-login.php")) == "unknown path '/wp-login.php'");
}

}  // namespace
}  // namespace baton
