// Fields of requests over HTTP and gRPC: the values that reach workers, and the errors that clients
// see. The workers are fakes.
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns the error of a call that the router refuses, in OpenAI's format.
json ErrorOf(Cluster& c, const std::string& path, const std::string& body) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  const HttpAnswer answer = client.Read();
  INFO(body << ": " << answer.status << " " << answer.body);
  REQUIRE(answer.status >= 400);
  return json::parse(answer.body)["error"];
}

// Returns the sampling parameters of each choice of a call, as they reach a decode worker.
std::vector<SamplingParams> SamplingsOf(Cluster& c, const std::string& path, const std::string& body, size_t choices) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  std::vector<SamplingParams> samplings;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < choices; ++i) {
    ids.push_back(c.prefill->Next().prefill().request_id());
    c.prefill->Send(DoneEvent(ids.back(), Incarnation(22)));
    samplings.push_back(FromProto(c.decode->Next().decode()).spec.sampling);
  }
  for (const RequestId& id : ids) c.decode->Send(TokensEvent(id, "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  return samplings;
}

SamplingParams SamplingOf(Cluster& c, const std::string& path, const std::string& body) {
  return SamplingsOf(c, path, body, 1).at(0);
}

TEST_CASE("A router checks and shows a float as the client sent it") {
  Cluster c;
  const std::pair<std::string, std::string> refused[] = {
      {R"("top_p": 1.0000001)", "top_p: expected a number in [0, 1], got 1.0000001"},
      {R"("top_p": 1.00000001)", "top_p: expected a number in [0, 1], got 1.00000001"},
      {R"("top_p": -1e-50)", "top_p: expected a number in [0, 1], got -1e-50"},
      {R"("min_p": 1)", "min_p: expected a number in [0, 1), got 1"},
      {R"("temperature": 100.000001)", "temperature: expected a number in [0, 100], got 100.000001"},
      {R"("temperature": 1e300)", "temperature: expected a number in [0, 100], got 1e+300"},
      {R"("repetition_penalty": 0.00999999999)",
       "repetition_penalty: expected a number in [0.01, 100], got 0.00999999999"},
      {R"("presence_penalty": -2.00000001)", "presence_penalty: expected a number in [-2, 2], got -2.00000001"},
      {R"("frequency_penalty": 2.00000001)", "frequency_penalty: expected a number in [-2, 2], got 2.00000001"},
  };
  // `fields` are those of sampling, as members of a body.
  const auto completion = [](const std::string& fields) { return R"({"prompt": "hello", )" + fields + "}"; };
  const auto generate = [](const std::string& fields) {
    return R"({"segments": {"segments": [{"text": "hello"}]}, "sampling": {)" + fields + "}}";
  };
  for (const auto& [field, message] : refused) {
    const std::string param = message.substr(0, message.find(':'));
    json error = ErrorOf(c, "/v1/completions", completion(field));
    CHECK(error["message"] == message);
    CHECK(error["param"] == param);
    error = ErrorOf(c, "/generate", generate(field));
    CHECK(error["message"] == "sampling." + message);
    CHECK(error["param"] == "sampling." + param);
  }
  const auto check_drawn = [&](const std::string& field, float DrawParams::*member, float value) {
    INFO(field);
    const std::string fields = R"("max_tokens": 4, )" + field;
    CHECK(SamplingOf(c, "/v1/completions", completion(fields)).draw.*member == value);
    CHECK(SamplingOf(c, "/generate", generate(fields)).draw.*member == value);
  };
  check_drawn(R"("top_p": 1e-50)", &DrawParams::top_p, 0);
  check_drawn(R"("top_p": 0)", &DrawParams::top_p, 0);
  check_drawn(R"("min_p": 0.99999999999)", &DrawParams::min_p, std::nextafter(1.0f, 0.0f));
  check_drawn(R"("repetition_penalty": 0.01)", &DrawParams::repetition_penalty, 0.01f);
  check_drawn(R"("presence_penalty": -2)", &DrawParams::presence_penalty, -2);
  CHECK(ErrorOf(c, "/generate", generate(R"("topP": "1.00000001")"))["message"] ==
        "sampling.top_p: expected a number in [0, 1], got 1.00000001");

  v1::GenerateRequest request = Call::Request("r", "hello");
  request.mutable_sampling()->set_top_p(1.0000001f);
  CHECK(Message(Call(c, request).Finish().status) == "sampling.top_p: expected a number in [0, 1], got 1.0000001");
  request = Call::Request("r", "hello");
  request.mutable_sampling()->set_min_p(static_cast<float>(0.99999999999));
  CHECK(Message(Call(c, request).Finish().status) == "sampling.min_p: expected a number in [0, 1), got 1");
}

const char kTemplate[] =
    "{% if messages[0].content == 'no' %}{{ raise_exception('not that') }}{% endif %}{{ messages[0].content }}"
    "{% if tools %}<tool_call></tool_call>{% endif %}";

// A router of a model with a template. The model's context length is 64 tokens.
void ServeChats(Cluster& c) {
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse(kTemplate, "", "");
  c.Serve(std::move(model));
}

// A field and the start of the message about it agree.
void CheckNamed(const json& error, const std::string& field) {
  INFO(error.dump());
  CHECK(error["param"] == field);
  std::string message = error["message"];
  if (error["code"] == "context_length_exceeded") {
    const std::string first = "This model's maximum context length is 64 tokens. ";
    REQUIRE(message.starts_with(first));
    message.erase(0, first.size());
  }
  CHECK(message.starts_with(field + ": "));
}

// Each "$" of a body below stands for this text, which is longer than the context length.
std::string Expanded(std::string body) {
  const std::string text(70, 'x');
  for (size_t at = body.find('$'); at != std::string::npos; at = body.find('$')) body.replace(at, 1, text);
  return body;
}

TEST_CASE("An error of a completion names the field as it was sent") {
  Cluster c;
  ServeChats(c);
  const std::pair<const char*, const char*> cases[] = {
      {R"("prompt": "a", "stop_token_ids": [256])", "stop_token_ids[0]"},
      {R"("prompt": "a", "stop_token_ids": [1, 2, 300])", "stop_token_ids[2]"},
      {R"("prompt": "a", "stop_token_ids": [-1])", "stop_token_ids[0]"},
      {R"("prompt": "a", "stop": ["b", 1])", "stop[1]"},
      {R"("prompt": "a", "stop": "$$$$$$$$$$$$$$$")", "stop"},
      {R"("prompt": "a", "top_k": -2)", "top_k"},
      {R"("prompt": "a", "top_p": 2)", "top_p"},
      {R"("prompt": "a", "logprobs": 21)", "logprobs"},
      {R"("prompt": "a", "prompt_logprobs": 21)", "prompt_logprobs"},
      {R"("prompt": "a", "prompt_logprobs": -1)", "prompt_logprobs"},
      {R"("prompt": "a", "prompt_logprobs": 1, "context_id": "c")", "prompt_logprobs"},
      {R"("segments": [{"output_of": {"request_id": "u", "announced": true}}], "prompt_logprobs": 1)",
       "prompt_logprobs"},
      {R"("prompt": "a", "suffix": "b")", "suffix"},
      {R"("prompt": "a", "max_tokens": -1)", "max_tokens"},
      {R"("prompt": "a", "max_tokens": 64)", "max_tokens"},
      {R"("prompt": ["a", "b"], "max_tokens": 64)", "max_tokens"},
      {R"("prompt": "")", "prompt"},
      {R"("prompt": "$")", "prompt"},
      {R"("prompt": "", "context_id": "c", "max_tokens": 0)", "prompt"},
      {R"("prompt": "$", "context_id": "c", "max_tokens": 0)", "prompt"},
      {R"("prompt": [""])", "prompt[0]"},
      {R"("prompt": ["a", ""])", "prompt[1]"},
      {R"("prompt": ["a", "$"])", "prompt[1]"},
      {R"("prompt": ["a", []])", "prompt[1]"},
      {R"("prompt": [[1], [2, 256]])", "prompt[1][1]"},
      {R"("segments": [])", "segments"},
      {R"("segments": [{"text": ""}])", "segments"},
      {R"("segments": [{"text": "a"}, {"text": "$"}])", "segments"},
      {R"("segments": [{"text": "a"}, {"token_ids": [256]}])", "segments[1].token_ids[0]"},
      {R"("segments": [{"output_of": {"request_id": ""}}])", "segments[0].output_of.request_id"},
      {R"("segments": [{"text": "a"}, {"output_of": {"request_id": "u", "substitute": "x"}}])",
       "segments[1].output_of.substitute"},
      {R"("segments": [{"output_of": {"request_id": "u", "on_failure": "substitute", "substitute": "$"}}])",
       "segments[0].output_of.substitute"},
      {R"("segments": [{"output_of": {"request_id": "u", "timeout_ms": -1}}])", "segments[0].output_of.timeout_ms"},
      {R"("segments": [{"text": "a"}, {"output_of": "nobody"}])", "segments[1].output_of"},
      {R"("segments": [{"text": "a"}, {"group": [{"output_of": "nobody"}]}])", "segments[1].group[0].output_of"},
      {R"("segments": [{"text": "a"}, {"group": []}])", "segments[1].group"},
      {R"("segments": [{"output_of": "a"}], "first": 2)", "first"},
      {R"("prompt": "a", "keep": 1)", "keep"},
      {R"("prompt": "a", "keep": "true")", "keep"},
      {R"("prompt": "a", "keep": [true])", "keep"},
      {R"("segments": [{"text": "a"}, {"output_of": "a b"}])", "segments[1].output_of"},
      {R"("segments": [{"output_of": ""}])", "segments[0].output_of"},
      {R"("request_id": "self", "segments": [{"output_of": {"request_id": "self", "announced": true}}])",
       "segments[0].output_of"},
      {R"("prompt": "a", "priority": 1001)", "priority"},
      {R"("prompt": "a", "request_id": "a b")", "request_id"},
      {R"("prompt": "a", "session_id": "a\u0001")", "session_id"},
      {R"("prompt": "a", "workflow": "$$")", "workflow"},
      {R"("prompt": "a", "agent": "$$")", "agent"},
      {R"("prompt": "a", "cache_salt": "$$$$")", "cache_salt"},
      {R"("prompt": "a", "expected_tokens": -1)", "expected_tokens"},
      {R"("prompt": "a", "context_length": 1)", "context_length"},
      {R"("prompt": "a", "context_id": "c", "context_length": -1)", "context_length"},
      {R"("prompt": "a", "context_id": "no such")", "context_id"},
      {R"("prompt": "a", "context_id": "other")", "context_id"},
  };
  for (const auto& [fields, name] : cases) {
    CheckNamed(ErrorOf(c, "/v1/completions", Expanded("{" + std::string(fields) + "}")), name);
  }
}

TEST_CASE("An error of a chat names the field as it was sent") {
  Cluster c;
  ServeChats(c);
  const auto chat = [](const std::string& content, const std::string& more = "") {
    return R"({"messages": [{"role": "user", "content": )" + content + "}]" + more + "}";
  };
  // With tools, the answer reads the stop strings too.
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}], )";
  const std::pair<std::string, const char*> cases[] = {
      {chat(R"("hi")", R"(, "max_completion_tokens": -1)"), "max_completion_tokens"},
      {chat(R"("hi")", R"(, "max_completion_tokens": 64)"), "max_completion_tokens"},
      {chat(R"("hi")", R"(, "max_tokens": -1)"), "max_tokens"},
      {chat(R"("hi")", R"(, "max_tokens": 64)"), "max_tokens"},
      {chat(R"("hi")", R"(, "max_tokens": 64, "max_completion_tokens": 64)"), "max_tokens"},
      {chat(R"("hi")", R"(, "stop_token_ids": [256])"), "stop_token_ids[0]"},
      {chat(R"("hi")", R"(, "logit_bias": {"256": 1})"), "logit_bias"},
      {chat(R"("hi")", R"(, "logit_bias": {"1": 1, "01": 1})"), "logit_bias"},
      {chat(R"("hi")", R"(, "allowed_token_ids": [1, 256])"), "allowed_token_ids[1]"},
      {chat(R"("hi")", R"(, "allowed_token_ids": [97], "bad_words": ["a"])"), "allowed_token_ids"},
      {chat(R"("hi")", R"(, "allowed_token_ids": [97], "stop_token_ids": [97], "min_tokens": 1)"), "allowed_token_ids"},
      {chat(R"("hi")", R"(, "min_tokens": 4, "max_tokens": 3)"), "min_tokens"},
      {chat(R"("hi")", R"(, "min_tokens": 64)"), "min_tokens"},
      {chat(R"("hi")", R"(, "logprobs": true, "top_logprobs": 21)"), "top_logprobs"},
      {chat(R"("$")"), "messages"},
      {chat(R"("")"), "messages"},
      {chat(R"("no")"), "messages"},
      {R"({"messages": []})", "messages"},
      {chat(R"([{"type": "text", "text": "a"}, {"type": "output_of", "output_of": "nobody"}])"),
       "messages[0].content[1].output_of"},
      {chat(R"([{"type": "output_of", "output_of": "a b"}])"), "messages[0].content[0].output_of"},
      {chat(R"([{"type": "output_of", "output_of": {"request_id": "a b"}}])"),
       "messages[0].content[0].output_of.request_id"},
      {chat(R"("hi")", R"(, "context_id": "c")"), "context_id"},
      {chat(R"("hi")", tools + R"("stop": ["a", 1])"), "stop[1]"},
      {chat(R"("hi")", tools + R"("stop": [")" + std::string(1025, 'a') + R"("])"), "stop[0]"},
      {chat(R"("hi")", tools + R"("stop": ["a")" + absl::StrJoin(std::vector<std::string>(64, ",\"b\""), "") + "]"),
       "stop"},
  };
  for (const auto& [body, name] : cases) CheckNamed(ErrorOf(c, "/v1/chat/completions", Expanded(body)), name);
  CheckNamed(ErrorOf(c, "/tokenize", Expanded(R"({"prompt": "$"})")), "prompt");
  CheckNamed(ErrorOf(c, "/tokenize", Expanded(chat(R"("$")"))), "messages");
  CheckNamed(ErrorOf(c, "/generate", R"({"sampling": {"stop_ids": [256]}, "segments": {"segments": [{"text": "a"}]}})"),
             "sampling.stop_ids[0]");
  CheckNamed(ErrorOf(c, "/generate", Expanded(R"({"segments": {"segments": [{"text": "$"}]}})")), "segments.segments");
}

TEST_CASE("An error after the outputs of a prompt names the field as it was sent") {
  Cluster c;
  ServeChats(c);
  const auto error = [&](const std::string& path, const std::string& body, size_t output) {
    Call up(c, "up");
    PassPrefill(c, "up");
    HttpClient client(c.node->http()->address());
    client.Post(path, body);
    CHECK(c.prefill->Next().prefill().open());
    c.decode->Send(TokensEvent("up", std::string(output, 'a'), FinishReason::kStop));
    const HttpAnswer answer = client.Read();
    CHECK(up.Finish().status.ok());
    CHECK(answer.status == 400);
    while (!c.prefill->Next().has_cancel()) continue;  // ends the downstream request
    return json(json::parse(answer.body)["error"]);
  };
  const std::string completion = R"({"segments": [{"text": "0123456789"}, {"output_of": "up"}], "max_tokens": 8})";
  CheckNamed(error("/v1/completions", completion, 60), "segments");
  CheckNamed(error("/v1/completions", completion, 50), "max_tokens");
  const std::string chat = R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "0123456789"},
                              {"type": "output_of", "output_of": "up"}]}], "max_completion_tokens": 8})";
  CheckNamed(error("/v1/chat/completions", chat, 60), "messages");
  CheckNamed(error("/v1/chat/completions", chat, 50), "max_completion_tokens");
}

TEST_CASE("An error of a worker about a prompt names the field as it was sent") {
  Cluster c;
  ServeChats(c);
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/v1/completions", R"({"prompt": "a"})", "prompt"},
      {"/v1/completions", R"({"prompt": ["a"]})", "prompt[0]"},
      {"/v1/completions", R"({"segments": [{"text": "a"}]})", "segments"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})", "messages"},
      {"/generate", R"({"segments": {"segments": [{"text": "a"}]}})", "segments.segments"},
      {"/prefill_only", R"({"segments": {"segments": [{"text": "a"}]}})", "segments.segments"},
  };
  for (const auto& [path, body, field] : cases) {
    HttpClient client(c.node->http()->address());
    client.Post(path, body);
    c.prefill->Send(FailedEvent<worker::v1::PrefillEvent>(c.prefill->Next().prefill().request_id(),
                                                          absl::InvalidArgumentError("the prompt can never fit")));
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const json error = json::parse(answer.body)["error"];
    CheckNamed(error, field);
    CHECK(error["message"].get<std::string>().ends_with(": the prompt can never fit"));
  }
}

TEST_CASE("An error of a worker about constraints does not name the prompt") {
  Cluster c;
  ServeChats(c);
  const std::string error = "allowed_token_ids, bad_words, min_tokens and logit_bias together exclude all tokens";
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})");
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  c.decode->Next();
  c.decode->Send(TokensEvent(id, "x", std::nullopt));
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(id, absl::InvalidArgumentError(error)));
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 400);
  CHECK(json::parse(answer.body)["error"]["message"] == error);
}

TEST_CASE("An error over gRPC names the field of the message") {
  Cluster c;
  ServeChats(c);
  struct Case {
    const char* field;
    std::function<void(v1::GenerateRequest&)> change;
  };
  const auto sampling = [](auto set) {
    return [set](v1::GenerateRequest& request) { set(*request.mutable_sampling()); };
  };
  const auto segment = [](auto set) {
    return [set](v1::GenerateRequest& request) { set(*request.mutable_segments()->add_segments()); };
  };
  const auto message = [](auto set) {
    return [set](v1::GenerateRequest& request) {
      v1::ChatMessage& added = *request.mutable_chat()->add_messages();
      added.set_role("user");
      set(added);
    };
  };
  const Case cases[] = {
      {"sampling.stop_ids[0]", sampling([](auto& s) { s.add_stop_ids(256); })},
      {"sampling.stop[0]", sampling([](auto& s) { s.add_stop(""); })},
      {"sampling.top_k", sampling([](auto& s) { s.set_top_k(-1); })},
      {"sampling.top_p", sampling([](auto& s) { s.set_top_p(1.5f); })},
      {"sampling.logprobs", sampling([](auto& s) { s.set_logprobs(21); })},
      {"sampling.prompt_logprobs", sampling([](auto& s) { s.set_prompt_logprobs(21); })},
      {"sampling.prompt_logprobs", sampling([](auto& s) { s.set_prompt_logprobs(-1); })},
      {"sampling.max_tokens", sampling([](auto& s) { s.set_max_tokens(-1); })},
      {"sampling.max_tokens", sampling([](auto& s) { s.set_max_tokens(64); })},
      {"sampling.min_tokens", sampling([](auto& s) { s.set_min_tokens(50); })},
      {"sampling.logit_bias", sampling([](auto& s) { s.add_logit_bias()->set_bias(NAN); })},
      {"sampling.logit_bias", sampling([](auto& s) { s.add_logit_bias()->set_id(256); })},
      {"sampling.allowed_token_ids[0]", sampling([](auto& s) { s.add_allowed_token_ids(-1); })},
      {"sampling.bad_words[0]", sampling([](auto& s) { s.add_bad_words("\xff"); })},
      {"sampling.thinking_token_budget", sampling([](auto& s) { s.set_thinking_token_budget(-1); })},
      {"segments.segments[1].token_ids.ids[0]", segment([](auto& s) { s.mutable_token_ids()->add_ids(256); })},
      {"segments.segments[1].output_of.request_id", segment([](auto& s) { s.mutable_output_of(); })},
      {"segments.segments[1].output_of", segment([](auto& s) { s.mutable_output_of()->set_request_id("nobody"); })},
      {"segments.segments[1].output_of", segment([](auto& s) { s.mutable_output_of()->set_request_id("r"); })},
      {"segments.segments[1]", segment([](auto&) {})},
      {"segments.segments", segment([](auto& s) { s.set_text(std::string(70, 'x')); })},
      {"segments.segments", [](auto& r) { r.mutable_segments()->clear_segments(); }},
      {"prompt", [](auto& r) { r.clear_segments(); }},
      {"chat.messages", [](auto& r) { r.mutable_chat(); }},
      {"chat.messages", message([](auto& m) { m.set_content(std::string(70, 'x')); })},
      {"chat.messages", message([](auto& m) { m.set_content(""); })},
      {"chat.messages", message([](auto& m) { m.set_content("no"); })},
      {"chat.messages[0].role", message([](auto& m) { m.clear_role(); })},
      {"chat.messages[0].parts[0]", message([](auto& m) { m.add_parts(); })},
      {"chat.messages[0].parts[0].output_of",
       message([](auto& m) { m.add_parts()->mutable_output_of()->set_request_id("nobody"); })},
      {"chat.messages[0].tool_calls", message([](auto& m) { m.set_tool_calls("{}"); })},
      {"chat.tools", [](auto& r) { r.mutable_chat()->set_tools("{}"), r.mutable_chat()->add_messages(); }},
      {"context_id", [](auto& r) { r.set_context_id("other"); }},
      {"context_length", [](auto& r) { r.set_context_length(1); }},
      {"join", [](auto& r) { r.set_join(static_cast<v1::Join>(7)); }},
  };
  for (const Case& one : cases) {
    v1::GenerateRequest request = Call::Request("r", "hello");
    one.change(request);
    const std::string error(Message(Call(c, request).Finish().status));
    INFO(one.field << " | " << error);
    CHECK(error.starts_with(std::string(one.field) + ": "));
  }
}

TEST_CASE("A call without max_tokens gets what the prompt leaves of the context length") {
  Cluster c;
  ServeChats(c);
  const auto body = [](size_t tokens, const std::string& more = "") {
    return absl::StrCat("{\"prompt\": \"", std::string(tokens, 'p'), "\"", more, "}");
  };
  CHECK(SamplingOf(c, "/v1/completions", body(10)).max_tokens == 16);
  CHECK(SamplingOf(c, "/v1/completions", body(48)).max_tokens == 16);
  CHECK(SamplingOf(c, "/v1/completions", body(62)).max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", body(62, ", \"max_tokens\": null")).max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", body(62, ", \"max_tokens\": 2")).max_tokens == 2);
  const json error = ErrorOf(c, "/v1/completions", body(62, ", \"max_tokens\": 3"));
  CHECK(error["param"] == "max_tokens");
  CHECK(error["code"] == "context_length_exceeded");
  CHECK(ErrorOf(c, "/v1/completions", body(64))["param"] == "prompt");

  const auto list = SamplingsOf(c, "/v1/completions",
                                absl::StrCat("{\"prompt\": [\"a\", \"", std::string(61, 'p'), "\"], \"n\": 2}"), 4);
  for (size_t i = 0; i < 4; ++i) CHECK(list[i].max_tokens == (i < 2 ? 16 : 3));

  CHECK(SamplingOf(c, "/v1/chat/completions",
                   absl::StrCat("{\"messages\": [{\"role\": \"user\", \"content\": \"", std::string(62, 'p'), "\"}]}"))
            .max_tokens == 2);
  CHECK(SamplingOf(c, "/generate",
                   absl::StrCat("{\"segments\": {\"segments\": [{\"text\": \"", std::string(62, 'p'), "\"}]}}"))
            .max_tokens == 2);

  v1::GenerateRequest request = Call::Request("r", std::string(62, 'p'));
  request.mutable_sampling()->clear_max_tokens();
  Call call(c, request);
  CHECK(c.prefill->Next().prefill().request_id() == "r");
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK(FromProto(c.decode->Next().decode()).spec.sampling.max_tokens == 2);
  c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
  CHECK(call.Finish().status.ok());
}

TEST_CASE("A prompt from a context or an output leaves its default of max_tokens") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const std::string sixty(60, 'p');
  client.Post("/v1/completions", absl::StrCat(R"({"context_id": "c", "max_tokens": 0, "prompt": ")", sixty, "\"}"));
  c.prefill->Send(DoneEvent(c.prefill->Next().prefill().request_id(), Incarnation()));
  CHECK(client.Read().status == 200);
  CHECK(SamplingOf(c, "/v1/completions", R"({"context_id": "c", "prompt": "ab"})").max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", R"({"context_id": "c"})").max_tokens == 4);

  Call up(c, "up");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "ab", FinishReason::kStop));
  CHECK(up.Finish().status.ok());
  CHECK(SamplingOf(c, "/v1/completions",
                   absl::StrCat(R"({"segments": [{"text": ")", sixty, R"("}, {"output_of": "up"}]})"))
            .max_tokens == 2);
}

TEST_CASE("reasoning_effort bounds thinking if the prompt leaves thinking possible") {
  Cluster c;
  c.options.thinking = {.minimal = 5, .low = 0, .medium = 7};
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse(
      "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}", "", "");
  c.Serve(std::move(model));
  const auto budget = [&](const std::string& fields) {
    return SamplingOf(c, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}])" + fields + "}")
        .thinking_token_budget;
  };
  CHECK(budget("") == std::nullopt);
  CHECK(budget(R"(, "reasoning_effort": "minimal")") == 5);
  CHECK(budget(R"(, "reasoning_effort": "low")") == std::nullopt);
  CHECK(budget(R"(, "reasoning_effort": "medium")") == 7);
  CHECK(budget(R"(, "reasoning_effort": "high")") == std::nullopt);
  // The template has turned thinking off.
  CHECK(budget(R"(, "reasoning_effort": "none")") == std::nullopt);
  CHECK(budget(R"(, "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true})") == 0);
  CHECK(budget(R"(, "reasoning_effort": "minimal", "thinking_token_budget": 3)") == 3);
  CHECK(budget(R"(, "thinking_token_budget": 3)") == 3);

  Cluster plain;
  ServeChats(plain);
  CHECK(SamplingOf(plain, "/v1/chat/completions",
                   R"({"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "minimal"})")
            .thinking_token_budget == std::nullopt);
}

TEST_CASE("An error about a type at /generate names the field") {
  Cluster c;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"sampling": {"topK": 1.5}})", "sampling.top_k"},
      {R"({"sampling": {"stop_ids": [1, true]}})", "sampling.stop_ids[1]"},
      {R"({"sampling": {"topK": 1, "top_k": 2}})", "sampling.top_k"},
      {R"({"sampling": {"top_q": 1}})", "sampling.top_q"},
      {R"({"segments": {"segments": [{"text": 3}]}})", "segments.segments[0].text"},
      {R"({"priority": "high"})", "priority"},
  };
  for (const auto& [body, name] : cases) CheckNamed(ErrorOf(c, "/generate", body), name);
}

TEST_CASE("A router reads integral floats and large seeds over HTTP") {
  Cluster c;
  const std::string sampling = R"("max_tokens": 4.0, "seed": 18446744073709551615)";
  for (const auto& [path, body] :
       {std::pair("/v1/completions", StrCat(R"({"prompt": "hi", )", sampling, "}")),
        std::pair("/generate",
                  StrCat(R"({"segments": {"segments": [{"text": "hi"}]}, "sampling": {)", sampling, "}}"))}) {
    CAPTURE(path);
    const SamplingParams read = SamplingOf(c, path, body);
    CHECK(read.max_tokens == 4);
    CHECK(read.seed == ~uint64_t{0});
  }
}

TEST_CASE("A router reports ids of tokens, and usage in each event") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": "hi", "max_tokens": 4, "return_token_ids": true, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}})");
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  c.decode->Next();
  c.decode->Send(TokensEvent(id, "xy", FinishReason::kStop));
  const std::string events = client.Read().body;
  const json first = json::parse(events.substr(6, events.find('\n') - 6));
  CHECK(first["choices"][0]["prompt_token_ids"] == json({'h', 'i'}));
  CHECK(first["choices"][0]["token_ids"].size() == first["usage"]["completion_tokens"]);
  CHECK(first["usage"]["prompt_tokens"] == 2);
}

}  // namespace
}  // namespace baton
