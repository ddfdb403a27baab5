// The page at /ui and its data over real sockets. clients/python/tests/ui_test.py tests the page's
// content in a browser.
#include <openssl/sha.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "frontend/ui/page.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::json;

HttpAnswer Ask(Cluster& c, const std::string& method, const std::string& path, const std::string& body = "",
               const NewKey* key = nullptr) {
  HttpClient client(c.node->http()->address());
  client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                           key == nullptr ? "" : "authorization: Bearer " + key->key + "\r\n",
                           body.empty() ? "" : absl::StrCat("Content-Length: ", body.size(), "\r\n"), "\r\n", body));
  return client.Read();
}

json ParseUiData(const HttpAnswer& answer) {
  INFO(answer.body);
  CHECK(answer.headers.at("content-type") == "application/json");
  CHECK(answer.headers.at("cache-control") == "no-store");
  CHECK(answer.headers.at("x-content-type-options") == "nosniff");
  json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  REQUIRE_FALSE(body.is_discarded());
  return body;
}

std::string Sha256Of(const std::string& page, const std::string& element) {
  const size_t begin = page.find("<" + element + ">") + element.size() + 2, end = page.find("</" + element + ">");
  REQUIRE((begin < end && end < page.size()));
  const std::string text = page.substr(begin, end - begin);
  std::string sha(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(sha.data()));
  return absl::StrCat("-src 'sha256-", absl::Base64Escape(sha), "'");
}

std::string Body(const std::string& id, const std::string& more) {
  return absl::StrCat(R"({"prompt": "hello", "max_tokens": 8, "seed": 99, "request_id": ")", id, "\", ", more, "}");
}

TEST_CASE("The page loads nothing else, and its policy allows only its own code") {
  Cluster c;
  const HttpAnswer page = Ask(c, "GET", "/ui");
  CHECK(page.status == 200);
  CHECK(page.headers.at("content-type") == "text/html; charset=utf-8");
  CHECK(page.headers.at("cache-control") == "no-store");
  CHECK(page.headers.at("x-content-type-options") == "nosniff");
  CHECK(page.headers.at("referrer-policy") == "no-referrer");
  const std::string& policy = page.headers.at("content-security-policy");
  INFO(policy);
  for (const std::string& part :
       {std::string("default-src 'none'; "), "script" + Sha256Of(page.body, "script"),
        "style" + Sha256Of(page.body, "style"), std::string("connect-src 'self'"), std::string("base-uri 'none'"),
        std::string("form-action 'none'"), std::string("frame-ancestors 'none'")}) {
    CHECK(policy.find(part) != std::string::npos);
  }
  CHECK(policy.find("unsafe") == std::string::npos);
  // The page loads nothing from elsewhere, and turns no foreign text into an element.
  for (const char* never :
       {"http:", "https:", "//cdn", " src=", "href=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML",
        "document.write", "eval(", "new Function", "localStorage", " style="}) {
    INFO(never);
    CHECK(page.body.find(never) == std::string::npos);
  }
}

TEST_CASE("The page's data has workers, sessions and tokens, and no salt") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", Body("r", R"("session_id": "talk", "cache_salt": "secret-salt")"));
  PassPrefill(c);
  const HttpAnswer running = Ask(c, "GET", "/ui/status");
  CHECK(running.status == 200);
  json status = ParseUiData(running);
  REQUIRE(status["workers"].size() == 2);
  CHECK(status["workers"][0]["role"] == "ROLE_PREFILL");
  CHECK(status["workers"][0]["address"] == c.prefill->address());
  CHECK(status["workers"][0]["attached"] == true);
  CHECK(status["live_requests"] == 1);
  REQUIRE(status["sessions"].size() == 1);
  CHECK(status["sessions"][0]["session_id"] == "talk");
  CHECK(status["sessions"][0]["active"] == true);
  CHECK(status["sessions"][0]["running_requests"] == "1");
  CHECK(running.body.find("secret-salt") == std::string::npos);
  c.decode->Send(TokensEvent("r", "world", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  status = ParseUiData(Ask(c, "GET", "/ui/status"));
  CHECK(status["prompt_tokens"] == "5");
  CHECK(status["cached_tokens"] == "3");
  CHECK(status["completion_tokens"] == "5");
}

TEST_CASE("The page at /ui has a name and a colour for each phase of a trace") {
  const google::protobuf::EnumDescriptor& phases = *v1::Span::Phase_descriptor();
  const std::string page(UiPage());
  for (int i = 0; i < phases.value_count(); ++i) {
    if (phases.value(i)->number() == v1::Span::PHASE_UNSPECIFIED) continue;
    const std::string name(absl::StripPrefix(phases.value(i)->name(), "PHASE_"));
    INFO(name);
    const std::vector<std::string> parts = absl::StrSplit(page, absl::StrCat(" ", name, ": \""));
    REQUIRE(parts.size() == 3);
    const std::string colour = parts[2].substr(0, parts[2].find('"'));
    CHECK(page.find(absl::StrCat(" ", colour, ": #")) != std::string::npos);
  }
}

TEST_CASE("A router returns a workflow's timeline for its salt, live or ended") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", Body("r", R"("workflow": "trip", "agent": "writer", "cache_salt": "s")"));
  PassPrefill(c);
  CHECK(ParseUiData(Ask(c, "POST", "/ui/workflows", "{}")).empty());
  json workflows = ParseUiData(Ask(c, "POST", "/ui/workflows", R"({"cache_salt": "s"})"))["workflows"];
  REQUIRE(workflows.size() == 1);
  CHECK(workflows[0]["name"] == "trip");
  CHECK(workflows[0]["live"] == 1);
  const std::string ours = R"({"workflow": "trip", "cache_salt": "s"})";
  json trace = ParseUiData(Ask(c, "POST", "/ui/trace", ours));
  REQUIRE(trace["requests"].size() == 1);
  CHECK(trace["requests"][0]["agent"] == "writer");
  CHECK_FALSE(trace["requests"][0].contains("over"));
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  c.decode->Send(TokensEvent("r", "ld", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  trace = ParseUiData(Ask(c, "POST", "/ui/trace", ours));
  CHECK(trace["requests"][0]["over"] == true);
  CHECK(trace["requests"][0]["spans"].back()["phase"] == "PHASE_DECODE");
  workflows = ParseUiData(Ask(c, "POST", "/ui/workflows", R"({"cache_salt": "s"})"))["workflows"];
  CHECK(workflows[0]["requests"] == 1);
  CHECK_FALSE(workflows[0].contains("live"));
  // An unknown salt and an unknown name have the same error.
  const HttpAnswer unknown = Ask(c, "POST", "/ui/trace", R"({"workflow": "trip"})");
  CHECK(unknown.status == 404);
  CHECK(ParseUiData(unknown)["error"]["message"].get<std::string>().find("no request of 'trip'") != std::string::npos);
  CHECK(Ask(c, "POST", "/ui/trace", R"({"workflow": "nobody", "cache_salt": "s"})").status == 404);
}

TEST_CASE("A workflow's trace has its refused requests, however many there are") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", Body("r", R"("workflow": "trip", "agent": "writer")"));
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "world", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  const auto refuse = [&](const std::string& body, const std::string& headers = "") {
    client.Post("/v1/completions", body, headers);
    CHECK(client.Read().status == 400);
  };
  constexpr int kRefused = 70;
  for (int i = 0; i < kRefused; ++i) refuse(Body("bad", R"("top_p": 2, "workflow": "trip", "agent": "judge")"));
  // Members before the one at fault, names in headers, malformed ids and long names.
  refuse(R"({"prompt": 3, "request_id": "späte"})", "x-workflow: late\r\n");
  refuse(Body(
      "r2", absl::StrCat(R"("workflow": "late", "agent": ")", std::string(200, 'a'), R"(", "session_id": "\u0001")")));
  refuse(Body("r3", absl::StrCat(R"("workflow": ")", std::string(200, 'w'), "\"")));
  refuse(Body("r4", R"("workflow": ["trip"])"));

  const json trace = ParseUiData(Ask(c, "POST", "/ui/trace", R"({"workflow": "trip"})"));
  REQUIRE(trace["requests"].size() == 65);
  CHECK(trace["refused_omitted"] == 6);
  CHECK(trace["requests"][0]["request_id"] == "r");
  CHECK_FALSE(trace["requests"][0].contains("refused"));
  for (int i = 1; i < 65; ++i) {
    const json& refused = trace["requests"][i];
    CHECK(refused["refused"] == true);
    CHECK(refused["over"] == true);
    CHECK(refused["request_id"] == "bad");
    CHECK(refused["agent"] == "judge");
    CHECK(refused["error"].get<std::string>().starts_with("INVALID_ARGUMENT: top_p"));
    CHECK(refused["arrived_us"] == refused["ended_us"]);
    CHECK_FALSE(refused.contains("spans"));
  }
  REQUIRE(trace["agents"].size() == 2);
  CHECK(trace["agents"][0]["agent"] == "writer");
  CHECK(trace["agents"][0]["prompt_tokens"] == "5");
  CHECK(trace["agents"][0]["cached_tokens"] == "3");
  CHECK(trace["agents"][1]["refused"] == 64);

  const json late = ParseUiData(Ask(c, "POST", "/ui/trace", R"({"workflow": "late"})"))["requests"];
  REQUIRE(late.size() == 2);
  CHECK_FALSE(late[0].contains("request_id"));
  CHECK(late[1]["request_id"] == "r2");
  CHECK_FALSE(late[1].contains("agent"));
  const json workflows = ParseUiData(Ask(c, "POST", "/ui/workflows", "{}"))["workflows"];
  REQUIRE(workflows.size() == 2);
  CHECK(workflows[0]["name"] == "late");
  CHECK(workflows[0]["refused"] == 2);
  CHECK(workflows[1]["requests"] == 1);
}

TEST_CASE("The page's routes refuse wrong requests by name") {
  Cluster c;
  const auto refused = [&](const std::string& method, const std::string& path, const std::string& body, int code) {
    const HttpAnswer answer = Ask(c, method, path, body);
    INFO(method << " " << path << " " << body << ": " << answer.body);
    CHECK(answer.status == code);
    return answer;
  };
  CHECK(refused("POST", "/ui", "{}", 405).headers.at("allow") == "GET, HEAD, OPTIONS");
  CHECK(refused("POST", "/ui/status", "{}", 405).headers.at("allow") == "GET, HEAD, OPTIONS");
  CHECK(refused("GET", "/ui/workflows", "", 405).headers.at("allow") == "POST, OPTIONS");
  CHECK(refused("GET", "/ui/trace", "", 405).headers.at("allow") == "POST, OPTIONS");
  refused("DELETE", "/ui", "", 405);
  refused("GET", "/ui/", "", 404);
  refused("GET", "/ui/ui.html", "", 404);
  for (const char* path : {"/ui/workflows", "/ui/trace"}) {
    refused("POST", path, "{", 400);
    refused("POST", path, "[]", 400);
    CHECK(refused("POST", path, R"({"wishes": 1})", 400).body.find("wishes") != std::string::npos);
  }
  refused("POST", "/ui/trace", "{}", 400);
  HttpClient other(c.node->http()->address());
  other.Post("/ui/workflows", "{}", "Origin: http://evil.example\r\n");
  CHECK(other.Read().status == 403);
}

TEST_CASE("A router with keys shows workers to operators and a workflow to its tenant") {
  TempDir directory;
  const NewKey alpha = DrawKey(), beta = DrawKey(), boss = DrawKey();
  directory.Write("keys.toml", absl::StrCat("[alpha]\nkeys = [\"", alpha.hash, "\"]\n[beta]\nkeys = [\"", beta.hash,
                                            "\"]\n[boss]\noperator = true\nkeys = [\"", boss.hash, "\"]\n"));
  Cluster c(PatientLimits(), Schedule::kFirstCome, directory / "keys.toml");
  const std::string page = Ask(c, "GET", "/ui").body;
  CHECK(page.find("<!doctype html>") == 0);
  CHECK(page == Ask(c, "GET", "/ui", "", &boss).body);
  for (const char* path : {"/ui/workflows", "/ui/trace"}) CHECK(Ask(c, "POST", path, "{}").status == 401);
  CHECK(Ask(c, "GET", "/ui/status").status == 401);

  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", Body("r", R"("workflow": "plan", "session_id": "talk", "cache_salt": "pepper")"),
              "authorization: Bearer " + alpha.key + "\r\n");
  PassPrefill(c);
  const HttpAnswer denied = Ask(c, "GET", "/ui/status", "", &alpha);
  CHECK(denied.status == 403);
  const HttpAnswer all = Ask(c, "GET", "/ui/status", "", &boss);
  const json status = ParseUiData(all);
  CHECK(status["sessions"][0]["tenant"] == "alpha");
  CHECK(status["sessions"][0]["session_id"] == "talk");
  CHECK(all.body.find("pepper") == std::string::npos);

  const std::string salt = R"("cache_salt": "pepper")", plan = R"({"workflow": "plan", )" + salt + "}";
  CHECK(ParseUiData(Ask(c, "POST", "/ui/workflows", "{" + salt + "}", &alpha))["workflows"][0]["name"] == "plan");
  CHECK(Ask(c, "POST", "/ui/trace", plan, &alpha).status == 200);
  for (const NewKey* other : {&beta, &boss}) {
    CHECK(ParseUiData(Ask(c, "POST", "/ui/workflows", "{" + salt + "}", other)).empty());
    CHECK(Ask(c, "POST", "/ui/trace", plan, other).status == 404);
    // A tenant cannot guess the stored form of another tenant's salt.
    CHECK(Ask(c, "POST", "/ui/trace", R"({"workflow": "plan", "cache_salt": "alpha\npepper"})", other).status == 404);
  }
  c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);
}

}  // namespace
}  // namespace baton
