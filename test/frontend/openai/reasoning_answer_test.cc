#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_text.h"
#include "frontend/openai/completion_writer.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

CompletionWriter Writer(bool stream, ToolFormat tools = ToolFormat::kNone, bool logprobs = false) {
  CompletionCall call;
  call.requests.resize(1);
  call.chat = true;
  call.stream = stream;
  call.tools = tools;
  if (logprobs) call.logprobs = 0;
  CompletionWriter writer(call, **TestModels().Find("think"), "7", absl::FromUnixSeconds(1000));
  writer.SetThinking(Thinking::kMay);
  return writer;
}

TokenUpdate Special(TokenId id) {
  TokenUpdate update;
  update.tokens = {id};
  return update;
}

std::string Finish(CompletionWriter& writer, FinishReason finish = FinishReason::kStop) {
  RequestOutcome outcome;
  outcome.finish = finish;
  std::string out;
  writer.End(0, outcome, out);
  return out;
}

TEST_CASE("A body's message has the reasoning beside the content") {
  CompletionWriter writer = Writer(/*stream=*/false);
  std::string out;
  for (const char* text : {"<thi", "nk>\nhm", "\n</think>", "\n\nhello"}) writer.Update(0, Text(text), out);
  Finish(writer);
  Has(writer.Body(), R"("content":"\n\nhello","refusal":null,"reasoning_content":"\nhm\n"},"logprobs":null)");
}

TEST_CASE("An answer that ends while the model thinks has no content") {
  CompletionWriter writer = Writer(/*stream=*/false);
  std::string out;
  writer.Update(0, Text("<think>hm"), out);
  Finish(writer, FinishReason::kLength);
  Has(writer.Body(), R"("content":null,"refusal":null,"reasoning_content":"hm"})");
}

TEST_CASE("A stream's deltas have reasoning, then content, then calls") {
  CompletionWriter writer = Writer(/*stream=*/true, ToolFormat::kHermes);
  std::string out;
  for (const char* text : {"<think>", "h", "m</think>so", "\n<tool_call>{\"name\": \"f\"}</tool_call>"}) {
    writer.Update(0, Text(text), out);
  }
  out += Finish(writer);
  const std::string head = StrCat(R"(data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1000,)",
                                  R"("model":"think","choices":[{"index":0,"delta":{)");
  const std::string tail = "},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
  CHECK(out == StrCat(head, R"("role":"assistant","content":"")", tail, head, R"("reasoning_content":"h")", tail, head,
                      R"("reasoning_content":"m")", tail, head, R"("content":"so")", tail, head,
                      R"("tool_calls":[{"index":0,"id":"call_7-0-0","type":"function","function":{"name":"f",)",
                      R"("arguments":""}}])", tail, head, R"("tool_calls":[{"index":0,"function":{"arguments":"{}"}}])",
                      tail, head, R"(},"logprobs":null,"finish_reason":"tool_calls"}]})", "\n\n", "data: [DONE]\n\n"));
}

TEST_CASE("A tool call inside reasoning is not a call") {
  CompletionWriter writer = Writer(/*stream=*/false, ToolFormat::kHermes);
  std::string out;
  writer.Update(0, Text("<think><tool_call>{\"name\": \"f\"}</tool_call></think>no"), out);
  Finish(writer);
  Has(writer.Body(), R"("content":"no","refusal":null,"reasoning_content":"<tool_call>)");
}

TEST_CASE("CompletionWriter finds tags of reasoning by their ids as special tokens") {
  CompletionWriter writer = Writer(/*stream=*/false);
  std::string out;
  for (const TokenUpdate& update :
       {Special(MarkedTokenizer::kThink), Text("hm"), Special(MarkedTokenizer::kThought), Text("hello")}) {
    writer.Update(0, update, out);
  }
  Finish(writer);
  Has(writer.Body(), R"("content":"hello","refusal":null,"reasoning_content":"hm"})");
}

TEST_CASE("Log probabilities come with the reasoning's tokens, once") {
  CompletionWriter writer = Writer(/*stream=*/true, ToolFormat::kNone, /*logprobs=*/true);
  std::string out;
  writer.Update(0, Text("<think>h</think>x", /*logprobs=*/true), out);
  out += Finish(writer);
  const size_t reasoning = out.find("\"reasoning_content\":\"h\"},\"logprobs\":{");
  REQUIRE(reasoning != std::string::npos);
  CHECK(out.find("\"content\":\"x\"},\"logprobs\":null") > reasoning);
}

TEST_CASE("Log probabilities wait for text and make no empty event") {
  CompletionWriter writer = Writer(/*stream=*/true, ToolFormat::kNone, /*logprobs=*/true);
  std::string begun, thought, closed, content;
  writer.Update(0, Text("<think>", /*logprobs=*/true), begun);
  writer.Update(0, Text("hm", /*logprobs=*/true), thought);
  writer.Update(0, Text("</think>", /*logprobs=*/true), closed);
  writer.Update(0, Text("x", /*logprobs=*/true), content);
  CHECK(begun.find("\"content\":\"\"") == begun.rfind("\"content\":\"\""));  // only with the role
  Has(thought, R"("reasoning_content":"hm"},"logprobs":{"content":[{"token":"<")");
  CHECK(closed.empty());
  Has(content, R"("content":"x"},"logprobs":{"content":[{"token":"<")");
  Has(Finish(writer), R"("logprobs":null,"finish_reason":"stop")");
}

}  // namespace
}  // namespace baton
