// Values over both APIs, through a router with real sockets: outputs that a client writes.
#include <string>

#include "absl/strings/str_cat.h"
#include "http_client.h"
#include "metric_value.h"
#include "nlohmann/json.hpp"
#include "raw_call.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

v1::GenerateRequest ReaderOf(const std::string& id, const std::string& value, bool announced) {
  v1::GenerateRequest request = Call::Request(id, "0123456789");
  v1::OutputOf& reference = *request.mutable_segments()->add_segments()->mutable_output_of();
  reference.set_request_id(value);
  reference.set_announced(announced);
  request.mutable_segments()->add_segments()->set_text("!");
  return request;
}

v1::PutOutputRequest ValueNamed(const std::string& id, const std::string& text = "") {
  v1::PutOutputRequest message;
  message.set_request_id(id);
  message.set_workflow("w");
  message.set_agent("tool");
  message.set_text(text);
  return message;
}

// A PutOutput call that a test controls.
struct Put {
  grpc::ClientContext context;
  v1::PutOutputResponse response;
  std::unique_ptr<grpc::ClientWriter<v1::PutOutputRequest>> writer;

  explicit Put(Cluster& c) : writer(c.stub->PutOutput(&context, &response)) {}
  void Text(const std::string& text) {
    v1::PutOutputRequest message;
    message.set_text(text);
    CHECK(writer->Write(message));
  }
  absl::Status End() {
    writer->WritesDone();
    return FromGrpc(writer->Finish());
  }
};

absl::Status PutAll(Cluster& c, const std::vector<v1::PutOutputRequest>& messages) {
  Put put(c);
  for (const v1::PutOutputRequest& message : messages) {
    if (!put.writer->Write(message)) break;  // the call has ended
  }
  return put.End();
}

HttpAnswer PostValue(Cluster& c, const std::string& id, const std::string& body) {
  HttpClient client(c.node->http()->address());
  client.Post("/v1/outputs/" + id, body);
  return client.Read();
}

// Submits a request that refers to a value which has arrived. Returns its prompt.
std::string PromptWith(Cluster& c, const std::string& id, const std::string& value) {
  Call down(c, ReaderOf(id, value, /*announced=*/false));
  const worker::v1::PrefillJob job = c.prefill->Next().prefill();
  CHECK(job.request_id() == id);
  CHECK_FALSE(job.open());
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == id);
  c.decode->Send(TokensEvent(id, "ok", FinishReason::kStop));
  CHECK(down.Finish().text == "ok");
  return TextOf(job.spec().tokens());
}

// OK may arrive a little before the value counts as complete.
void AwaitEnds(Cluster& c, const std::string& code, int count) {
  Await("the end of the value",
        [&] { return MetricValue(c.metrics, "baton_values_total{code=\"" + code + "\"}") == count; });
}

TEST_CASE("A streamed value is prefilled as it arrives, and completes its prompt") {
  Cluster c;
  Call down(c, ReaderOf("down", "v", /*announced=*/true));
  CHECK(c.prefill->Next().prefill().open());
  Put put(c);
  CHECK(put.writer->Write(ValueNamed("v", "abcd")));
  put.Text("efgh");
  const worker::v1::PrefillAppend append = c.prefill->Next().append();
  CHECK(TextOf(append.tokens()) == "0123456789abcdefg");
  CHECK_FALSE(append.last());
  put.Text("ij");
  CHECK(put.End().ok());
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(TextOf(last.tokens()) == "hij!");
  CHECK(last.last());
  c.prefill->Send(DoneEvent("down", Incarnation(22)));
  const DecodeJob decode = FromProto(c.decode->Next().decode());
  CHECK(std::string(decode.spec.tokens.begin(), decode.spec.tokens.end()) == "0123456789abcdefghij!");
  c.decode->Send(TokensEvent("down", "ok", FinishReason::kStop));
  CHECK(down.Finish().text == "ok");
}

TEST_CASE("A value over HTTP equals the same value over gRPC, as text and as token ids") {
  Cluster c;
  const HttpAnswer answer = PostValue(c, "one%3A1", R"({"text": "caf\u00e9 <s>", "agent": "tool", "workflow": "w"})");
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("x-request-id") == "one:1");
  CHECK(answer.body == R"({"id":"one:1","object":"output"})");
  CHECK(PromptWith(c, "a", "one:1") == "0123456789caf\u00e9 <s>!");
  CHECK(PutAll(c, {ValueNamed("two", "caf\u00e9 <s>")}).ok());
  AwaitEnds(c, "OK", 2);
  CHECK(PromptWith(c, "b", "two") == "0123456789caf\u00e9 <s>!");
  CHECK(PostValue(c, "three", R"({"token_ids": [99, 97], "model": "bytes"})").status == 200);
  CHECK(PromptWith(c, "c", "three") == "0123456789ca!");
  v1::PutOutputRequest ids = ValueNamed("four");
  ids.set_model("bytes");
  ids.add_token_ids('c');
  v1::PutOutputRequest more;
  more.add_token_ids('a');
  CHECK(PutAll(c, {ids, more}).ok());
  AwaitEnds(c, "OK", 4);
  CHECK(PromptWith(c, "d", "four") == "0123456789ca!");
}

TEST_CASE("A value whose client leaves fails as a cancelled upstream request does") {
  Cluster c;
  Call down(c, ReaderOf("down", "v", /*announced=*/true));
  CHECK(c.prefill->Next().prefill().open());
  {
    Put put(c);
    CHECK(put.writer->Write(ValueNamed("v", "abcdefgh")));
    CHECK_FALSE(c.prefill->Next().append().last());
    put.context.TryCancel();
    CHECK(absl::IsCancelled(put.End()));
  }
  const absl::Status failed = down.Finish().status;
  CHECK(CodeAndMessage(failed) ==
        "ABORTED: output_of 'v' (agent 'tool'): CANCELLED: the client cancelled, or its connection broke");
  CHECK(c.prefill->Next().cancel().request_id() == "down");
  // Its client may send it again.
  CHECK(PutAll(c, {ValueNamed("v", "abc")}).ok());
  AwaitEnds(c, "OK", 1);
  CHECK(PromptWith(c, "again", "v") == "0123456789abc!");
}

TEST_CASE("A value that fails gives its reason to the prompts that wait for it") {
  Cluster c;
  Call down(c, ReaderOf("down", "v", /*announced=*/true));
  CHECK(c.prefill->Next().prefill().open());
  if (GENERATE(false, true)) {
    v1::PutOutputRequest failed;
    failed.set_error("TimeoutError: no answer");
    CHECK(PutAll(c, {ValueNamed("v", "half"), failed}).ok());
  } else {
    CHECK(PostValue(c, "v", R"({"agent": "tool", "error": "TimeoutError: no answer"})").status == 200);
  }
  CHECK(CodeAndMessage(down.Finish().status) ==
        "ABORTED: output_of 'v' (agent 'tool'): ABORTED: TimeoutError: no answer");
}

TEST_CASE("A router that stops ends values that are not complete") {
  Cluster c;
  Put put(c);
  CHECK(put.writer->Write(ValueNamed("v", "abc")));
  Await("the value", [&] { return MetricValue(c.metrics, "baton_live_values") == 1; });
  c.node.reset();
  CHECK(absl::IsUnavailable(put.End()));
}

TEST_CASE("A trace has a workflow's values, with their agent and their error") {
  Cluster c;
  CHECK(PutAll(c, {ValueNamed("good", "abc")}).ok());
  AwaitEnds(c, "OK", 1);
  Put live(c);
  CHECK(live.writer->Write(ValueNamed("live")));
  Await("the value", [&] { return MetricValue(c.metrics, "baton_live_values") == 1; });
  v1::TraceRequest request;
  request.set_workflow("w");
  grpc::ClientContext context;
  v1::TraceResponse trace;
  REQUIRE(c.stub->Trace(&context, request, &trace).ok());
  REQUIRE(trace.requests_size() == 2);
  CHECK(trace.requests(0).request_id() == "good");
  CHECK(trace.requests(0).agent() == "tool");
  CHECK(trace.requests(0).over());
  CHECK(trace.requests(0).error().empty());
  CHECK(trace.requests(0).usage().completion_tokens() == 0);
  CHECK(trace.requests(1).request_id() == "live");
  CHECK_FALSE(trace.requests(1).over());
  for (const v1::Span& span : trace.requests(1).spans()) CHECK(span.phase() == v1::Span::PHASE_WAITING);
}

TEST_CASE("A second value or a request with the id of a value is refused") {
  Cluster c;
  CHECK(PostValue(c, "v", R"({"text": "once"})").status == 200);
  CHECK(PostValue(c, "v", R"({"text": "twice"})").status == 409);
  CHECK(absl::IsAlreadyExists(PutAll(c, {ValueNamed("v", "twice")})));
  CHECK(absl::IsAlreadyExists(Call(c, Call::Request("v", "x")).Finish().status));
  CHECK(PromptWith(c, "down", "v") == "0123456789once!");
  // The same id with another salt is another value.
  CHECK(PostValue(c, "v", R"({"text": "other", "cache_salt": "salt"})").status == 200);
  v1::GenerateRequest salted = ReaderOf("salted", "w", /*announced=*/false);
  CHECK(PostValue(c, "w", R"({"text": "other", "cache_salt": "salt"})").status == 200);
  CHECK(absl::IsNotFound(Call(c, salted).Finish().status));
}

TEST_CASE("A malformed value over gRPC is refused, and ends the prompts that wait for it") {
  Cluster c;
  v1::PutOutputRequest unnamed, both = ValueNamed("v", "a"), unknown = ValueNamed("v"), wrong = ValueNamed("v"),
                                bare = ValueNamed("v");
  unnamed.set_text("a");
  both.set_model("bytes");
  unknown.set_model("nobody");
  wrong.set_model("bytes");
  wrong.add_token_ids(1 << 30);
  bare.add_token_ids(1);
  v1::PutOutputRequest long_agent = ValueNamed("v"), slash = ValueNamed("a/b");
  long_agent.set_agent(std::string(129, 'a'));
  v1::PutOutputRequest long_error = ValueNamed("v");
  long_error.set_error(std::string(1025, 'a'));
  const std::string mib(1 << 20, 'a');
  v1::PutOutputRequest more;
  more.set_text("a");
  v1::PutOutputRequest limited, unlimited = ValueNamed("v");
  limited.mutable_workflow_limits()->set_deadline_ms(5);
  unlimited.clear_workflow();
  v1::PutOutputRequest unknown_only;
  unknown_only.set_if_unknown(true);
  unlimited.mutable_workflow_limits()->set_deadline_ms(5);
  const std::pair<std::vector<v1::PutOutputRequest>, std::string> cases[] = {
      {{}, "INVALID_ARGUMENT: request_id: the stream has no message"},
      {{unnamed}, "INVALID_ARGUMENT: request_id: is empty, expected an id"},
      {{slash}, "INVALID_ARGUMENT: request_id: "},
      {{long_agent}, "INVALID_ARGUMENT: agent: 129 bytes, limit 128"},
      {{long_error}, "INVALID_ARGUMENT: error: 1025 bytes, limit 1024"},
      {{both}, "INVALID_ARGUMENT: text: expected token_ids"},
      {{unknown}, "INVALID_ARGUMENT: model: expected one of"},
      {{wrong}, "INVALID_ARGUMENT: token_ids[0]: expected [0, "},
      {{bare}, "INVALID_ARGUMENT: token_ids: requires `model`"},
      {{ValueNamed("v"), ValueNamed("v")}, "INVALID_ARGUMENT: request_id: expected in the first message only"},
      {{ValueNamed("v"), limited}, "INVALID_ARGUMENT: workflow_limits: expected in the first message only"},
      {{ValueNamed("v"), unknown_only}, "INVALID_ARGUMENT: if_unknown: expected in the first message only"},
      {{unlimited}, "INVALID_ARGUMENT: workflow_limits: requires a workflow"},
      {{ValueNamed("v", mib), more}, "INVALID_ARGUMENT: text: 1048577 bytes, limit 1048576"},
      {{ValueNamed("v", mib + "a")}, "INVALID_ARGUMENT: text: 1048577 bytes, limit 1048576 for one value"},
  };
  int number = 0;
  for (auto [messages, expected] : cases) {
    CAPTURE(expected);
    const std::string id = absl::StrCat("down", number), value = absl::StrCat("v", number++);
    // Otherwise the value's id is malformed, or its stream has none.
    const bool waits = !messages.empty() && messages[0].request_id() == "v";
    std::optional<Call> down;
    if (waits) {
      messages[0].set_request_id(value);
      down.emplace(c, ReaderOf(id, value, /*announced=*/true));
      CHECK(c.prefill->Next().prefill().open());
    }
    CHECK(CodeAndMessage(PutAll(c, messages)).starts_with(expected));
    if (!waits) continue;
    // A prompt with a long value is too long before the value is.
    const absl::Status ended = down->Finish().status;
    CHECK((absl::IsAborted(ended) || absl::IsInvalidArgument(ended)));
    while (!c.prefill->Next().has_cancel()) continue;
  }
}

TEST_CASE("A message that cuts a character is refused with the name of its field") {
  Cluster c;
  v1::PutOutputRequest message = ValueNamed("v", "cafXX");
  std::string bytes = message.SerializeAsString();
  bytes.replace(bytes.find("XX"), 2, "e\xC3");
  std::string response;
  const grpc::Status status = RawCall(c.channel, "/baton.v1.Inference/PutOutput", bytes, response);
  CHECK(CodeAndMessage(FromGrpc(status)) == "INVALID_ARGUMENT: text: is not valid UTF-8");
}

TEST_CASE("A malformed value over HTTP is refused with the name of its field") {
  Cluster c;
  const std::tuple<const char*, std::string, int, const char*> cases[] = {
      {"v", "", 400, ""},
      {"v", "[]", 400, ""},
      {"v", "{}", 400, "text: expected text, token_ids or error, got none"},
      {"v", R"({"text": "a", "token_ids": [1], "model": "bytes"})", 400, "text: expected text or token_ids, got both"},
      {"v", R"({"text": 1})", 400, "text: "},
      {"v", R"({"text": "\ud800"})", 400, ""},
      {"v", "{\"text\": \"\xC3\"}", 400, ""},
      {"v", R"({"text": "a", "model": "bytes"})", 400, "text: expected token_ids"},
      {"v", R"({"text": "a", "txt": "b"})", 400, "txt: "},
      {"v", R"({"token_ids": [1]})", 400, "token_ids: requires `model`"},
      {"v", R"({"token_ids": [1.5], "model": "bytes"})", 400, "token_ids[0]: "},
      {"v", R"({"token_ids": [[]], "model": "bytes"})", 400, "token_ids[0]: "},
      {"v", R"({"token_ids": [-1], "model": "bytes"})", 400, "token_ids[0]: "},
      {"v", R"({"token_ids": [1e300], "model": "bytes"})", 400, "token_ids[0]: "},
      {"v", R"({"token_ids": [1], "model": "nobody"})", 400, "model: expected one of"},
      {"v", R"({"text": "a", "agent": {}})", 400, "agent: "},
      {"v", "{\"text\": \"" + std::string((1 << 20) + 1, 'a') + "\"}", 400, "text: 1048577 bytes, limit 1048576"},
      {"a%20b", R"({"text": "a"})", 400, "request_id: "},
      {"", R"({"text": "a"})", 404, ""},
  };
  for (const auto& [id, body, status, words] : cases) {
    CAPTURE(id, body.substr(0, 80));
    const HttpAnswer answer = PostValue(c, id, body);
    CHECK(answer.status == status);
    const std::string message = json::parse(answer.body)["error"]["message"];
    CHECK(message.starts_with(words));
  }
  // An empty text is a value.
  CHECK(PostValue(c, "empty", R"({"text": ""})").status == 200);
  CHECK(PromptWith(c, "down", "empty") == "0123456789!");
}

TEST_CASE("A refused value over HTTP ends the prompts that wait for it") {
  Cluster c;
  Call down(c, ReaderOf("down", "v", /*announced=*/true));
  CHECK(c.prefill->Next().prefill().open());
  CHECK(PostValue(c, "v", R"({"text": "a", "txt": "b"})").status == 400);
  CHECK(absl::IsAborted(down.Finish().status));
}

}  // namespace
}  // namespace baton
