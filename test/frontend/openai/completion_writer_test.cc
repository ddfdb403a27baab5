#include "frontend/openai/completion_writer.h"

#include <algorithm>
#include <random>

#include "base/json/json_body.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/answer_calls.h"
#include "frontend/openai/answer_text.h"
#include "frontend/openai/openai_model.h"
#include "seeds.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace baton {
namespace {

TokenUpdate Update(TokenId id, std::string text, float logprob, std::vector<std::pair<TokenId, float>> top) {
  TokenUpdate update;
  update.text = std::move(text);
  update.tokens = {id};
  update.logprobs = {{.logprob = logprob, .top = std::move(top)}};
  return update;
}

RequestOutcome Outcome(FinishReason finish, int32_t prompt = 5, int32_t cached = 2, int32_t completion = 3) {
  RequestOutcome outcome;
  outcome.finish = finish;
  outcome.prompt_tokens = prompt;
  outcome.cached_tokens = cached;
  outcome.completion_tokens = completion;
  return outcome;
}

// Returns the text of the tokens with U+FFFD for an incomplete character at the end.
std::string TokensTextWithoutNames(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

constexpr char kUsage[] =
    R"({"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}})";

TEST_CASE("A whole completion is one JSON body") {
  CompletionWriter writer = AnswerWriter(AnswerCall(/*chat=*/false, /*stream=*/false));
  std::string out;
  writer.Update(0, Text("Hi \"you\""), out);
  CHECK_FALSE(writer.done());
  writer.Update(0, Text("\n"), out);
  writer.End(0, Outcome(FinishReason::kLength), out);
  CHECK(out.empty());
  REQUIRE(writer.done());
  CHECK(writer.Body() == StrCat(R"({"id":"cmpl-7","object":"text_completion","created":1000,"model":"plain",)",
                                R"("choices":[{"index":0,"text":"Hi \"you\"\n","logprobs":null,)",
                                R"("finish_reason":"length"}],"usage":)", kUsage, "}"));
}

TEST_CASE("A whole chat is one JSON body") {
  CompletionWriter writer = AnswerWriter(AnswerCall(/*chat=*/true, /*stream=*/false));
  std::string out;
  writer.Update(0, Text("Hi"), out);
  writer.End(0, Outcome(FinishReason::kStop), out);
  CHECK(writer.Body() == StrCat(R"({"id":"chatcmpl-7","object":"chat.completion","created":1000,"model":"plain",)",
                                R"("choices":[{"index":0,"message":{"role":"assistant","content":"Hi",)",
                                R"("refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":)", kUsage, "}"));
}

TEST_CASE("A streamed completion ends with its usage") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/true);
  call.include_usage = true;
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.Update(0, Text("Hi"), out);
  writer.Update(0, Text(""), out);  // held back
  writer.Update(0, Text("!"), out);
  writer.End(0, Outcome(FinishReason::kStop), out);
  const std::string head =
      R"(data: {"id":"cmpl-7","object":"text_completion","created":1000,"model":"plain","choices":[)";
  CHECK(out == StrCat(head, R"({"index":0,"text":"Hi","logprobs":null,"finish_reason":null}],"usage":null})", "\n\n",
                      head, R"({"index":0,"text":"!","logprobs":null,"finish_reason":null}],"usage":null})", "\n\n",
                      head, R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null})", "\n\n",
                      head, R"(],"usage":)", kUsage, "}\n\ndata: [DONE]\n\n"));
}

TEST_CASE("A streamed chat begins with the role") {
  CompletionWriter writer = AnswerWriter(AnswerCall(/*chat=*/true, /*stream=*/true));
  std::string out;
  writer.Update(0, Text("Hi"), out);
  writer.End(0, Outcome(FinishReason::kLength), out);
  const std::string head = StrCat(R"(data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1000,)",
                                  R"("model":"plain","choices":[{"index":0,"delta":{)");
  CHECK(out == StrCat(head, R"("role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})", "\n\n", head,
                      R"("content":"Hi"},"logprobs":null,"finish_reason":null}]})", "\n\n", head,
                      R"(},"logprobs":null,"finish_reason":"length"}]})", "\n\n", "data: [DONE]\n\n"));
}

TEST_CASE("A stream without output has its role and its end") {
  CompletionWriter writer = AnswerWriter(AnswerCall(/*chat=*/true, /*stream=*/true));
  std::string out;
  writer.End(0, Outcome(FinishReason::kLength, 5, 2, 0), out);
  CHECK(out.find("\"role\":\"assistant\"") < out.find("\"finish_reason\":\"length\""));
  CHECK(out.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("An error in a stream is an event, and the stream is not done") {
  std::string out;
  CompletionWriter::Fail(absl::UnavailableError("no worker"), out);
  CHECK(out ==
        "data: {\"error\":{\"message\":\"no worker\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"unavailable\"}}\n\n");
}

TEST_CASE("Choices interleave, and a prompt with many samples counts once") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false, 2);
  call.samples = 2;
  call.echo = {"A:", "B:"};
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  for (size_t i = 0; i < 4; ++i) writer.Update(i, Text(StrCat(i)), out);
  for (size_t i = 4; i-- > 0;) {
    writer.End(i, Outcome(FinishReason::kStop, i < 2 ? 5 : 7, i % 2 == 0 ? 1 : 4, 10), out);
    CHECK(writer.done() == (i == 0));
  }
  const auto body = ParseJsonBody(writer.Body());
  REQUIRE(body.ok());
  CHECK((*body)["choices"][0]["text"] == "A:0");
  CHECK((*body)["choices"][1]["text"] == "A:1");
  CHECK((*body)["choices"][3]["text"] == "B:3");
  CHECK((*body)["choices"][3]["index"] == 3);
  CHECK((*body)["usage"].dump() ==
        R"({"prompt_tokens":12,"completion_tokens":40,"total_tokens":52,"prompt_tokens_details":{"cached_tokens":2}})");
}

TEST_CASE("An echo and the output share the character between them") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/GENERATE(false, true));
  call.echo = {"a\xF0\x9F"};
  const auto text_of = [&](const std::vector<TokenUpdate>& updates) {
    CompletionWriter writer = AnswerWriter(call);
    std::string out;
    for (const TokenUpdate& update : updates) writer.Update(0, update, out);
    writer.End(0, Outcome(FinishReason::kLength), out);
    if (!call.stream) return std::string((*ParseJsonBody(writer.Body()))["choices"][0]["text"]);
    std::string text;
    for (size_t at = 0; (at = out.find("\"text\":\"", at)) != std::string::npos;) {
      at += 8;
      text += out.substr(at, out.find('"', at) - at);
    }
    return text;
  };
  TokenUpdate rest;
  rest.before = {0xF0, 0x9F};
  rest.tokens = {0x8C, 0xB6};
  rest.text = "🌶";
  CHECK(text_of({rest, Text("!")}) == "a🌶!");
  // A call that computes the prompt only.
  CHECK(text_of({}) == "a\uFFFD");
}

TEST_CASE("A stream's usage comes once, after all choices") {
  CompletionCall call = AnswerCall(/*chat=*/true, /*stream=*/true);
  call.samples = 2;
  call.include_usage = true;
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.End(1, Outcome(FinishReason::kStop), out);
  CHECK(out.find("[DONE]") == std::string::npos);
  writer.End(0, Outcome(FinishReason::kStop), out);
  CHECK(out.find("\"completion_tokens\":6") != std::string::npos);
  CHECK(out.find("\"prompt_tokens\":5") != std::string::npos);
  CHECK(out.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("A chat's log probabilities have tokens, bytes and alternatives") {
  CompletionCall call = AnswerCall(/*chat=*/true, /*stream=*/false);
  call.logprobs = 2;
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.Update(0, Update('H', "H", -0.5f, {{'H', -0.5f}, {'h', -1.25f}}), out);
  writer.Update(0, Update(0xc3, "", -INFINITY, {}), out);
  writer.End(0, Outcome(FinishReason::kStop), out);
  const auto body = ParseJsonBody(writer.Body());
  REQUIRE(body.ok());
  CHECK((*body)["choices"][0]["logprobs"].dump() ==
        "{\"content\":[{\"token\":\"H\",\"logprob\":-0.5,\"bytes\":[72],\"top_logprobs\":[{\"token\":\"H\","
        "\"logprob\":-0.5,\"bytes\":[72]},{\"token\":\"h\",\"logprob\":-1.25,\"bytes\":[104]}]},"
        "{\"token\":\"\uFFFD\",\"logprob\":-9999,\"bytes\":[195],\"top_logprobs\":[]}],\"refusal\":null}");
}

TEST_CASE("A completion's log probabilities have offsets in characters") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false);
  call.logprobs = 2;
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.Update(0, Update(0xc3, "", -1.5f, {{'x', -0.5f}, {'x', -0.75f}}), out);
  writer.Update(0, Update(0xa9, "\u00e9", -0.25f, {{0xa9, -0.25f}}), out);
  writer.Update(0, Update(MarkedTokenizer::kEnd, "", -2, {}), out);
  writer.Update(0, Update('!', "!", -1, {}), out);
  writer.End(0, Outcome(FinishReason::kStop), out);
  const auto body = ParseJsonBody(writer.Body());
  REQUIRE(body.ok());
  CHECK((*body)["choices"][0]["logprobs"].dump() ==
        R"({"tokens":["bytes:\\xc3","bytes:\\xa9","<|eot_id|>","!"],"token_logprobs":[-1.5,-0.25,-2,-1],)"
        R"("top_logprobs":[{"bytes:\\xc3":-1.5,"x":-0.5},{"bytes:\\xa9":-0.25},{"<|eot_id|>":-2},{"!":-1}],)"
        R"("text_offset":[0,0,1,1]})");
}

TEST_CASE("A completion's offsets are those of the final text for any tokens") {
  const ServedModel& model = **TestModels().Find("plain");
  const std::string alphabet = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\xB6\xFF";
  ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 random(seed);
    const auto draw = [&] {
      if (random() % 8 == 0) return MarkedTokenizer::kEnd;
      return static_cast<TokenId>(static_cast<unsigned char>(alphabet[random() % alphabet.size()]));
    };
    TokenUpdate update;
    update.before.resize(random() % 4);
    std::ranges::generate(update.before, draw);
    const auto begun = UnfinishedEnd(*model.tokenizer, update.before);
    update.before.assign(begun.begin(), begun.end());
    std::vector<int64_t> offsets;
    // Each token's own bytes begin behind the text that no later byte can change.
    for (int i = 0; i < 12; ++i) {
      std::vector<TokenId> whole = update.before;
      whole.insert(whole.end(), update.tokens.begin(), update.tokens.end());
      const TokenId id = update.tokens.emplace_back(draw());
      update.logprobs.push_back({.logprob = -1});
      whole.push_back(id);
      const std::string text = TokensTextWithoutNames(*model.tokenizer, whole);
      // The token's last character is its own, unless the token has no text.
      offsets.push_back(CountCharacters(text) - (model.tokenizer->IsSpecial(id) ? 0 : 1));
    }
    CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false);
    call.logprobs = 0;
    CompletionWriter writer = AnswerWriter(call);
    std::string out;
    writer.Update(0, update, out);
    writer.End(0, Outcome(FinishReason::kLength), out);
    CHECK((*ParseJsonBody(writer.Body()))["choices"][0]["logprobs"]["text_offset"] == Json(offsets));
  });
}

// An update with the log probabilities of a prompt: token i + 1 has -i, and the most likely ones.
TokenUpdate WithPrompt(TokenUpdate update, std::vector<TokenId> tokens, std::vector<std::pair<TokenId, float>> top) {
  update.prompt.emplace();
  for (size_t i = 1; i < tokens.size(); ++i) {
    update.prompt->logprobs.push_back({.logprob = -static_cast<float>(i), .top = top, .rank = 3});
  }
  update.prompt->tokens = std::move(tokens);
  return update;
}

Json ChoiceOf(const CompletionWriter& writer) { return (*ParseJsonBody(writer.Body()))["choices"][0]; }

TEST_CASE("An echo has the log probabilities of the prompt before those of the output") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false);
  call.logprobs = 1;
  call.echo = {"a\u00e9"};
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.Update(0, WithPrompt(Update('!', "!", -0.5f, {{'!', -0.5f}}), {'a', 0xc3, 0xa9}, {{'x', -0.25f}, {'y', -9}}),
                out);
  writer.End(0, Outcome(FinishReason::kLength), out);
  const Json choice = ChoiceOf(writer);
  CHECK(choice["text"] == "a\u00e9!");
  CHECK(choice["logprobs"].dump() ==
        R"({"tokens":["a","bytes:\\xc3","bytes:\\xa9","!"],"token_logprobs":[null,-1,-2,-0.5],)"
        R"("top_logprobs":[null,{"bytes:\\xc3":-1,"x":-0.25},{"bytes:\\xa9":-2,"x":-0.25},{"!":-0.5}],)"
        R"("text_offset":[0,1,1,2]})");
  CHECK_FALSE(choice.contains("prompt_logprobs"));
}

TEST_CASE("The first event of a stream has the prompt with its log probabilities") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/true);
  call.logprobs = 0;
  call.echo = {"ab"};
  CompletionWriter writer = AnswerWriter(call);
  std::string first, last;
  writer.Update(0, WithPrompt(Update('!', "!", -0.5f, {}), {'a', 'b'}, {}), first);
  writer.End(0, Outcome(FinishReason::kLength), last);
  const size_t second = first.find("data: ", 1);
  REQUIRE(second != std::string::npos);
  CHECK(first.substr(0, second).find(R"("text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1],)"
                                     R"("top_logprobs":[null,{"b":-1}],"text_offset":[0,1]})") != std::string::npos);
  CHECK(first.substr(second).find(R"("text":"!","logprobs":{"tokens":["!"])") != std::string::npos);
  CHECK(first.substr(second).find(R"("text_offset":[2]})") != std::string::npos);
}

TEST_CASE("An echo without output has the log probabilities of the prompt alone") {
  for (const bool stream : {false, true}) {
    CompletionCall call = AnswerCall(/*chat=*/false, stream);
    call.logprobs = 0;
    call.echo = {"ab"};
    CompletionWriter writer = AnswerWriter(call);
    std::string out;
    TokenUpdate update;
    update.finish = FinishReason::kLength;
    writer.Update(0, WithPrompt(std::move(update), {'a', 'b'}, {}), out);
    writer.End(0, Outcome(FinishReason::kLength, 2, 0, 0), out);
    if (!stream) out = writer.Body();
    CHECK(out.find(R"("text":"ab","logprobs":{"tokens":["a","b"],)") != std::string::npos);
  }
}

TEST_CASE("The offsets of an echo count the names of special tokens that the echo shows") {
  CompletionCall call = AnswerCall(/*chat=*/false, /*stream=*/false);
  call.logprobs = 0;
  call.echo = {"<|eot_id|>b"};
  CompletionWriter writer = AnswerWriter(call);
  std::string out;
  writer.Update(0, WithPrompt(Update('!', "!", -1, {}), {MarkedTokenizer::kEnd, 'b'}, {}), out);
  writer.End(0, Outcome(FinishReason::kLength), out);
  CHECK(ChoiceOf(writer)["logprobs"]["text_offset"] == Json({0, 10, 11}));
}

TEST_CASE("prompt_logprobs have vLLM's form, in a choice or beside the choices of a chat") {
  for (const bool chat : {false, true}) {
    CompletionCall call = AnswerCall(chat, /*stream=*/false);
    call.prompt_logprobs = 2;
    CompletionWriter writer = AnswerWriter(call);
    std::string out;
    writer.Update(0, WithPrompt(Text("!"), {'a', 'b'}, {{'x', -0.25f}, {'b', -1.0f}, {'z', -2.0f}}), out);
    writer.End(0, Outcome(FinishReason::kLength), out);
    const Json body = *ParseJsonBody(writer.Body());
    const Json& place = chat ? body : body["choices"][0];
    CHECK(place["prompt_logprobs"].dump() == R"([null,{"98":{"logprob":-1,"rank":3,"decoded_token":"b"},)"
                                             R"("120":{"logprob":-0.25,"rank":1,"decoded_token":"x"}}])");
    CHECK(body["choices"][0]["logprobs"] == nullptr);
  }
}

TEST_CASE("A stream's chunk has the log probabilities of its own tokens") {
  CompletionCall call = AnswerCall(/*chat=*/true, /*stream=*/true);
  call.logprobs = 0;
  CompletionWriter writer = AnswerWriter(call);
  std::string first, second, last;
  writer.Update(0, Update('H', "H", -0.5f, {}), first);
  writer.Update(0, Update(0xc3, "", -1, {}), second);  // no text yet
  writer.End(0, Outcome(FinishReason::kStop), last);
  CHECK(first.find(R"("content":"H"},"logprobs":{"content":[{"token":"H","logprob":-0.5)") != std::string::npos);
  CHECK(second.find(R"("content":""},"logprobs":{"content":[{)") != std::string::npos);
  CHECK(last.find(R"("delta":{},"logprobs":null,"finish_reason":"stop")") != std::string::npos);
}

}  // namespace
}  // namespace baton
