// DELETE /v1/workflows/NAME.
#include <string>

#include "frontend/gateway/keyed_router.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

HttpAnswer Delete(Cluster& c, const std::string& path, const std::string& body = "", const std::string& headers = "") {
  HttpClient client(c.node->http()->address());
  const std::string length = body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n");
  client.Send(absl::StrCat("DELETE ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, length, "\r\n", body));
  return client.Read();
}

constexpr char kTrip[] = R"({"prompt": "a", "request_id": "r", "workflow": "my trip/ä", "cache_salt": "s"})";

TEST_CASE("DELETE cancels a workflow by its name and cache salt, and may be repeated") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", kTrip);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  const std::string path = "/v1/workflows/my%20trip%2F%C3%A4";
  for (const char* body : {"", "{}", R"({"cache_salt": "other"})"}) {
    CHECK(Delete(c, path, body).body == R"({"cancelled_requests":0})");
  }
  const HttpAnswer cancelled = Delete(c, path + "/", R"({"cache_salt": "s"})");
  CHECK(cancelled.status == 200);
  CHECK(cancelled.body == R"({"cancelled_requests":1})");
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 499);
  const json error = json::parse(answer.body)["error"];
  CHECK(error["message"] == "its workflow was cancelled");
  CHECK(error["partial"][0]["text"] == "wor");
  CHECK(c.decode->Next().cancel().request_id() == "r");
  CHECK(Delete(c, path, R"({"cache_salt": "s"})").body == R"({"cancelled_requests":0})");
}

TEST_CASE("DELETE of a workflow refuses wrong calls by name") {
  Cluster c;
  const auto refused = [&](const std::string& path, const std::string& body, int status, const std::string& words) {
    const HttpAnswer answer = Delete(c, path, body);
    INFO(path << " " << body << ": " << answer.body);
    CHECK(answer.status == status);
    CHECK(answer.body.find(words) != std::string::npos);
    return answer;
  };
  refused("/v1/workflows", "", 404, "unknown path");
  refused("/v1/workflows/", "", 404, "unknown path");
  refused("/v1/workflows/w", "{", 400, "");
  refused("/v1/workflows/w", "[]", 400, "");
  refused("/v1/workflows/w", R"({"cache_salt": 1})", 400, "cache_salt");
  refused("/v1/workflows/w", R"({"cache_salt": "\ud800"})", 400, "");
  refused("/v1/workflows/w", R"({"workflow": "v"})", 400, "workflow: expected only the name in the path");
  refused("/v1/workflows/w", R"({"all": true})", 400, "all");
  refused("/v1/workflows/" + std::string(129, 'w'), "", 400, "workflow: 129 bytes, limit 128");
  CHECK(Delete(c, "/v1/workflows/%FF%00").body == R"({"cancelled_requests":0})");
  HttpClient client(c.node->http()->address());
  client.Post("/v1/workflows/w", "{}");
  const HttpAnswer posted = client.Read();
  CHECK(posted.status == 405);
  CHECK(posted.headers.at("allow") == "DELETE, OPTIONS");
  CHECK(Delete(c, "/v1/workflows/w", "", "Origin: http://evil.example\r\n").status == 403);
}

TEST_CASE("DELETE of a workflow needs a key, and cancels requests of the key's tenant only") {
  KeyedRouter router;
  HttpClient client(router.c.node->http()->address());
  client.Post("/v1/completions", kTrip, router.Mine());
  router.c.prefill->Next();
  const std::string path = "/v1/workflows/my%20trip%2F%C3%A4", salt = R"({"cache_salt": "s"})";
  CHECK(Delete(router.c, path, salt).status == 401);
  // The router's name for the salt is no salt of a client.
  const std::string forged = R"({"cache_salt": "alpha\ns"})";
  CHECK(Delete(router.c, path, forged, router.Mine()).body == R"({"cancelled_requests":0})");
  CHECK(Delete(router.c, path, salt, router.Mine()).body == R"({"cancelled_requests":1})");
  CHECK(client.Read().status == 499);
}

}  // namespace
}  // namespace baton
