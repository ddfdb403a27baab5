// Tests of the table of body fields, row by row.
#include "frontend/openai/api_fields.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

using State = ApiField::State;

constexpr Api kApis[] = {Api::kCompletions,  Api::kChat,         Api::kPrefillHint,
                         Api::kTokenizeText, Api::kTokenizeChat, Api::kDetokenize};

// The smallest valid body of an API.
Json LeastBody(Api api) {
  switch (api) {
    case Api::kCompletions:
    case Api::kTokenizeText:
      return Json::parse(R"({"model": "qwen", "prompt": "hi"})");
    case Api::kDetokenize:
      return Json::parse(R"({"model": "qwen", "tokens": [1]})");
    case Api::kPrefillHint:
      return Json::parse(R"({"model": "qwen", "messages": [{"role": "user", "content": [{"type": "output"}]}]})");
    default:
      return Json::parse(R"({"model": "qwen", "messages": [{"role": "user", "content": "hi"}]})");
  }
}

absl::Status Read(Api api, const Json& json) {
  FieldReader body(json, "");
  CompletionCall call;
  v1::GenerateRequest request;
  BodyDraft draft = DraftOf(api, body, TestModels(), call, request);
  return ReadFields(draft);
}

absl::Status ReadWith(Api api, std::string_view name, const Json& value) {
  Json body = LeastBody(api);
  if (name == "segments") body.erase("prompt");  // "segments" replace the prompt
  body[std::string(name)] = value;
  return Read(api, body);
}

// An accepted value, as JSON, for each supported field that LeastBody does not have. Add a value
// for each new field.
const std::map<std::string, std::string>& Examples() {
  static const auto* examples = new std::map<std::string, std::string>{
      {"n", "2"},
      {"stream", "true"},
      {"stream_options", "{}"},
      {"timeout_ms", "5"},
      {"session_id", R"("s")"},
      {"request_id", R"("r")"},
      {"cache_salt", R"("c")"},
      {"priority", "-3"},
      {"workflow", R"("w")"},
      {"agent", R"("a")"},
      {"expected_tokens", "7"},
      {"context_id", R"("c")"},
      {"context_length", "4"},
      {"join", R"("arrival")"},
      {"temperature", "0.5"},
      {"top_k", "-1"},
      {"top_p", "0.5"},
      {"min_p", "0.5"},
      {"repetition_penalty", "1.5"},
      {"presence_penalty", "0.5"},
      {"frequency_penalty", "0.5"},
      {"seed", "3"},
      {"ignore_eos", "true"},
      {"stop", R"(["a"])"},
      {"stop_token_ids", "[1]"},
      {"user", R"("u")"},
      {"safety_identifier", R"("u")"},
      {"prompt_cache_key", R"("u")"},
      {"metadata", R"({"a": "b"})"},
      {"best_of", "1"},
      {"max_tokens", "3"},
      {"max_completion_tokens", "3"},
      {"logprobs", "3"},
      {"top_logprobs", "0"},
      {"echo", "true"},
      {"tool_choice", R"("auto")"},
      {"parallel_tool_calls", "false"},
      {"tools", R"([{"type": "function", "function": {"name": "f"}}])"},
      {"chat_template_kwargs", R"({"x": 1})"},
      {"followers", R"([{"messages": [{"role": "user", "content": [{"type": "output"}]}]}])"},
      {"add_special_tokens", "false"},
      {"segments", R"([{"text": "hi"}])"},
  };
  return *examples;
}

TEST_CASE("Each row is complete, and each API has a field once") {
  std::set<std::pair<Api, std::string_view>> seen;
  for (const ApiField& field : ApiFields()) {
    INFO(std::string(field.name));
    CHECK((field.read != nullptr) == (field.state == State::kSupported));
    CHECK(field.value.empty() == (field.state != State::kFixed));
    CHECK(field.reason.empty() == (field.state != State::kRefused));
    int apis = 0;
    for (const Api api : kApis) {
      if (!field.apis.contains(api)) continue;
      ++apis;
      CHECK(seen.emplace(api, field.name).second);
    }
    CHECK(apis > 0);
  }
  for (const SamplingField& field : SamplingFields()) {
    if (!field.json.empty()) CHECK(seen.contains({Api::kChat, field.json}));
  }
}

TEST_CASE("Each API reads its rows according to their state") {
  for (const ApiField& field : ApiFields()) {
    for (const Api api : kApis) {
      if (!field.apis.contains(api)) continue;
      const std::string name(field.name);
      CAPTURE(name, static_cast<int>(api));
      const bool needed = LeastBody(api).contains(name) || name == "segments";
      // Null counts as absent.
      if (api != Api::kTokenizeText) CHECK(ReadWith(api, name, nullptr).ok() == !needed);
      if (field.state == State::kSupported && !LeastBody(api).contains(name)) {
        REQUIRE(Examples().contains(name));
        // The field is a number in completions.
        const bool flag = name == "logprobs" && api == Api::kChat;
        CHECK(ReadWith(api, name, flag ? Json(true) : Json::parse(Examples().at(name))).message() == "");
      } else if (field.state == State::kFixed) {
        CHECK(ReadWith(api, name, Json::parse(field.value)).message() == "");
        CHECK(Message(ReadWith(api, name, "other")) ==
              StrCat(name, ": expected ", field.value, ", got 'other', which is not supported"));
      } else if (field.state == State::kRefused) {
        CHECK(Message(ReadWith(api, name, 1)) == StrCat(name, ": ", field.reason));
      }
    }
  }
}

TEST_CASE("ReadFields refuses a field of another API, or of none, by name") {
  std::set<std::string> names = {"unknown"};
  for (const ApiField& field : ApiFields()) names.insert(std::string(field.name));
  for (const Api api : kApis) {
    CHECK(Read(api, LeastBody(api)).message() == "");
    for (const std::string& name : names) {
      bool known = false;
      for (const ApiField& field : ApiFields()) known |= field.name == name && field.apis.contains(api);
      if (known) continue;
      CAPTURE(name, static_cast<int>(api));
      CHECK(Message(ReadWith(api, name, 1)).starts_with(StrCat(name, ": is not supported")));
    }
  }
}

TEST_CASE("ReadFields names the nearest field when it refuses an unknown one") {
  CHECK(Message(ReadWith(Api::kChat, "max_token", 1)) == "max_token: is not supported. Did you mean 'max_tokens'?");
  CHECK(Message(ReadWith(Api::kDetokenize, "token_ids", 1)) == "token_ids: is not supported. Did you mean 'tokens'?");
  CHECK(Message(ReadWith(Api::kChat, "beam_width", 1)) == "beam_width: is not supported");
}

TEST_CASE("Completions and chats accept labels, and fixed fields at their value") {
  const Json fields = Json::parse(R"({
      "user": "u", "safety_identifier": "u", "prompt_cache_key": "k", "metadata": {"a": "b"}, "best_of": 1,
      "logit_bias": {}, "suffix": "", "functions": [], "min_tokens": 0, "response_format": {"type": "text"},
      "modalities": ["text"], "verbosity": "medium", "function_call": "none", "store": false, "service_tier": "auto",
      "prompt_cache_retention": "in_memory"})");
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    Json body = LeastBody(api);
    body.update(fields);
    CHECK(Read(api, body).message() == "");
  }
}

TEST_CASE("ReadFields reports the first error in the table's order") {
  const auto error = [](const char* fields) {
    Json body = LeastBody(Api::kChat);
    body.update(Json::parse(fields));
    const std::string message(Message(Read(Api::kChat, body)));
    return message.substr(0, message.find(':'));
  };
  CHECK(error(R"({"top_k": "x", "model": 3, "messages": 3})") == "model");
  CHECK(error(R"({"best_of": 3, "top_k": "x", "n": "x"})") == "n");
  CHECK(error(R"({"messages": 3, "top_k": "x", "store": 1})") == "top_k");
  CHECK(error(R"({"messages": 3, "store": 1})") == "store");
  CHECK(error(R"({"unknown": 1, "messages": 3})") == "messages");
}

TEST_CASE("ReadFields accepts a second value without effect") {
  CHECK(ReadWith(Api::kChat, "service_tier", "default").ok());
  CHECK_FALSE(ReadWith(Api::kChat, "service_tier", "flex").ok());
  CHECK_FALSE(ReadWith(Api::kChat, "store", "").ok());
}

}  // namespace
}  // namespace baton
