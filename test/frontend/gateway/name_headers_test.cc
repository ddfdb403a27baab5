// Headers with the names of sessions and agents, over HTTP. The workers are fakes.
#include <string>

#include "base/strings.h"
#include "http_client.h"
#include "metric_value.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

// The names of a request, and the status of its answer.
struct Served {
  std::string session, agent;
  int status = 0;
};

struct HeaderCluster : Cluster {
  HeaderCluster() {
    ServedModel model = ByteModel("bytes");
    model.chat_template = *ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", "", "");
    Serve(std::move(model));
  }
  // Sends a call of the workflow "w" with these lines of headers.
  Served Ask(const std::string& path, const std::string& headers, const std::string& fields = "") {
    const char* prompt = path == "/v1/completions"        ? R"("prompt": "hi")"
                         : path == "/v1/chat/completions" ? R"("messages": [{"role": "user", "content": "hi"}])"
                                                          : R"("segments": {"segments": [{"text": "hi"}]})";
    const std::string body = StrCat(R"({"workflow": "w", )", fields, prompt, "}");
    HttpClient client(node->http()->address());
    client.Send(StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\ncontent-length: ", body.size(), "\r\n", headers,
                       "\r\n", body));
    const RequestId id = prefill->Next().prefill().request_id();
    Served served;
    served.session = FirstSession();
    served.agent = LastAgent();
    prefill->Send(DoneEvent(id, Incarnation(22)));
    if (path != "/prefill_only") {
      decode->Next();
      decode->Send(TokensEvent(id, "x", FinishReason::kStop));
    }
    served.status = client.Read().status;
    return served;
  }

 private:
  // Returns the session of the running request, or "".
  std::string FirstSession() const {
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    REQUIRE(stub->GetServerInfo(&context, {}, &info).ok());
    const bool runs = info.sessions_size() > 0 && info.sessions(0).running_requests() > 0;
    return runs ? info.sessions(0).session_id() : "";
  }
  std::string LastAgent() const {
    grpc::ClientContext context;
    v1::TraceRequest request;
    request.set_workflow("w");
    v1::TraceResponse trace;
    REQUIRE(stub->Trace(&context, request, &trace).ok());
    return trace.requests(trace.requests_size() - 1).agent();
  }
};

constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions", "/generate", "/prefill_only"};

TEST_CASE("A router takes the names of session and agent from headers") {
  HeaderCluster c;
  for (const char* path : kPaths) {
    CAPTURE(path);
    const Served served = c.Ask(path, "X-Claude-Code-Session-Id: s-1\r\nx-openai-subagent: review\r\n");
    CHECK(served.session == "s-1");
    CHECK(served.agent == "review");
    CHECK(served.status == 200);
    CHECK(c.Ask(path, "").session == "");
  }
}

TEST_CASE("A router prefers the fields of a body to headers") {
  HeaderCluster c;
  for (const char* path : kPaths) {
    CAPTURE(path);
    const Served served = c.Ask(path, "x-session-id: s-1\r\nsession-id: s-2\r\nx-agent-name: a\r\n",
                                R"("session_id": "own", "agent": "mine", )");
    CHECK(served.session == "own");
    CHECK(served.agent == "mine");
    CHECK(served.status == 200);
  }
}

TEST_CASE("A router serves a call with unusable headers, and counts them") {
  HeaderCluster c;
  for (const char* path : kPaths) {
    CAPTURE(path);
    const Served served = c.Ask(
        path, StrCat("x-session-id: a\tb\r\nsession-id: ", std::string(300, 's'), "\r\nx-agent-name: \xff\xfe\r\n"));
    CHECK(served.session == "");
    CHECK(served.agent == "");
    CHECK(served.status == 200);
  }
  for (const char* header : {"x-session-id", "session-id", "x-agent-name"}) {
    CHECK(MetricValue(c.metrics, StrCat("baton_http_headers_ignored_total{header=\"", header, "\"}")) == 4);
  }
}

}  // namespace
}  // namespace baton
