#include "frontend/openai/completion_reader.h"

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

absl::StatusOr<CompletionCall> TryReadCompletion(std::string_view fields) {
  const auto body = ParseJsonBody(StrCat(R"({"model": "plain", )", fields, "}"));
  REQUIRE(body.ok());
  return ReadCompletion(*body, TestModels());
}

CompletionCall MustReadCompletion(std::string_view fields) {
  auto call = TryReadCompletion(fields);
  INFO(call.status());
  REQUIRE(call.ok());
  return *std::move(call);
}

std::string CompletionError(std::string_view fields) {
  const auto call = TryReadCompletion(fields);
  CHECK(absl::IsInvalidArgument(call.status()));
  return std::string(Message(call.status()));
}

TEST_CASE("A text prompt is one request with OpenAI's default of 16 tokens") {
  const CompletionCall call = MustReadCompletion(R"("prompt": "hello")");
  REQUIRE(call.requests.size() == 1);
  CHECK(call.requests[0].ShortDebugString() == R"(model: "plain" segments { segments { text: "hello" } })");
  CHECK(call.form.default_max_tokens == 16);
  CHECK(MustReadCompletion(R"("prompt": "x", "max_tokens": null)").requests[0].has_sampling() == false);
  CHECK(call.FormOf(0).paths.prompt == "prompt");
  CHECK_FALSE(call.chat);
  CHECK_FALSE(call.stream);
  CHECK(call.timeout == absl::InfiniteDuration());
}

TEST_CASE("Every sampling field reaches the request") {
  const CompletionCall call = MustReadCompletion(
      R"("prompt": "x", "max_tokens": 3, "temperature": 0.5, "top_p": 1, "top_k": 7, "min_p": 0.25,
         "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "seed": 9, "stop": ["a", "b"],
         "stop_token_ids": [4, 5], "ignore_eos": true, "logprobs": 2, "logit_bias": {"7": -100, "250": 0.5},
         "min_tokens": 2.0, "allowed_token_ids": [7, 250], "bad_words": ["no"], "thinking_token_budget": 0)");
  const v1::Sampling& sampling = call.requests[0].sampling();
  CHECK(sampling.ShortDebugString() ==
        R"(max_tokens: 3 temperature: 0.5 top_k: 7 top_p: 1 min_p: 0.25 repetition_penalty: 1.5 presence_penalty: -1 )"
        R"(frequency_penalty: 2 seed: 9 stop: "a" stop: "b" stop_ids: 4 stop_ids: 5 ignore_eos: true logprobs: 2 )"
        R"(logit_bias { id: 7 bias: -100 } logit_bias { id: 250 bias: 0.5 } min_tokens: 2 allowed_token_ids: 7 )"
        R"(allowed_token_ids: 250 bad_words: "no" thinking_token_budget: 0)");
  CHECK(call.logprobs == 2);
  CHECK(MustReadCompletion(R"("prompt": "x", "stop": "end")").requests[0].sampling().stop(0) == "end");
  CHECK(MustReadCompletion(R"("prompt": "x", "stop": ["", "end", ""])").requests[0].sampling().stop_size() == 1);
  CHECK(MustReadCompletion(R"("prompt": "x", "stop": [""])").requests[0].sampling().stop().empty());
  CHECK(MustReadCompletion(R"("prompt": "x", "top_k": -1)").requests[0].sampling().top_k() == 0);
  CHECK(MustReadCompletion(R"("prompt": "x", "seed": -1)").requests[0].sampling().seed() == ~uint64_t{0});
}

TEST_CASE("ReadCompletion reads numbers and none as clients in other languages send them") {
  const CompletionCall call = MustReadCompletion(
      R"("prompt": [1.0, 2], "n": 2.0, "max_tokens": 16.0, "seed": 18446744073709551615, "stop": "", "logprobs": false,
         "length_penalty": 1.0, "priority": -0.0)");
  CHECK(call.samples == 2);
  CHECK_FALSE(call.logprobs);
  const v1::Sampling& sampling = call.requests[0].sampling();
  CHECK(sampling.max_tokens() == 16);
  CHECK(sampling.seed() == ~uint64_t{0});
  CHECK(sampling.stop().empty());
  CHECK_FALSE(sampling.has_logprobs());
  CHECK(CompletionError(R"("prompt": "a", "max_tokens": 16.5)").starts_with("max_tokens: expected an integer in [0, "));
  CHECK(CompletionError(R"("prompt": "a", "seed": 1e30)") == "seed: expected an integer, got 1e+30");
  CHECK(CompletionError(R"("prompt": "a", "logprobs": true)") == "logprobs: expected an integer in [0, 20], got true");
}

TEST_CASE("Each of several prompts is a request with its samples") {
  const CompletionCall call = MustReadCompletion(R"("prompt": ["a", [98, 99]], "n": 2, "seed": 10)");
  REQUIRE(call.requests.size() == 2);
  CHECK(call.samples == 2);
  CHECK(call.choices() == 4);
  for (const v1::GenerateRequest& request : call.requests) CHECK(request.sampling().seed() == 10);
  CHECK(call.requests[0].segments().segments(0).text() == "a");
  CHECK(call.requests[1].segments().segments(0).token_ids().ids_size() == 2);
  CHECK(call.requests[1].segments().segments(0).token_ids().ids(1) == 99);
  CHECK(call.FormOf(1).paths.prompt == "prompt[1]");
  CHECK(MustReadCompletion(R"("prompt": [1, 2])").requests[0].segments().segments(0).token_ids().ids(1) == 2);
  CHECK(MustReadCompletion(R"("prompt": [[1, 2], [3]])").requests.size() == 2);
  CHECK_FALSE(MustReadCompletion(R"("prompt": ["a", "b"])").requests[1].sampling().has_seed());
}

TEST_CASE("Fields for agents are those of the protocol") {
  const CompletionCall call = MustReadCompletion(
      R"("session_id": "s", "request_id": "r", "cache_salt": "c", "priority": -3, "workflow": "w", "agent": "a",
         "expected_tokens": 40, "timeout_ms": 1500, "join": "arrival", "first": 1, "segments": [{"text": "t"},
         {"token_ids": [1]}, {"group": [{"text": "["}, {"agent_name": {}}, {"token_ids": [2]}, {"output_of": "up"}]}, {"output_of": {"request_id": "up2", "announced": true, "on_failure": "substitute",
         "substitute": "none", "timeout_ms": 20, "with_reasoning": true}}])");
  REQUIRE(call.requests.size() == 1);
  CHECK(
      call.requests[0].ShortDebugString() ==
      R"(model: "plain" segments { segments { text: "t" } segments { token_ids { ids: 1 } } segments { group )"
      R"({ parts { text: "[" } parts { agent_name { } } parts { token_ids { ids: 2 } } )"
      R"(parts { output_of { request_id: "up" } } } } segments { output_of { request_id: "up2" announced: true on_failure: )"
      R"(ON_FAILURE_SUBSTITUTE substitute: "none" timeout_ms: 20 with_reasoning: true } } } session_id: "s" )"
      R"(request_id: "r" priority: -3 cache_salt: "c" join: JOIN_ARRIVAL workflow: "w" agent: "a" expected_tokens: 40 )"
      R"(first: 1)");
  CHECK(call.timeout == absl::Milliseconds(1500));
  const v1::GenerateRequest context = MustReadCompletion(R"("context_id": "ctx", "context_length": 5)").requests[0];
  CHECK_FALSE(context.has_segments());
  CHECK(context.context_id() == "ctx");
  CHECK(context.context_length() == 5);
}

TEST_CASE("An echo has the prompt's text") {
  CHECK(MustReadCompletion(R"("prompt": ["a", [98, 257]], "n": 2, "echo": true)").echo ==
        std::vector<std::string>{"a", "b<|eot_id|>"});
  CHECK(MustReadCompletion(R"("segments": [{"text": "a"}, {"text": "b"}], "echo": true)").echo ==
        std::vector<std::string>{"ab"});
  // Segments may divide a character, and a prompt may end inside one.
  CHECK(
      MustReadCompletion(R"("segments": [{"token_ids": [195]}, {"token_ids": [169, 255, 195]}], "echo": true)").echo ==
      std::vector<std::string>{"é\uFFFD\xC3"});
  CHECK(MustReadCompletion(R"("segments": [{"token_ids": [195]}, {"text": "a"}], "echo": true)").echo ==
        std::vector<std::string>{"\uFFFDa"});
  for (const char* segment : {R"({"output_of": "u"})", R"({"group": [{"output_of": "u"}]})"}) {
    CHECK(CompletionError(StrCat(R"("segments": [)", segment, R"(], "echo": true)")) ==
          "echo: is not supported with output_of");
  }
  CHECK(CompletionError(R"("prompt": "a", "context_id": "c", "echo": true)") ==
        "echo: is not supported with a context_id");
}

TEST_CASE("An echo with logprobs, and prompt_logprobs, want log probabilities of the prompt") {
  const auto wanted = [](const std::string& fields) {
    const v1::Sampling sampling = MustReadCompletion(R"("prompt": "a", )" + fields).requests[0].sampling();
    return sampling.has_prompt_logprobs() ? std::optional(sampling.prompt_logprobs()) : std::nullopt;
  };
  CHECK(wanted(R"("echo": true)") == std::nullopt);
  CHECK(wanted(R"("logprobs": 3)") == std::nullopt);
  CHECK(wanted(R"("prompt_logprobs": null)") == std::nullopt);
  CHECK(wanted(R"("echo": true, "logprobs": 0)") == 0);
  CHECK(wanted(R"("echo": true, "logprobs": 1, "max_tokens": 0, "stream": true)") == 1);
  CHECK(wanted(R"("prompt_logprobs": 20)") == 20);
  CHECK(wanted(R"("prompt_logprobs": 2.0)") == 2);
  CHECK(wanted(R"("echo": true, "logprobs": 1, "prompt_logprobs": 5)") == 5);
  CHECK(wanted(R"("echo": true, "logprobs": 5, "prompt_logprobs": 1)") == 5);
  CHECK_FALSE(MustReadCompletion(R"("prompt": "a", "echo": true, "logprobs": 1)").prompt_logprobs);
  CHECK(MustReadCompletion(R"("prompt": "a", "prompt_logprobs": 0)").prompt_logprobs == 0);
  for (const std::string wrong : {"-1", "21", "true", "\"1\"", "[1]", "{}", "0.5", "1e99"}) {
    CAPTURE(wrong);
    const std::string error = CompletionError(R"("prompt": "a", "prompt_logprobs": )" + wrong);
    CHECK(error.starts_with("prompt_logprobs: expected an integer"));
  }
  CHECK(CompletionError(R"("prompt": "a", "prompt_logprobs": 1, "stream": true)") ==
        "prompt_logprobs: is not supported with stream: true");
}

TEST_CASE("ReadCompletion reads a stream and its options") {
  CHECK(MustReadCompletion(R"("prompt": "a", "stream": true)").stream);
  CHECK_FALSE(MustReadCompletion(R"("prompt": "a", "stream": true)").include_usage);
  CHECK(
      MustReadCompletion(R"("prompt": "a", "stream": true, "stream_options": {"include_usage": true})").include_usage);
  CHECK(CompletionError(R"("prompt": "a", "stream_options": {"include_usage": true})") ==
        "stream_options: requires stream: true");
  const auto continuous = [](const std::string& options) {
    return MustReadCompletion(StrCat(R"("prompt": "a", "stream": true, "stream_options": {)", options, "}"))
        .continuous_usage;
  };
  CHECK(continuous(R"("continuous_usage_stats": true, "include_usage": true)"));
  CHECK_FALSE(continuous(R"("continuous_usage_stats": true)"));
  CHECK_FALSE(continuous(R"("include_usage": true)"));
  CHECK(CompletionError(R"("prompt": "a", "stream": true, "stream_options": {"x": 1})") ==
        "stream_options.x: is not supported");
}

TEST_CASE("ReadCompletion accepts values without effect") {
  const CompletionCall call = MustReadCompletion(
      R"("prompt": "a", "user": "me", "metadata": {"k": "v"}, "store": false, "logit_bias": {}, "best_of": 1, "suffix": "",
         "response_format": {"type": "text"}, "service_tier": "default", "anything": null, "temperature": null,
         "min_tokens": 0, "bad_words": [], "n": null, "stop": null, "logprobs": null, "stream_options": null)");
  CHECK(call.requests.size() == 1);
}

TEST_CASE("ReadCompletion refuses unsupported fields by name") {
  CHECK(CompletionError(R"("prompt": "a", "anything": 1)") == "anything: is not supported");
  CHECK(CompletionError(R"("prompt": "a", "best_of": 3)") == "best_of: expected the same as n, 1, got 3");
  CHECK(CompletionError(R"("prompt": "a", "suffix": "s")") ==
        R"(suffix: expected "", got 's', which is not supported)");
  CHECK(CompletionError(R"("prompt": "a", "response_format": {"type": "json_object"})") ==
        "response_format.type: expected 'text', got 'json_object', which is not supported: output is not constrained");
  CHECK(CompletionError(R"("prompt": "a", "store": true)") ==
        "store: expected false, got true, which is not supported");
}

TEST_CASE("ReadCompletion refuses a wrong constraint with its field and the expected value") {
  std::string biases, ids = "1";
  // ParseJson refuses 100,000 biases.
  for (int i = 0; i < 4'000; ++i) biases += absl::StrCat(i == 0 ? "" : ",", "\"", i, "\":1");
  for (int i = 0; i < 100'000; ++i) ids += ",1";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("logit_bias": [])", "logit_bias: expected an object, got a list of 0"},
      {R"("logit_bias": {"a": 1})", "logit_bias: expected token ids as names, got 'a'"},
      {R"("logit_bias": {"": 1})", "logit_bias: expected token ids as names, got ''"},
      {R"("logit_bias": {"1.0": 1})", "logit_bias: expected token ids as names, got '1.0'"},
      {R"("logit_bias": {"2147483648": 1})", "logit_bias: expected token ids as names, got '2147483648'"},
      {R"("logit_bias": {"1": "5"})", "logit_bias: expected numbers, got '5'"},
      {R"("logit_bias": {"1": {"2": {"3": 4}}})", "logit_bias: expected numbers, got an object"},
      {R"("logit_bias": {"1": true})", "logit_bias: expected numbers, got true"},
      {R"("logit_bias": {"1": null})", "logit_bias: expected numbers, got null"},
      {R"("logit_bias": {"1": 1e300})", "logit_bias: expected a number in [-100, 100], got 1e+300"},
      {R"("logit_bias": {"1": -100.00000001})", "logit_bias: expected a number in [-100, 100], got -100.00000001"},
      {R"("logit_bias": {)" + biases + "}", "logit_bias: expected at most 1024 tokens, got 4000"},
      {R"("min_tokens": -1)", "min_tokens: expected an integer in [0, 2147483647], got -1"},
      {R"("min_tokens": [1])", "min_tokens: expected an integer in [0, 2147483647], got a list of 1"},
      {R"("allowed_token_ids": [])", "allowed_token_ids: expected at least 1 id, got none"},
      {R"("allowed_token_ids": [[1]])", "allowed_token_ids[0]: expected a token id, got a list of 1"},
      {R"("allowed_token_ids": {"1": 1})", "allowed_token_ids: expected a list, got an object"},
      {R"("allowed_token_ids": [)" + ids + "]", "allowed_token_ids: expected at most 4096 ids, got 100001"},
      {R"("bad_words": [""])", "bad_words[0]: expected 1 to 128 bytes, got 0"},
      {R"("bad_words": ["a", ["b"]])", "bad_words[1]: expected a string, got a list of 1"},
      {R"("bad_words": 3)", "bad_words: expected a string or a list of strings, got 3"},
      {R"("bad_words": [)" + ids + "]", "bad_words: expected at most 256 strings, got 100001"},
      {R"("thinking_token_budget": -1)", "thinking_token_budget: expected an integer in [0, 2147483647], got -1"},
      {R"("thinking_token_budget": "low")", "thinking_token_budget: expected an integer in [0, 2147483647], got 'low'"},
  };
  for (const auto& [fields, error] : cases) CHECK(CompletionError("\"prompt\": \"a\", " + fields) == error);
}

TEST_CASE("ReadCompletion refuses a wrong value with its field and the expected value") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("max_tokens": 1)", "prompt: expected a text, a list of token ids, or a list of either, got none"},
      {R"("prompt": 3)", "prompt: expected a text, a list of token ids, or a list of either, got 3"},
      {R"("prompt": [])", "prompt: expected a text, a list of token ids, or a list of either, got a list of 0"},
      {R"("prompt": ["a", 3])", "prompt[1]: expected a text, a list of token ids, or a list of either, got 3"},
      {R"("prompt": [1, "a"])", "prompt[1]: expected a token id in [0, 260), got 'a'"},
      {R"("prompt": [[1], [2, 260]])", "prompt[1][1]: expected a token id in [0, 260), got 260"},
      {R"("prompt": [18446744073709551615])", "prompt[0]: expected a token id in [0, 260), got 18446744073709551615"},
      {R"("prompt": "a", "segments": [])", "segments: expected segments or a prompt, got both"},
      {R"("segments": [{"text": "a", "output_of": "b"}])",
       "segments[0]: expected one of 'text', 'token_ids', 'output_of', 'group', got 2 of them"},
      {R"("segments": [{}])", "segments[0]: expected one of 'text', 'token_ids', 'output_of', 'group', got 0 of them"},
      {R"("segments": [{"group": 3}])", "segments[0].group: expected a list, got 3"},
      {R"("segments": [{"group": ["a"]}])", "segments[0].group[0]: expected an object, got 'a'"},
      {R"("segments": [{"group": [{"text": "a", "agent_name": {}}]}])",
       "segments[0].group[0]: expected one of 'text', 'token_ids', 'output_of', 'agent_name', got 2 of them"},
      {R"("segments": [{"group": [{"agent_name": true}]}])",
       "segments[0].group[0].agent_name: expected an object, got true"},
      {R"("segments": [{"group": [{"agent_name": {"x": 1}}]}])", "segments[0].group[0].agent_name.x: is not supported"},
      {R"("segments": [{"group": [{"output_of": {"request_id": "u", "timeout_ms": 1e99}}]}])",
       "segments[0].group[0].output_of.timeout_ms: expected an integer, got 1e+99"},
      {R"("segments": [{"group": [{"token_ids": [260]}]}])",
       "segments[0].group[0].token_ids[0]: expected a token id in [0, 260), got 260"},
      {R"("segments": [{"group": [{"group": []}]}])", "segments[0].group[0].group: a group must not contain a group"},
      {R"("segments": [{"agent_name": {}}])", "segments[0].agent_name: is for parts of a group"},
      {R"("prompt": "a", "first": -1)", "first: expected an integer in [0, 2147483647], got -1"},
      {R"("prompt": "a", "first": "2")", "first: expected an integer in [0, 2147483647], got '2'"},
      {R"("segments": [3])", "segments[0]: expected an object, got 3"},
      {R"("segments": [{"token_ids": [-1]}])", "segments[0].token_ids[0]: expected a token id in [0, 260), got -1"},
      {R"("segments": [{"output_of": 3}])", "segments[0].output_of: expected a request id or an object, got 3"},
      {R"("segments": [{"output_of": "a b"}])", "segments[0].output_of: expected letters, digits and \"-_.:\" only"},
      {R"("segments": [{"output_of": ""}])", "segments[0].output_of: must not be empty"},
      {R"("segments": [{"output_of": {"request_id": "x", "substitute": "y"}}])",
       "segments[0].output_of.substitute: requires on_failure 'substitute'"},
      {R"("segments": [{"output_of": {"id": "x"}}])", "segments[0].output_of.id: is not supported"},
      {R"("segments": [{"output_of": {"on_failure": "x"}}])",
       "segments[0].output_of.on_failure: expected one of 'abort', 'partial', 'substitute', got 'x'"},
      {R"("prompt": "a", "n": 17)", "n: expected an integer in [1, 16], got 17"},
      {R"("prompt": "a", "n": 1.5)", "n: expected an integer in [1, 16], got 1.5"},
      {R"("prompt": "a", "n": true)", "n: expected an integer in [1, 16], got true"},
      {R"("prompt": "a", "temperature": "hot")", "temperature: expected a number, got 'hot'"},
      {R"("prompt": "a", "temperature": 1e300)", "temperature: expected a number in [0, 100], got 1e+300"},
      {R"("prompt": "a", "max_tokens": 2147483648)",
       "max_tokens: expected an integer in [0, 2147483647], got 2147483648"},
      {R"("prompt": "a", "max_tokens": 5.5)", "max_tokens: expected an integer in [0, 2147483647], got 5.5"},
      {R"("prompt": "a", "logprobs": true)", "logprobs: expected an integer in [0, 20], got true"},
      {R"("prompt": "a", "logprobs": 21)", "logprobs: expected an integer in [0, 20], got 21"},
      {R"("prompt": "a", "top_k": 99999999999)", "top_k: expected an integer in [-1, 2147483647], got 99999999999"},
      {R"("prompt": "a", "priority": 1.5)", "priority: expected an integer in [-1000, 1000], got 1.5"},
      {R"("prompt": "a", "expected_tokens": -1)", "expected_tokens: expected an integer in [0, 2147483647], got -1"},
      {R"("prompt": "a", "seed": 1.5)", "seed: expected an integer, got 1.5"},
      {R"("prompt": "a", "stop": 3)", "stop: expected a string or a list of strings, got 3"},
      {R"("prompt": "a", "stop": ["b", 3])", "stop[1]: expected a string, got 3"},
      {R"("prompt": "a", "stop_token_ids": ["b"])", "stop_token_ids[0]: expected a token id, got 'b'"},
      {R"("prompt": "a", "stream": "yes")", "stream: expected true or false, got 'yes'"},
      {R"("prompt": "a", "session_id": 3)", "session_id: expected a string, got 3"},
      {R"("prompt": "a", "join": "late")", "join: expected one of 'order', 'arrival', got 'late'"},
      {R"("prompt": "a", "user": 3)", "user: expected a string, got 3"},
      {R"("prompt": "a", "prompt_cache_key": ["k"])", "prompt_cache_key: expected a string, got a list of 1"},
      {R"("prompt": "a", "metadata": ["k"])", "metadata: expected an object, got a list of 1"},
      {R"("prompt": "a", "metadata": {"k": 3})", "metadata: expected an object of strings, got 3"},
      {R"("prompt": "a", "timeout_ms": 0)", "timeout_ms: expected an integer in [1, 31536000000], got 0"},
  };
  for (const auto& [fields, error] : cases) CHECK(CompletionError(fields) == error);
}

TEST_CASE("ReadCompletion refuses ids without a token by the field that was sent") {
  const ServedModels models = ModelWithUnnamedIds();
  const auto error = [&](std::string_view fields) {
    const auto call = ReadCompletion(*ParseJsonBody(StrCat("{", fields, "}")), models);
    CHECK(absl::IsInvalidArgument(call.status()));
    return std::string(Message(call.status()));
  };
  const std::string expected = "expected an id that has a token in tokenizer.json of 'plain', got ";
  CHECK(error(R"("prompt": [199, 200])") == StrCat("prompt[1]: ", expected, 200));
  CHECK(error(R"("prompt": [[258], [1, 2, 259]])") == StrCat("prompt[1][2]: ", expected, 259));
  CHECK(error(R"("segments": [{"text": "a"}, {"token_ids": [200]}])") ==
        StrCat("segments[1].token_ids[0]: ", expected, 200));
}

TEST_CASE("ReadCompletion limits the number of choices") {
  std::string prompts;
  for (int i = 0; i < 9; ++i) prompts += i > 0 ? ",\"a\"" : "\"a\"";
  CHECK(CompletionError(StrCat("\"n\": 16, \"prompt\": [", prompts, "]")) ==
        "n: 16 choices for each of 9 prompts, limit 128 choices per call");
}

TEST_CASE("ReadCompletion returns NOT_FOUND when the model is unknown") {
  const auto body = ParseJsonBody(R"({"model": "gpt", "prompt": "a"})");
  const auto call = ReadCompletion(*body, TestModels());
  CHECK(absl::IsNotFound(call.status()));
  CHECK(Message(call.status()).starts_with("model: expected one of 'plain'"));
  CHECK(absl::IsInvalidArgument(ReadCompletion(*ParseJsonBody(R"({"prompt": "a"})"), TestModels()).status()));
  CHECK(Message(ReadCompletion(*ParseJsonBody(R"({"model": 3})"), TestModels()).status()) ==
        "model: expected a string, got 3");
}

}  // namespace
}  // namespace baton
