// Tests of prompts that refer to other requests' outputs, through a router with real sockets. The
// workers are fakes.
#include "await.h"
#include "metric_value.h"
#include "router_cluster.h"

namespace baton {
namespace {

v1::GenerateRequest Downstream(const std::string& id, const std::string& upstream) {
  v1::GenerateRequest request = Call::Request(id, "0123456789");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id(upstream);
  request.mutable_segments()->add_segments()->set_text("!");
  return request;
}

TEST_CASE("A streaming prompt prefills during its upstream and decodes when complete") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  Call down(c, Downstream("down", "up"));
  const worker::v1::PrefillJob open = c.prefill->Next().prefill();
  CHECK(open.request_id() == "down");
  CHECK(open.open());
  // The worker to which KV may be pushed ahead.
  CHECK(open.decode_worker() == c.decode->address());
  // Less than a block of tokens is certain.
  CHECK(TextOf(open.spec().tokens()).empty());

  c.decode->Send(TokensEvent("up", "abcdefgh", std::nullopt));
  const worker::v1::PrefillAppend append = c.prefill->Next().append();
  CHECK(TextOf(append.tokens()) == "0123456789abcdefg");
  CHECK_FALSE(append.last());
  c.decode->Send(TokensEvent("up", "ij", FinishReason::kStop));
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(TextOf(last.tokens()) == "hij!");
  CHECK(last.last());
  CHECK(last.decode_worker() == c.decode->address());
  CHECK(last.expected_new_tokens() == 8);
  CHECK(up.Finish().status.ok());

  c.prefill->Send(DoneEvent("down", Incarnation(22)));
  const DecodeJob decode = FromProto(c.decode->Next().decode());
  CHECK(std::string(decode.spec.tokens.begin(), decode.spec.tokens.end()) == "0123456789abcdefghij!");
  c.decode->Send(TokensEvent("down", "ok", FinishReason::kStop));
  const Call::Result result = down.Finish();
  CHECK(result.text == "ok");
  CHECK(result.final.usage().prompt_tokens() == 21);
  CHECK(result.final.timings().upstream_ms() > 0);
}

TEST_CASE("A prompt has the tokens that continue a character of their own prompt") {
  Cluster c;
  v1::GenerateRequest request = Call::Request("up", "a");
  request.mutable_segments()->add_segments()->mutable_token_ids()->add_ids(0xC3);
  Call up(c, request);
  PassPrefill(c, "up");
  worker::v1::DecodeEvent event = TokensEvent("up", "\xA9", FinishReason::kLength);
  event.mutable_updates()->mutable_updates(0)->set_text("é");
  c.decode->Send(event);
  CHECK(up.Finish().text == "é");
  Call down(c, Downstream("down", "up"));
  CHECK(TextOf(c.prefill->Next().prefill().spec().tokens()) == "0123456789\xA9!");
}

TEST_CASE("A prompt is complete at once when its upstream request has ended") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  CHECK(up.Finish().status.ok());
  Call down(c, Downstream("down", "up"));
  const worker::v1::PrefillJob job = c.prefill->Next().prefill();
  CHECK_FALSE(job.open());
  CHECK(TextOf(job.spec().tokens()) == "0123456789abc!");
  CHECK(job.decode_worker() == c.decode->address());
}

TEST_CASE("A failed upstream request fails its downstream requests and their jobs") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  Call down(c, Downstream("down", "up"));
  CHECK(c.prefill->Next().prefill().open());
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("up", absl::InternalError("broken")));
  CHECK(absl::IsInternal(up.Finish().status));
  const Call::Result result = down.Finish();
  CHECK(absl::IsAborted(result.status));
  CHECK(Message(result.status) == "output_of 'up': INTERNAL: broken");
  CHECK(c.prefill->Next().cancel().request_id() == "down");
}

TEST_CASE("A substitute for a failed upstream's output restarts the prompt at its worker") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  v1::GenerateRequest request = Downstream("down", "up");
  v1::OutputOf& reference = *request.mutable_segments()->mutable_segments(1)->mutable_output_of();
  reference.set_on_failure(v1::OutputOf::ON_FAILURE_SUBSTITUTE);
  reference.set_substitute("none");
  Call down(c, request);
  CHECK(c.prefill->Next().prefill().open());
  c.decode->Send(TokensEvent("up", "abcdefgh", std::nullopt));
  CHECK(TextOf(c.prefill->Next().append().tokens()) == "0123456789abcdefg");
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("up", absl::InternalError("broken")));
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(last.restart());
  CHECK(last.last());
  CHECK(TextOf(last.tokens()) == "0123456789none!");
}

TEST_CASE("A cancelled downstream request leaves its upstream and siblings alone") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  Call one(c, Downstream("one", "up"));
  CHECK(c.prefill->Next().prefill().request_id() == "one");
  Call two(c, Downstream("two", "up"));
  CHECK(c.prefill->Next().prefill().request_id() == "two");
  one.context.TryCancel();
  CHECK(c.prefill->Next().cancel().request_id() == "one");
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  CHECK(up.Finish().text == "abc");
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(last.request_id() == "two");
  CHECK(TextOf(last.tokens()) == "0123456789abc!");
}

TEST_CASE("A client has the text so far of an output that no request needs") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  v1::GenerateRequest kept = Call::Request("kept", "hello");
  kept.set_keep(true);
  Call goes_on(c, kept);
  PassPrefill(c, "kept");
  v1::GenerateRequest request = Downstream("down", "up");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("kept");
  Call down(c, request);
  CHECK(c.prefill->Next().prefill().request_id() == "down");
  c.decode->Send(TokensEvent("up", "abcdefgh", std::nullopt));
  CHECK(c.prefill->Next().append().request_id() == "down");
  down.context.TryCancel();
  CHECK(c.prefill->Next().cancel().request_id() == "down");
  CHECK(c.decode->Next().cancel().request_id() == "up");
  const Call::Result result = up.Finish();
  CHECK(absl::IsCancelled(result.status));
  CHECK(Message(result.status) == "no request needs the output; set `keep` to generate it to its end");
  CHECK(result.text == "abcdefgh");
  c.decode->Send(TokensEvent("kept", "x", FinishReason::kStop));
  CHECK(goes_on.Finish().status.ok());
}

TEST_CASE("A router refuses unknown upstreams, cycles and too long prompts") {
  Cluster c;
  CHECK(absl::IsNotFound(Call(c, Downstream("down", "nobody")).Finish().status));
  CHECK(absl::IsInvalidArgument(Call(c, Downstream("self", "self")).Finish().status));
  Call up(c, "up");
  PassPrefill(c, "up");
  Call down(c, Downstream("down", "up"));
  CHECK(c.prefill->Next().prefill().open());
  c.decode->Send(TokensEvent("up", std::string(60, 'a'), std::nullopt));
  const Call::Result result = down.Finish();
  CHECK(absl::IsInvalidArgument(result.status));
  CHECK(Message(result.status) ==
        "segments.segments: with the outputs it refers to it has at least 70 tokens, limit 63 (context length 64 of "
        "'bytes', less one token to generate)");
}

TEST_CASE("Metrics show waiting prompts and their upstream requests") {
  Cluster c;
  v1::GenerateRequest request = Downstream("down", "up");
  request.mutable_segments()->mutable_segments(1)->mutable_output_of()->set_announced(true);
  Call down(c, request);
  REQUIRE(c.prefill->Next().prefill().open());
  const auto await_value = [&](const char* metric, double value) {
    Await("a gauge of the router", [&] { return MetricValue(c.metrics, metric) == value; });
  };
  for (const char* metric : {"baton_growing_prompts", "baton_references", "baton_announced_requests"}) {
    await_value(metric, 1);
  }
  Call up(c, "up");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  CHECK(up.Finish().status.ok());
  await_value("baton_kept_outputs", 1);
  await_value("baton_announced_requests", 0);
  await_value("baton_growing_prompts", 0);
  CHECK(MetricValue(c.metrics, "baton_kept_output_bytes") > 0);
}

TEST_CASE("A router refuses max_tokens when the completed prompt leaves fewer") {
  Cluster c;
  Call up(c, "up");
  PassPrefill(c, "up");
  Call down(c, Downstream("down", "up"));
  CHECK(c.prefill->Next().prefill().open());
  c.decode->Send(TokensEvent("up", std::string(50, 'a'), FinishReason::kStop));
  const Call::Result result = down.Finish();
  CHECK(absl::IsInvalidArgument(result.status));
  CHECK(Message(result.status) ==
        "sampling.max_tokens: 8 after a prompt of 61 tokens, limit 3 (context length 64 of 'bytes')");
}

TEST_CASE("An upstream runs on for downstream requests when its client does not read") {
  Cluster c;
  Call slow(c, "slow");
  PassPrefill(c, "slow");
  Call down(c, Downstream("down", "slow"));
  CHECK(c.prefill->Next().prefill().open());
  // The updates exceed the transport's windows and the router's buffer together.
  for (int i = 0; i < 40; ++i) {
    worker::v1::DecodeEvent event = TokensEvent("slow", "a", std::nullopt);
    auto& logprobs = *event.mutable_updates()->mutable_updates(0)->add_logprobs();
    for (int k = 0; k < 60'000; ++k) {
      logprobs.add_top_ids(300'000'000);
      logprobs.add_top_logprobs(-1);
    }
    c.decode->Send(std::move(event));
  }
  c.decode->Send(TokensEvent("slow", "b", FinishReason::kStop));
  std::string prompt;
  worker::v1::PrefillAppend append;
  while (!append.last()) {
    append = c.prefill->Next().append();
    prompt += TextOf(append.tokens());
  }
  CHECK(prompt == absl::StrCat("0123456789", std::string(40, 'a'), "b!"));
  CHECK_FALSE(slow.Finish().status.ok());  // the router ended the slow call
}

TEST_CASE("A router waits for an announced request") {
  Cluster c;
  v1::GenerateRequest request = Downstream("down", "up");
  request.mutable_segments()->mutable_segments(1)->mutable_output_of()->set_announced(true);
  Call down(c, request);
  CHECK(c.prefill->Next().prefill().open());
  Call up(c, "up");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  CHECK(TextOf(c.prefill->Next().append().tokens()) == "0123456789abc!");
}

TEST_CASE("By default a router serves requests in order of arrival") {
  Cluster c;
  v1::GenerateRequest request = Call::Request("r", "hello");
  request.set_workflow("w");
  request.set_agent("a");
  request.set_expected_tokens(5);
  Call call(c, request);
  CHECK_FALSE(c.prefill->Next().prefill().spec().handicap_us());
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK_FALSE(c.decode->Next().decode().spec().handicap_us());
}

TEST_CASE("Under sjf a router sends workers the work left in a request's workflow") {
  // The clock stands still, so no arrival offset shrinks while its request waits.
  const ManualClock clock;
  Cluster c(PatientLimits(), Schedule::kShortestFirst, /*keys=*/"", &clock);
  const WorkloadOptions costs;
  const int64_t prompt = absl::ToInt64Microseconds(5 * costs.per_prompt_token);
  const int64_t token = absl::ToInt64Microseconds(costs.per_output_token);
  v1::GenerateRequest first = Call::Request("first", "hello"), second = Call::Request("second", "HELLO");
  first.set_workflow("w");
  first.set_expected_tokens(3);
  second.set_workflow("w");  // 8 tokens at most
  Call one(c, first);
  CHECK(c.prefill->Next().prefill().spec().handicap_us() == prompt + 3 * token);
  Call two(c, second);
  CHECK(c.prefill->Next().prefill().spec().handicap_us() == 2 * prompt + 11 * token);
  c.prefill->Send(DoneEvent("first", Incarnation(22)));
  CHECK(c.decode->Next().decode().spec().handicap_us() == prompt + 11 * token);
  c.decode->Send(TokensEvent("first", "abc", FinishReason::kStop));
  CHECK(one.Finish().status.ok());
  c.prefill->Send(DoneEvent("second", Incarnation(22)));
  CHECK(c.decode->Next().decode().spec().handicap_us() == 8 * token);
}

TEST_CASE("Under sjf a prompt counts its upstream's work until the upstream has ended") {
  const ManualClock clock;
  Cluster c(PatientLimits(), Schedule::kShortestFirst, /*keys=*/"", &clock);
  const int64_t bound = absl::ToInt64Microseconds(WorkloadOptions().bound);
  v1::GenerateRequest long_one = Call::Request("up", "hello");
  long_one.mutable_sampling()->set_max_tokens(50);
  Call up(c, long_one);
  PassPrefill(c, "up");
  Call down(c, Downstream("down", "up"));
  const int64_t open = c.prefill->Next().prefill().spec().handicap_us();
  CHECK(open > -bound);
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  REQUIRE(last.last());
  REQUIRE(last.has_handicap_us());
  CHECK(last.handicap_us() < open);  // the upstream request has ended
}

}  // namespace
}  // namespace baton
