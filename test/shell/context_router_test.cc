// Tests of contexts through a router with real sockets. The workers are fakes.
#include <future>

#include "router_cluster.h"

namespace baton {
namespace {

v1::PrefillOnlyRequest Addition(const std::string& text, std::optional<int32_t> length = {}) {
  v1::PrefillOnlyRequest request;
  request.set_context_id("c");
  if (length) request.set_context_length(*length);
  if (!text.empty()) request.mutable_segments()->add_segments()->set_text(text);
  return request;
}

v1::GenerateRequest Continuation(const std::string& text) {
  v1::GenerateRequest request = Call::Request("", text);
  if (text.empty()) request.clear_segments();
  request.set_context_id("c");
  return request;
}

struct Answer {
  v1::PrefillOnlyResponse response;
  absl::Status status;
};

std::future<Answer> Start(Cluster& c, v1::PrefillOnlyRequest request) {
  return std::async(std::launch::async, [&c, request] {
    grpc::ClientContext context;
    Answer answer;
    answer.status = FromGrpc(c.stub->PrefillOnly(&context, request, &answer.response));
    return answer;
  });
}

// Runs a call that the prefill worker computes. Returns the answer and the text of the worker's
// job.
std::pair<v1::PrefillOnlyResponse, std::string> Add(Cluster& c, const v1::PrefillOnlyRequest& request) {
  std::future<Answer> call = Start(c, request);
  const worker::v1::PrefillJob job = c.prefill->Next().prefill();
  CHECK(job.decode_worker().empty());
  CHECK(job.lease().tokens() == job.spec().tokens_size());
  CHECK(job.lease().duration_us() == 60'000'000);
  c.prefill->Send(DoneEvent(job.request_id(), Incarnation()));
  const Answer answer = call.get();
  CHECK(Message(answer.status) == "");
  return {answer.response, TextOf(job.spec().tokens())};
}

TEST_CASE("A context grows call by call, ignores repeated calls, and Generate continues it") {
  Cluster c;
  const auto [first, first_prompt] = Add(c, Addition("one ", 0));
  CHECK(first_prompt == "one ");
  CHECK(first.context_length() == 4);
  CHECK(first.lease_ms() == 60'000);
  CHECK(first.usage().prompt_tokens() == 4);
  CHECK(first.usage().cached_tokens() == 3);  // as the worker reported
  for (int i = 0; i < 2; ++i) {
    const auto [second, prompt] = Add(c, Addition("two ", 4));
    CHECK(prompt == "one two ");
    CHECK(second.context_length() == 8);
    const auto [again, again_prompt] = Add(c, Addition("one ", 0));
    CHECK(again_prompt == "one ");
    CHECK(again.context_length() == 4);
  }
  for (const std::string more : {"three", ""}) {
    Call call(c, Continuation(more));
    const worker::v1::PrefillJob job = c.prefill->Next().prefill();
    CHECK(TextOf(job.spec().tokens()) == "one two " + more);
    CHECK(job.decode_worker() == c.decode->address());
    CHECK(job.lease().tokens() == 8);
    c.prefill->Send(DoneEvent(job.request_id(), Incarnation(22)));
    CHECK(TextOf(c.decode->Next().decode().spec().tokens()) == "one two " + more);
    c.decode->Send(TokensEvent(job.request_id(), "!", FinishReason::kStop));
    const Call::Result result = call.Finish();
    CHECK(result.text == "!");
    CHECK(result.final.context_length() == 8);
    CHECK(result.final.lease_ms() == 60'000);
  }
  CHECK(Add(c, Addition("", 8)).first.context_length() == 8);
}

TEST_CASE("A context starts with the tokenizer's prefix once") {
  Cluster c;
  c.Serve(ByteModel("bytes", {'<'}));
  CHECK(Add(c, Addition("a", 0)).second == "<a");
  CHECK(Add(c, Addition("b", 2)).second == "<ab");
  CHECK(Add(c, Addition("a", 0)).second == "<a");
}

TEST_CASE("Generate with max_tokens 0 acts as PrefillOnly without a decode worker") {
  Cluster c;
  c.decode.reset();
  int32_t length = 0;
  for (const bool with_context : {false, true, true}) {
    v1::GenerateRequest request = Call::Request("", "hello");
    request.mutable_sampling()->set_max_tokens(0);
    if (with_context) {
      request.set_context_id("c");
      request.set_context_length(0);
      length = 5;
    }
    Call call(c, request);
    const worker::v1::PrefillJob job = c.prefill->Next().prefill();
    CHECK(job.decode_worker().empty());
    CHECK(job.lease().tokens() == length);
    c.prefill->Send(DoneEvent(job.request_id(), Incarnation()));
    const Call::Result result = call.Finish();
    CHECK(Message(result.status) == "");
    CHECK(result.ids.empty());
    CHECK(result.final.finish_reason() == v1::FINISH_REASON_LENGTH);
    CHECK(result.final.usage().prompt_tokens() == 5);
    CHECK(result.final.usage().completion_tokens() == 0);
    CHECK(result.final.context_length() == length);
  }
}

TEST_CASE("A failed, cancelled or refused call leaves the context unchanged and free") {
  Cluster c;
  Add(c, Addition("one ", 0));
  std::future<Answer> failing = Start(c, Addition("two ", 4));
  const RequestId id = c.prefill->Next().prefill().request_id();
  // While this call runs, no other call adds to the context, but calls may read it.
  CHECK(absl::IsAborted(Start(c, Addition("two ", 4)).get().status));
  Call reader(c, Continuation(""));
  const RequestId reading = c.prefill->Next().prefill().request_id();
  c.prefill->Send(FailedEvent<worker::v1::PrefillEvent>(id, absl::InternalError("broken")));
  CHECK(absl::IsInternal(failing.get().status));
  v1::PrefillOnlyRequest twice = Addition("two ", 4);
  twice.set_request_id(reading);
  CHECK(absl::IsAlreadyExists(Start(c, twice).get().status));
  CHECK(Add(c, Addition("2", 4)).second == "one 2");
}

TEST_CASE("A call may add another request's output, and its repetition adds nothing") {
  Cluster c;
  Add(c, Addition("one ", 0));
  Call up(c, "up");
  PassPrefill(c, "up");
  v1::PrefillOnlyRequest request = Addition("", 4);
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("up");
  std::future<Answer> call = Start(c, request);
  const worker::v1::PrefillJob open = c.prefill->Next().prefill();
  CHECK(open.open());
  c.decode->Send(TokensEvent("up", "abc", FinishReason::kStop));
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(TextOf(open.spec().tokens()) + TextOf(last.tokens()) == "one abc");
  CHECK(last.lease().tokens() == 7);
  c.prefill->Send(DoneEvent(open.request_id(), Incarnation()));
  CHECK(call.get().response.context_length() == 7);
  CHECK(up.Finish().status.ok());
  CHECK(Add(c, request).first.context_length() == 7);
  request.mutable_segments()->add_segments()->set_text("!");
  CHECK(absl::IsFailedPrecondition(Start(c, request).get().status));
}

TEST_CASE("A router refuses an unknown, foreign, full or misused context by field") {
  Cluster c;
  Add(c, Addition("one ", 0));
  const auto refusal = [&](const v1::PrefillOnlyRequest& request) { return Start(c, request).get().status; };
  v1::PrefillOnlyRequest other = Addition("two", 4);
  other.set_cache_salt("another");
  const absl::Status unknown =
      absl::NotFoundError("context_id: no context 'c' at this router; a context is kept for 1m after its last use");
  CHECK(refusal(other) == unknown);
  v1::GenerateRequest generate = Continuation("");
  generate.set_cache_salt("another");
  CHECK(Call(c, generate).Finish().status == unknown);
  CHECK(refusal(Addition("two", 5)) ==
        absl::FailedPreconditionError("context_length: expected 4 (the length of context 'c'), got 5"));
  CHECK(refusal(Addition(std::string(61, 'x'), 4)) ==
        absl::InvalidArgumentError("segments.segments: 65 tokens, limit 64 (context length 64 of 'bytes')"));
  CHECK(Message(Call(c, Continuation(std::string(59, 'x'))).Finish().status) ==
        "sampling.max_tokens: 8 after a prompt of 63 tokens, limit 1 (context length 64 of 'bytes')");
  v1::PrefillOnlyRequest fresh = Addition("");
  fresh.set_context_id("new");
  CHECK(refusal(fresh) == absl::InvalidArgumentError("prompt: is empty, expected at least one token"));
  CHECK(Add(c, Addition("two", 4)).second == "one two");
}

TEST_CASE("A router computes a context again when its worker is lost") {
  Cluster c;
  Add(c, Addition("one ", 0));
  std::future<Answer> lost = Start(c, Addition("two ", 4));
  CHECK(TextOf(c.prefill->Next().prefill().spec().tokens()) == "one two ");
  const WorkerAddress address = c.prefill->address();
  c.prefill.reset();
  c.prefill.emplace(WorkerRole::kPrefill, 12, address);
  const worker::v1::PrefillJob again = c.prefill->Next().prefill();
  CHECK(TextOf(again.spec().tokens()) == "one two ");
  c.prefill->Send(DoneEvent(again.request_id(), Incarnation(0)));
  CHECK(lost.get().status.ok());
}

}  // namespace
}  // namespace baton
