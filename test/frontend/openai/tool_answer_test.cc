#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_text.h"
#include "frontend/openai/completion_writer.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

CompletionCall Call(ToolFormat format, bool stream) {
  CompletionCall call;
  call.requests.resize(1);
  call.chat = true;
  call.stream = stream;
  call.tools = format;
  call.tool_names = {"f"};
  return call;
}

CompletionWriter LlamaWriter(const CompletionCall& call) {
  return CompletionWriter(call, **TestModels().Find("llama"), "7", absl::FromUnixSeconds(1000));
}

RequestOutcome OutcomeWith(FinishReason finish) {
  RequestOutcome outcome;
  outcome.finish = finish;
  return outcome;
}

std::string BodyOf(ToolFormat format, const std::vector<TokenUpdate>& updates, FinishReason finish) {
  CompletionWriter writer = LlamaWriter(Call(format, /*stream=*/false));
  std::string out;
  for (const TokenUpdate& update : updates) writer.Update(0, update, out);
  writer.End(0, OutcomeWith(finish), out);
  return writer.Body();
}

TEST_CASE("A stream has a call's name first and its arguments as they arrive") {
  CompletionWriter writer = LlamaWriter(Call(ToolFormat::kHermes, /*stream=*/true));
  std::string out;
  for (const char* text : {"Hm.\n<tool", "_call>{\"name\": \"f\", \"argu", "ments\": {\"x\"", ": 1}}</tool_call>\n",
                           "<tool_call>{\"name\": \"f\"}</tool_call>"}) {
    writer.Update(0, Text(text), out);
  }
  writer.End(0, OutcomeWith(FinishReason::kStop), out);
  const std::string head = StrCat(R"(data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1000,)",
                                  R"("model":"llama","choices":[{"index":0,"delta":{)");
  const std::string tail = "},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
  CHECK(out == StrCat(head, R"("role":"assistant","content":"")", tail, head, R"("content":"Hm.")", tail, head,
                      R"("tool_calls":[{"index":0,"id":"call_7-0-0","type":"function","function":{"name":"f",)",
                      R"("arguments":""}}])", tail, head,
                      R"("tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}])", tail, head,
                      R"("tool_calls":[{"index":0,"function":{"arguments":": 1}"}}])", tail, head,
                      R"("tool_calls":[{"index":1,"id":"call_7-0-1","type":"function","function":{"name":"f",)",
                      R"("arguments":""}}])", tail, head, R"("tool_calls":[{"index":1,"function":{"arguments":"{}"}}])",
                      tail, head, R"(},"logprobs":null,"finish_reason":"tool_calls"}]})", "\n\n", "data: [DONE]\n\n"));
}

TEST_CASE("A body's message has calls, and null content without text") {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  Has(BodyOf(ToolFormat::kHermes, {Text(call)}, FinishReason::kStop),
      R"("message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_7-0-0",)"
      R"("type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"})");
  Has(BodyOf(ToolFormat::kHermes, {Text("A " + call)}, FinishReason::kStop),
      R"("content":"A","refusal":null,"tool_calls")");
  // If the answer ends at its token limit, a later call may be missing.
  Has(BodyOf(ToolFormat::kHermes, {Text(call)}, FinishReason::kLength), R"("finish_reason":"length")");
  Has(BodyOf(ToolFormat::kHermes, {Text("<tool_call>{")}, FinishReason::kStop),
      R"("content":"<tool_call>{","refusal":null},"logprobs":null,"finish_reason":"stop")");
}

TEST_CASE("An answer to a body with functions has the older form of a call") {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>";
  for (const bool stream : {false, true}) {
    CompletionCall older = Call(ToolFormat::kHermes, stream);
    older.one_tool_call = older.legacy_calls = true;
    CompletionWriter writer = LlamaWriter(older);
    std::string out;
    writer.Update(0, Text("A " + call + call), out);
    writer.End(0, OutcomeWith(FinishReason::kStop), out);
    if (!stream) out = writer.Body();
    if (stream) {
      Has(out, R"("function_call":{"name":"f","arguments":""}})");
      Has(out, R"("function_call":{"arguments":"{\"x\": 1}"}})");
    } else {
      Has(out, R"("function_call":{"name":"f","arguments":"{\"x\": 1}"}})");
    }
    Has(out, R"("finish_reason":"function_call")");
    CHECK(out.find("tool_calls") == std::string::npos);
    CHECK(out.find("\"name\":") == out.rfind("\"name\":"));
  }
}

TEST_CASE("CompletionWriter counts calls of strict tools that fit their schema") {
  CompletionCall call = Call(ToolFormat::kHermes, /*stream=*/true);
  call.samples = 2;
  call.strict_tools.push_back({.name = "f", .schema = ArgumentSchema(Json::parse(R"({"required": ["x"]})"))});
  CompletionWriter writer = LlamaWriter(call);
  std::string out;
  for (const size_t choice : {0, 1}) {
    for (const char* arguments : {"{\"x\": 1}", "{}", "{\"x\": 2}"}) {
      writer.Update(choice, Text(StrCat("<tool_call>{\"name\": \"f\", \"arguments\": ", arguments, "}</tool_call>")),
                    out);
    }
    writer.Update(choice, Text("<tool_call>{\"name\": \"g\"}</tool_call>"), out);
    writer.End(choice, OutcomeWith(FinishReason::kStop), out);
  }
  CHECK(writer.strict_calls().matched == 4);
  CHECK(writer.strict_calls().mismatched == 2);
}

TEST_CASE("An answer that ends inside a call has the arguments so far") {
  const std::vector<TokenUpdate> updates = {Text("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"é")};
  Has(BodyOf(ToolFormat::kHermes, updates, FinishReason::kLength),
      R"("content":null,"refusal":null,"tool_calls":[{"id":"call_7-0-0","type":"function","function":{"name":"f",)"
      R"("arguments":"{\"x\": \"é"}}]},"logprobs":null,"finish_reason":"length")");
  CompletionCall call = Call(ToolFormat::kHermes, /*stream=*/true);
  call.strict_tools.push_back({.name = "f", .schema = ArgumentSchema(Json::object())});
  CompletionWriter writer = LlamaWriter(call);
  std::string out;
  writer.Update(0, updates[0], out);
  Has(out, R"("function":{"arguments":"{\"x\": \"é"}}])");
  writer.End(0, OutcomeWith(FinishReason::kLength), out);
  Has(out, R"("finish_reason":"length")");
  CHECK(writer.strict_calls().matched == 0);
  CHECK(writer.strict_calls().mismatched == 1);
}

TEST_CASE("CompletionWriter shows only the first call when calls are not parallel") {
  const bool stream = GENERATE(false, true);
  CompletionCall call = Call(ToolFormat::kHermes, stream);
  call.one_tool_call = true;
  CompletionWriter writer = LlamaWriter(call);
  std::string out;
  for (const char* name : {"first", "second"}) {
    writer.Update(0, Text(StrCat("<tool_call>{\"name\": \"", name, "\"}</tool_call>")), out);
  }
  writer.Update(0, Text("Done."), out);
  writer.End(0, OutcomeWith(FinishReason::kStop), out);
  if (!stream) out = writer.Body();
  Has(out, R"("name":"first")");
  Has(out, "Done.");
  Has(out, R"("finish_reason":"tool_calls")");
  CHECK(out.find("second") == std::string::npos);
}

TEST_CASE("Without tools, an answer that looks like a call is text") {
  Has(BodyOf(ToolFormat::kNone, {Text("<tool_call>{\"name\": \"f\"}</tool_call>")}, FinishReason::kStop),
      R"("content":"<tool_call>{\"name\": \"f\"}</tool_call>")");
}

TEST_CASE("CompletionWriter finds a call's tag by its id, also in held-back text") {
  TokenUpdate tag;
  tag.tokens = {MarkedTokenizer::kPythonTag};
  TokenUpdate held = Text("Hm. ");  // the last byte may begin a stop string
  held.text = "Hm.";
  TokenUpdate rest = Text("{\"name\": \"f\"}");
  rest.text = " " + rest.text;
  rest.tokens.push_back(MarkedTokenizer::kEnd);
  Has(BodyOf(ToolFormat::kLlama, {held, tag, rest}, FinishReason::kStop),
      R"("content":"Hm. ","refusal":null,"tool_calls":[{"id":"call_7-0-0","type":"function","function":{"name":"f")");
}

TEST_CASE("An answer has no tag that a stop string or a stop id ends") {
  CompletionCall call = Call(ToolFormat::kLlama, GENERATE(false, true));
  const auto answer = [&](const std::string& stop, std::vector<TokenUpdate> updates) {
    *call.requests[0].mutable_sampling()->mutable_stop()->Add() = stop;
    updates.back().finish = FinishReason::kStop;
    CompletionWriter writer = LlamaWriter(call);
    std::string out;
    for (const TokenUpdate& update : updates) writer.Update(0, update, out);
    writer.End(0, OutcomeWith(FinishReason::kStop), out);
    if (!call.stream) out = writer.Body();
    CHECK(out.find("python_tag") == std::string::npos);
    return out;
  };
  TokenUpdate tag;
  tag.tokens = {MarkedTokenizer::kPythonTag};
  TokenUpdate brace;
  brace.tokens = {'{'};
  SECTION("the name") { Has(answer("<|python_tag|>", {Text("Hm."), tag}), R"("content":"Hm.")"); }
  SECTION("the id") { Has(answer("x", {Text("Hm."), tag}), R"("content":"Hm.")"); }
  SECTION("a stop string that begins with the name") {
    Has(answer("<|python_tag|>{", {Text("Hm."), tag, brace}), R"("content":"Hm.")");
  }
  SECTION("a stop string that does not occur") {
    TokenUpdate end = Text("{\"name\": \"f\"}");
    end.tokens.push_back(MarkedTokenizer::kEnd);
    Has(answer("<|python_tag|>[", {Text("Hm."), tag, end}), R"("finish_reason":"tool_calls")");
  }
}

}  // namespace
}  // namespace baton
