// Tests of a workflow's trace through a router with real sockets. The workers are fakes.
#include <algorithm>
#include <utility>

#include "await.h"
#include "router_cluster.h"

namespace baton {
namespace {

v1::GenerateRequest Request(const std::string& id, const std::string& agent) {
  v1::GenerateRequest request = Call::Request(id, "0123456789");
  request.set_workflow("w");
  request.set_agent(agent);
  return request;
}

struct Traced {
  absl::Status status;
  v1::TraceResponse trace;
};

Traced TraceOf(Cluster& c, const std::string& workflow, const std::string& salt = "") {
  grpc::ClientContext context;
  v1::TraceRequest request;
  request.set_workflow(workflow);
  request.set_cache_salt(salt);
  Traced result;
  result.status = FromGrpc(c.stub->Trace(&context, request, &result.trace));
  return result;
}

// Returns the end of a prefill with one step, which lasted for the prompt's whole time in the
// router.
worker::v1::PrefillEvent DoneInOneStep(const RequestId& id, int32_t tokens) {
  worker::v1::PrefillEvent event = DoneEvent(id, Incarnation(22));
  worker::v1::PrefillStep& step = *event.mutable_done()->add_steps();
  step.set_began_us(int64_t{3600} * 1'000'000);
  step.set_tokens(tokens);
  step.set_steps(1);
  return event;
}

std::vector<v1::Span::Phase> PhasesOf(const v1::TracedRequest& request) {
  std::vector<v1::Span::Phase> phases;
  int64_t at = request.arrived_us();
  for (const v1::Span& span : request.spans()) {
    CHECK(span.begin_us() == at);
    at = span.end_us();
    phases.push_back(span.phase());
  }
  CHECK(at == request.ended_us());
  return phases;
}

TEST_CASE("A trace shows which request waited for which, live and afterwards") {
  Cluster c;
  Call up(c, Request("up", "writer"));
  REQUIRE(c.prefill->Next().prefill().request_id() == "up");
  c.prefill->Send(DoneInOneStep("up", 9));
  REQUIRE(c.decode->Next().decode().request_id() == "up");
  v1::GenerateRequest reader = Request("down", "reader");
  reader.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("up");
  Call down(c, reader);
  REQUIRE(c.prefill->Next().prefill().open());

  Traced running = TraceOf(c, "w");
  REQUIRE(running.status.ok());
  REQUIRE(running.trace.requests_size() == 2);
  CHECK_FALSE(running.trace.requests(0).over());
  CHECK(running.trace.requests(1).agent() == "reader");
  CHECK(PhasesOf(running.trace.requests(1)).back() == v1::Span::PHASE_WAITING);

  c.decode->Send(TokensEvent("up", "abcd", std::nullopt));
  v1::GenerateResponse first_tokens;
  REQUIRE(up.reader->Read(&first_tokens));  // makes its decode phase last
  c.decode->Send(TokensEvent("up", "efgh", FinishReason::kStop));
  CHECK(up.Finish().status.ok());
  while (!c.prefill->Next().append().last()) continue;
  c.prefill->Send(DoneInOneStep("down", 17));
  REQUIRE(c.decode->Next().decode().request_id() == "down");
  c.decode->Send(TokensEvent("down", "ok", FinishReason::kStop));
  CHECK(down.Finish().status.ok());

  const Traced over = TraceOf(c, "w");
  REQUIRE(over.status.ok());
  REQUIRE(over.trace.requests_size() == 2);
  const v1::TracedRequest& first = over.trace.requests(0);
  const v1::TracedRequest& second = over.trace.requests(1);
  CHECK(first.request_id() == "up");
  CHECK(first.agent() == "writer");
  CHECK(first.arrived_us() == 0);
  CHECK(first.over());
  CHECK(first.error().empty());
  CHECK(first.upstreams_size() == 0);
  CHECK(PhasesOf(first) ==
        std::vector<v1::Span::Phase>{v1::Span::PHASE_PREFILL, v1::Span::PHASE_FIRST_STEP, v1::Span::PHASE_DECODE});
  CHECK(first.spans(0).tokens() == 9);
  CHECK(first.usage().completion_tokens() == 8);
  CHECK(PhasesOf(second).front() == v1::Span::PHASE_PREFILL);
  REQUIRE(second.upstreams_size() == 1);
  CHECK(second.upstreams(0) == 0);
  CHECK(second.usage().prompt_tokens() == 18);
}

TEST_CASE("A trace shows which attempt of an upstream request a prompt used") {
  Cluster c;
  Call first(c, Request("up", "writer"));
  PassPrefill(c, "up");
  const auto reader = [](const std::string& id, bool announced) {
    v1::GenerateRequest request = Request(id, "reader");
    v1::OutputOf& reference = *request.mutable_segments()->add_segments()->mutable_output_of();
    reference.set_request_id("up");
    reference.set_announced(announced);
    reference.set_on_failure(v1::OutputOf::ON_FAILURE_PARTIAL);
    return request;
  };
  Call early(c, reader("early", false));
  REQUIRE(c.prefill->Next().prefill().open());
  Call waits(c, reader("waits", true));
  REQUIRE(c.prefill->Next().prefill().open());
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("up", absl::UnavailableError("lost")));
  CHECK(absl::IsUnavailable(first.Finish().status));
  CHECK(c.prefill->Next().append().last());
  Call second(c, Request("up", "writer"));
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "abcd", FinishReason::kStop));
  CHECK(second.Finish().final.attempt() == 2);
  CHECK(c.prefill->Next().append().last());

  const Traced traced = TraceOf(c, "w");
  REQUIRE(traced.trace.requests_size() == 4);
  for (const auto& [id, attempt] : {std::pair("early", 1), {"waits", 2}}) {
    INFO(id);
    const auto& requests = traced.trace.requests();
    const auto found = std::ranges::find(requests, id, [](const auto& request) { return request.request_id(); });
    REQUIRE(found->upstreams_size() == 1);
    CHECK(requests.Get(found->upstreams(0)).request_id() == "up");
    CHECK(requests.Get(found->upstreams(0)).attempt() == attempt);
  }
}

TEST_CASE("A trace contains the reason of a failed request") {
  Cluster c;
  Call call(c, Request("r", "a"));
  REQUIRE(c.prefill->Next().prefill().request_id() == "r");
  // The 256th byte is inside a character.
  const std::string reason = std::string(245, 'x') + "éé";
  c.prefill->Send(StartedEvent("r"));
  c.prefill->Send(FailedEvent<worker::v1::PrefillEvent>("r", absl::InternalError(reason)));
  CHECK(absl::IsInternal(call.Finish().status));
  const Traced traced = TraceOf(c, "w");
  REQUIRE(traced.trace.requests_size() == 1);
  CHECK(traced.trace.requests(0).over());
  CHECK(traced.trace.requests(0).error() == "INTERNAL: " + std::string(245, 'x') + "…");
  CHECK(PhasesOf(traced.trace.requests(0)).back() == v1::Span::PHASE_PREFILL);
}

TEST_CASE("A trace shows that a request without room waits in a queue again") {
  Cluster c;
  Call call(c, Request("r", "a"));
  REQUIRE(c.prefill->Next().prefill().request_id() == "r");
  CHECK(PhasesOf(TraceOf(c, "w").trace.requests(0)).back() == v1::Span::PHASE_QUEUED);
  c.prefill->Send(StartedEvent("r"));
  Await("the router to show the step",
        [&] { return PhasesOf(TraceOf(c, "w").trace.requests(0)).back() == v1::Span::PHASE_PREFILL; });
  // The last field is no_room_to_decode.
  RequestFailed full{"r", absl::ResourceExhaustedError("full"), absl::Hours(1), true};
  worker::v1::PrefillEvent event;
  *event.mutable_failed() = ToProto(full);
  c.prefill->Send(event);
  Await("the request to wait again", [&] { return c.node->router().waiting_requests() > 0; });
  CHECK(PhasesOf(TraceOf(c, "w").trace.requests(0)) == std::vector<v1::Span::Phase>{v1::Span::PHASE_QUEUED});
  call.context.TryCancel();
  CHECK(absl::IsCancelled(call.Finish().status));
}

TEST_CASE("Trace returns a workflow of its cache domain only") {
  Cluster c;
  v1::GenerateRequest request = Request("r", "a");
  request.set_cache_salt("tenant");
  Call call(c, request);
  PassPrefill(c, "r");
  Call plain(c, Call::Request("plain", "x"));
  PassPrefill(c, "plain");
  for (const bool over : {false, true}) {
    if (over) {
      for (const char* id : {"r", "plain"}) c.decode->Send(TokensEvent(id, "a", FinishReason::kStop));
      CHECK(call.Finish().status.ok());
      CHECK(plain.Finish().status.ok());
    }
    const Traced other = TraceOf(c, "w");
    CHECK(absl::IsNotFound(other.status));
    CHECK(Message(other.status) == "workflow: no request of 'w' is live or ended in the last 10m at this router");
    CHECK(TraceOf(c, "w", "tenant").trace.requests_size() == 1);
    CHECK(absl::IsInvalidArgument(TraceOf(c, "").status));
    CHECK(absl::IsNotFound(TraceOf(c, "v", "tenant").status));
  }
}

}  // namespace
}  // namespace baton
