#include "frontend/gateway/allowed_origins.h"

#include <map>
#include <string>
#include <utility>

#include "base/strings.h"
#include "catch.h"
#include "frontend/gateway/keyed_router.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"
#include "temp_dir.h"

namespace baton {
namespace {

std::map<std::string, std::string> MapOf(const HttpHeaders& headers) { return {headers.begin(), headers.end()}; }

TEST_CASE("CheckOrigin accepts origins as browsers send them only") {
  for (const char* origin : {"*", "null", "https://app.example", "http://127.0.0.1:3000", "http://[::1]:3000",
                             "chrome-extension://abcdef", "tauri://localhost", "https://a-b_c.example:8443"}) {
    INFO(origin);
    CHECK(CheckOrigin(origin).ok());
  }
  for (const char* origin : {"", "app.example", "https://", "://app", "https://app.example/", "https://App.example",
                             "HTTPS://app.example", "https://*.example", "https://user@app.example", "https://a b",
                             "https://app.example:443", "http://app.example:80", "NULL", "https://app\r\n.example"}) {
    INFO(origin);
    CHECK(absl::IsInvalidArgument(CheckOrigin(origin)));
  }
}

TEST_CASE("AllowedOrigins allows exact origins, and null only if it is listed") {
  const AllowedOrigins none({}), one({"https://app.example"}), all({"*"}), nulls({"*", "null"});
  CHECK_FALSE(none.Allow("https://app.example"));
  CHECK(one.Allow("https://app.example"));
  for (const char* other : {"http://app.example", "https://app.example:8443", "https://app.example.evil", "null", "",
                            "https://app.example ", "*", "https://app.exampl", "https://app.example, https://evil"}) {
    INFO(other);
    CHECK_FALSE(one.Allow(other));
  }
  CHECK(all.Allow("https://evil.example"));
  CHECK_FALSE(all.Allow("null"));
  CHECK(nulls.Allow("null"));
  CHECK_FALSE(nulls.Allow(""));
}

TEST_CASE("AllowedOrigins names the origin of an allowed page, and Vary for all") {
  CHECK(AllowedOrigins({}).AnswerHeaders("https://app.example").empty());
  const AllowedOrigins origins({"https://app.example", "https://b.example"});
  CHECK(MapOf(origins.AnswerHeaders("")) == std::map<std::string, std::string>{{"vary", "Origin"}});
  CHECK(MapOf(origins.AnswerHeaders("null")) == std::map<std::string, std::string>{{"vary", "Origin"}});
  auto headers = MapOf(origins.AnswerHeaders("https://b.example"));
  CHECK(headers["vary"] == "Origin");
  CHECK(headers["access-control-allow-origin"] == "https://b.example");
  CHECK(headers["access-control-expose-headers"].find("retry-after") != std::string::npos);
  CHECK_FALSE(headers.contains("access-control-allow-credentials"));
}

TEST_CASE("PreflightHeaders allow the headers that the browser names") {
  HttpRequest request;
  request.method = "OPTIONS";
  CHECK_FALSE(IsPreflight(request));
  request.headers = {{"access-control-request-method", "POST"}};
  CHECK(IsPreflight(request));
  const auto allowed = [&] { return MapOf(PreflightHeaders(request))["access-control-allow-headers"]; };
  CHECK(allowed() == "authorization, content-type, x-api-key");
  request.headers.emplace_back("Access-Control-Request-Headers", "authorization,x-stainless-os");
  CHECK(allowed() == "authorization,x-stainless-os");
  request.headers.back().second = "a\"b";
  CHECK(allowed() == "authorization, content-type, x-api-key");
  request.method = "POST";
  CHECK_FALSE(IsPreflight(request));
}

TEST_CASE("A router answers an allowed page's preflight without a key") {
  KeyedRouter w({"https://app.example"});
  const std::string asks = "access-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n";
  HttpAnswer answer = w.Ask("OPTIONS /v1/chat/completions", "origin: https://app.example\r\n" + asks);
  CHECK(answer.status == 204);
  CHECK(answer.headers["access-control-allow-origin"] == "https://app.example");
  CHECK(answer.headers["access-control-allow-headers"] == "authorization");
  CHECK(answer.headers["access-control-allow-methods"].find("POST") != std::string::npos);
  // An unknown path gets the same answer, because the caller has no key.
  CHECK(w.Ask("OPTIONS /nowhere", "origin: https://app.example\r\n" + asks).status == 204);
  for (const char* origin : {"https://evil.example", "null"}) {
    const HttpAnswer refused = w.Ask("OPTIONS /v1/chat/completions", absl::StrCat("origin: ", origin, "\r\n", asks));
    CHECK(refused.status == 403);
    CHECK_FALSE(refused.headers.contains("access-control-allow-origin"));
    CHECK(refused.headers.at("vary") == "Origin");
  }
  // Without a question, OPTIONS is a call that needs a key.
  CHECK(w.Ask("OPTIONS /v1/chat/completions", "origin: https://app.example\r\n").status == 401);
}

TEST_CASE("Every answer to an allowed page can be read by the page") {
  KeyedRouter w({"https://app.example"});
  const std::string page = "origin: https://app.example\r\n", mine = "authorization: Bearer " + w.key.key + "\r\n";
  const auto status_if_readable = [&](const std::string& line, const std::string& headers) {
    const HttpAnswer answer = w.Ask(line, page + headers);
    const auto found = answer.headers.find("access-control-allow-origin");
    return found != answer.headers.end() && found->second == "https://app.example" ? answer.status : 0;
  };
  CHECK(status_if_readable("GET /v1/models", mine) == 200);
  CHECK(status_if_readable("GET /v1/models", "") == 401);
  CHECK(status_if_readable("GET /nowhere", mine) == 404);
  CHECK(status_if_readable("POST /v1/completions", mine + "content-length: 99999999\r\n") == 413);
  CHECK(status_if_readable("POST /v1/completions", mine + "content-encoding: br\r\ncontent-length: 9\r\n") == 415);
  CHECK(w.Ask("GET /v1/models", "origin: https://evil.example\r\n" + mine).status == 403);
  CHECK(w.Ask("GET /v1/models", "origin: null\r\n" + mine).status == 403);
  CHECK(w.Ask("GET /v1/models", mine).status == 200);
}

// Requests that are refused before their head is complete or checked.
TEST_CASE("An allowed page can read a refusal if its origin has arrived") {
  KeyedRouter w({"https://app.example"});
  const std::string first = "GET /version HTTP/1.1\r\nHost: localhost\r\n";
  const auto refusal = [&](const std::string& origin, const std::string& rest, const std::string& line) {
    HttpClient client(w.c.node->http()->address());
    client.Send(StrCat(line, "Origin:  ", origin, "\r\n", rest));
    client.EndInput();
    return client.Read();
  };
  const std::string many = [] {
    std::string headers;
    for (int i = 0; i < 101; ++i) absl::StrAppend(&headers, "a: b\r\n");
    return headers + "\r\n";
  }();
  const std::pair<std::string, int> rests[] = {
      {StrCat("a: ", std::string(20 << 10, 'x'), "\r\n\r\n"), 431},
      {many, 431},
      {"not a header\r\n\r\n", 400},
      {"a", 400},
      {"Host: again\r\n\r\n", 400},
      {"authorization: a\r\nauthorization: b\r\n\r\n", 400},
      {"transfer-encoding: gzip\r\n\r\n", 400},
  };
  for (const auto& [rest, status] : rests) {
    CAPTURE(rest.substr(0, 40));
    const HttpAnswer allowed = refusal("https://app.example", rest, first);
    CHECK(allowed.status == status);
    CHECK(allowed.headers.at("access-control-allow-origin") == "https://app.example");
    CHECK_FALSE(refusal("https://evil.example", rest, first).headers.contains("access-control-allow-origin"));
  }
  CHECK(refusal("https://app.example", "\r\n", "no request line\r\n").headers.at("access-control-allow-origin") ==
        "https://app.example");
  // Beyond the end of the head, a line is no header.
  CHECK_FALSE(refusal("", StrCat("bad\r\n\r\nOrigin: https://app.example\r\n"), first)
                  .headers.contains("access-control-allow-origin"));
  KeyedRouter all({"*"});
  HttpClient client(all.c.node->http()->address());
  client.Send(first + "Origin: https://a\rset-cookie: b\r\nbad\r\n\r\n");
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 400);
  CHECK_FALSE(answer.headers.contains("access-control-allow-origin"));
  CHECK_FALSE(answer.headers.contains("set-cookie"));
}

TEST_CASE("An allowed page's origin does not outlive its request") {
  KeyedRouter w({"https://app.example"});
  HttpClient client(w.c.node->http()->address());
  client.Send("GET /health HTTP/1.1\r\nHost: x\r\norigin: https://app.example\r\n\r\n");
  CHECK(client.Read().headers.contains("access-control-allow-origin"));
  client.Send("not HTTP\r\n\r\n");
  const HttpAnswer refused = client.Read();
  CHECK(refused.status == 400);
  CHECK_FALSE(refused.headers.contains("access-control-allow-origin"));
}

TEST_CASE("A router answers to the names of --host-name, and to any name at /health") {
  Cluster c;
  c.options.host_names = {"router.example"};
  c.Serve(ByteModel("bytes"));
  const auto ask = [&](const std::string& host, const std::string& path) {
    HttpClient client(c.node->http()->address());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.Read();
  };
  CHECK(ask("router.example:8000", "/v1/models").status == 200);
  CHECK(ask("127.0.0.1", "/v1/models").status == 200);
  CHECK(ask("evil.example", "/v1/models").status == 403);
  CHECK(ask("evil.example", "/ui").status == 403);
  for (const char* path : {"/health", "/health/"}) CHECK(ask("evil.example", path).status != 403);
}

TEST_CASE("A router with keys checks the host only if it has names") {
  KeyedRouter w({"https://app.example"});
  const auto ask = [&] {
    HttpClient client(w.c.node->http()->address());
    client.Send("GET /version HTTP/1.1\r\nHost: any.example\r\nx-api-key: " + w.key.key + "\r\n\r\n");
    return client.Read().status;
  };
  CHECK(ask() == 200);
  w.c.options.host_names = {"router.example"};
  w.c.Serve(ByteModel("bytes"));
  CHECK(ask() == 403);
}

}  // namespace
}  // namespace baton
