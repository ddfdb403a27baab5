// W3C Trace Context through a router with real sockets. The workers are fakes.
#include "base/trace_context.h"
#include "http_client.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kHeader = "00-" + kTrace + "-" + kSpan + "-01";
const std::string kBody = R"({"prompt": "hello", "max_tokens": 8, "request_id": "r"})";

// Passes the next request through both workers. Checks that both received the same traceparent, and
// returns it.
std::string PassThrough(Cluster& c) {
  const worker::v1::PrefillJob prefill = c.prefill->Next().prefill();
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  const worker::v1::DecodeJob decode = c.decode->Next().decode();
  CHECK(prefill.spec().traceparent() == decode.spec().traceparent());
  c.decode->Send(TokensEvent("r", "ok", FinishReason::kStop));
  return prefill.spec().traceparent();
}

// The trace of a completion with these headers, as its client and its workers received it.
TraceContext TraceOverHttp(Cluster& c, const std::string& headers, const std::string& body = kBody) {
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", body, headers);
  const std::string received = PassThrough(c);
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("traceparent") == received);
  REQUIRE(ParseTraceparent(received).has_value());
  return *ParseTraceparent(received);
}

TraceContext TraceOverGrpc(Cluster& c, const std::vector<std::string>& traceparents) {
  grpc::ClientContext context;
  for (const std::string& traceparent : traceparents) context.AddMetadata("traceparent", traceparent);
  const auto reader = c.stub->Generate(&context, Call::Request("r", "hello"));
  const std::string received = PassThrough(c);
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  CHECK(reader->Finish().ok());
  const auto answered = context.GetServerInitialMetadata().find("traceparent");
  REQUIRE(answered != context.GetServerInitialMetadata().end());
  CHECK(std::string(answered->second.data(), answered->second.size()) == received);
  REQUIRE(ParseTraceparent(received).has_value());
  return *ParseTraceparent(received);
}

TEST_CASE("A router sends the id of a call as soon as it has the request") {
  Cluster c;
  grpc::ClientContext context;
  const auto reader = c.stub->Generate(&context, Call::Request("r", "hello"));
  reader->WaitForInitialMetadata();  // no worker has answered yet
  const auto id = context.GetServerInitialMetadata().find("x-request-id");
  REQUIRE(id != context.GetServerInitialMetadata().end());
  CHECK(std::string(id->second.data(), id->second.size()) == "r");
  context.TryCancel();
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

void CheckJoined(const TraceContext& span) {
  CHECK(span.trace_id == kTrace);
  CHECK(span.span_id != kSpan);
  CHECK(span.sampled);
}

void CheckFresh(const TraceContext& span) {
  CHECK(span.trace_id != kTrace);
  CHECK_FALSE(span.sampled);
}

TEST_CASE("Workers and client receive the router's span in the client's trace") {
  Cluster c;
  CheckJoined(TraceOverHttp(c, "traceparent: " + kHeader + "\r\n"));
  CheckJoined(TraceOverHttp(c, "TraceParent: " + kHeader + "\r\ntracestate: vendor=1\r\n"));
  CheckJoined(TraceOverHttp(c, "traceparent: " + kHeader + "\r\n",
                            R"({"prompt": "hello", "max_tokens": 8, "request_id": "r", "stream": true})"));
  CheckJoined(TraceOverGrpc(c, {kHeader}));
}

TEST_CASE("A call without a valid traceparent gets its own trace") {
  Cluster c;
  CheckFresh(TraceOverHttp(c, ""));
  CheckFresh(TraceOverHttp(c, "traceparent: " + kHeader + "-\r\n"));
  CheckFresh(TraceOverHttp(c, "traceparent: " + kHeader + "\r\ntraceparent: " + kHeader + "\r\n"));
  CheckFresh(TraceOverGrpc(c, {}));
  CheckFresh(TraceOverGrpc(c, {"00-" + kTrace + "-0000000000000000-01"}));
  CheckFresh(TraceOverGrpc(c, {kHeader, kHeader}));
  const TraceContext one = TraceOverHttp(c, ""), another = TraceOverHttp(c, "");
  CHECK(one.trace_id != another.trace_id);
}

TEST_CASE("Error answers carry the trace too") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  for (const std::string& body : {std::string("{"), std::string(R"({"prompt": ""})")}) {
    client.Post("/v1/completions", body, "traceparent: " + kHeader + "\r\n");
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const auto span = ParseTraceparent(answer.headers.at("traceparent"));
    REQUIRE(span.has_value());
    CheckJoined(*span);
  }
  client.Post("/v1/nothing", "{}", "traceparent: " + kHeader + "\r\n");
  const auto span = ParseTraceparent(client.Read().headers.at("traceparent"));
  REQUIRE(span.has_value());
  CheckJoined(*span);

  grpc::ClientContext context;
  context.AddMetadata("traceparent", kHeader);
  const auto reader = c.stub->Generate(&context, Call::Request("r", ""));
  v1::GenerateResponse response;
  CHECK_FALSE(reader->Read(&response));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(context.GetServerInitialMetadata().contains("traceparent"));
}

TEST_CASE("The timeline of a workflow has the trace of each request") {
  Cluster c;
  TraceOverHttp(c, "traceparent: " + kHeader + "\r\n",
                R"({"prompt": "hello", "max_tokens": 8, "request_id": "r", "workflow": "w"})");
  grpc::ClientContext context;
  v1::TraceRequest request;
  request.set_workflow("w");
  v1::TraceResponse trace;
  REQUIRE(c.stub->Trace(&context, request, &trace).ok());
  REQUIRE(trace.requests_size() == 1);
  CHECK(trace.requests(0).trace_id() == kTrace);
}

}  // namespace
}  // namespace baton
