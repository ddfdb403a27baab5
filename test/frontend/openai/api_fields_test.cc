// Tests of the table of body fields, row by row.
#include "frontend/openai/api_fields.h"

#include <algorithm>
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
      {"workflow_limits", R"({"deadline_ms": 5, "max_tokens": 9})"},
      {"agent", R"("a")"},
      {"expected_tokens", "7"},
      {"context_id", R"("c")"},
      {"context_length", "4"},
      {"join", R"("arrival")"},
      {"first", "1"},
      {"keep", "true"},
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
      {"logit_bias", R"({"7": -1.5})"},
      {"min_tokens", "2"},
      {"allowed_token_ids", "[1]"},
      {"bad_words", R"(["a"])"},
      {"thinking_token_budget", "3"},
      {"user", R"("u")"},
      {"safety_identifier", R"("u")"},
      {"prompt_cache_key", R"("u")"},
      {"prompt_cache_retention", R"("24h")"},
      {"prompt_cache_options", R"({"mode": "explicit", "ttl": "30m"})"},
      {"return_tokens_as_token_ids", "true"},
      {"return_token_ids", "true"},
      {"metadata", R"({"a": "b"})"},
      {"best_of", "1"},
      {"max_tokens", "3"},
      {"max_completion_tokens", "3"},
      {"logprobs", "3"},
      {"top_logprobs", "0"},
      {"echo", "true"},
      {"prompt_logprobs", "3"},
      {"tool_choice", R"("auto")"},
      {"response_format", R"({"type": "text"})"},
      {"function_call", R"("auto")"},
      {"functions", R"([{"name": "f"}])"},
      {"add_generation_prompt", "false"},
      {"parallel_tool_calls", "false"},
      {"tools", R"([{"type": "function", "function": {"name": "f"}}])"},
      {"chat_template_kwargs", R"({"x": 1})"},
      {"reasoning_effort", R"("low")"},
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

// Values of every type, with which a fixed or refused field is tried.
const std::vector<Json>& OtherValues() {
  static const auto* values = new std::vector<Json>{true,
                                                    false,
                                                    -1,
                                                    0,
                                                    1,
                                                    2.5,
                                                    "",
                                                    "other",
                                                    "low",
                                                    "right",
                                                    Json::parse("[]"),
                                                    Json::parse(R"(["audio"])"),
                                                    Json::parse("[[[]]]"),
                                                    Json::parse("{}"),
                                                    Json::parse(R"({"type":"json_object"})"),
                                                    "\xF0\x9D\x84\x9E"};
  return *values;
}

TEST_CASE("Each fixed field accepts its values and refuses all others by name") {
  for (const ApiField& field : ApiFields()) {
    if (field.state == State::kSupported) continue;
    const std::string name(field.name);
    std::vector<Json> accepted;
    for (const std::string_view text : {field.value, field.other_value}) {
      if (!text.empty()) accepted.push_back(Json::parse(text));
    }
    for (const Api api : kApis) {
      if (!field.apis.contains(api)) continue;
      CAPTURE(name, static_cast<int>(api));
      for (const Json& value : accepted) CHECK(ReadWith(api, name, value).message() == "");
      for (const Json& value : OtherValues()) {
        if (std::ranges::find(accepted, value) != accepted.end()) continue;
        CAPTURE(value.dump());
        CHECK(Message(ReadWith(api, name, value)).starts_with(name + ": "));
      }
    }
  }
}

// From the types of openai-python 3.54 and the protocol files of vLLM in November 2026, with fields
// that earlier versions of vLLM had.
TEST_CASE("Each field that vLLM and OpenAI have is in the table") {
  const std::vector<std::string> both = {"model",
                                         "n",
                                         "stream",
                                         "stream_options",
                                         "frequency_penalty",
                                         "presence_penalty",
                                         "repetition_penalty",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "seed",
                                         "stop",
                                         "stop_token_ids",
                                         "ignore_eos",
                                         "min_tokens",
                                         "logit_bias",
                                         "user",
                                         "use_beam_search",
                                         "length_penalty",
                                         "include_stop_str_in_output",
                                         "skip_special_tokens",
                                         "spaces_between_special_tokens",
                                         "truncate_prompt_tokens",
                                         "allowed_token_ids",
                                         "bad_words",
                                         "prompt_logprobs",
                                         "response_format",
                                         "structured_outputs",
                                         "guided_json",
                                         "guided_regex",
                                         "guided_choice",
                                         "guided_grammar",
                                         "guided_decoding_backend",
                                         "guided_whitespace_pattern",
                                         "structural_tag",
                                         "priority",
                                         "request_id",
                                         "logits_processors",
                                         "return_tokens_as_token_ids",
                                         "return_token_ids",
                                         "cache_salt",
                                         "kv_transfer_params",
                                         "vllm_xargs",
                                         "session_id",
                                         "watermarking",
                                         "truncation_side",
                                         "logprob_token_ids",
                                         "thinking_token_budget",
                                         "repetition_detection",
                                         "routed_experts_prompt_start",
                                         "return_token_offsets",
                                         "return_mm_kwargs",
                                         "ec_transfer_params",
                                         "stream_interval",
                                         "echo",
                                         "add_special_tokens",
                                         "max_tokens",
                                         "logprobs"};
  const std::vector<std::string> chat = {"messages",
                                         "top_logprobs",
                                         "max_completion_tokens",
                                         "tools",
                                         "tool_choice",
                                         "functions",
                                         "function_call",
                                         "parallel_tool_calls",
                                         "reasoning_effort",
                                         "include_reasoning",
                                         "return_prompt_text",
                                         "moderation",
                                         "prompt_cache_options",
                                         "audio",
                                         "modalities",
                                         "prediction",
                                         "web_search_options",
                                         "metadata",
                                         "store",
                                         "service_tier",
                                         "verbosity",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "add_generation_prompt",
                                         "continue_final_message",
                                         "documents",
                                         "chat_template",
                                         "chat_template_kwargs",
                                         "mm_processor_kwargs",
                                         "media_io_kwargs"};
  const std::map<Api, std::vector<std::string>> names = {
      {Api::kCompletions, {"prompt", "suffix", "best_of", "prompt_embeds"}},
      {Api::kChat, chat},
      {Api::kTokenizeText, {"model", "prompt", "add_special_tokens", "return_token_strs"}},
      {Api::kTokenizeChat,
       {"model", "messages", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template",
        "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "tools", "return_token_strs"}},
      {Api::kDetokenize, {"model", "tokens"}}};
  const auto has = [](Api api, const std::string& name) {
    return std::ranges::any_of(ApiFields(),
                               [&](const ApiField& field) { return field.name == name && field.apis.contains(api); });
  };
  for (const auto& [api, list] : names) {
    for (const std::string& name : list) {
      CAPTURE(name, static_cast<int>(api));
      CHECK(has(api, name));
    }
  }
  for (const std::string& name : both) {
    CAPTURE(name);
    CHECK(has(Api::kCompletions, name));
    CHECK(has(Api::kChat, name));
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
              StrCat(name, ": expected ", field.value,
                     field.other_value.empty() ? "" : StrCat(" or ", field.other_value),
                     ", got 'other', which is not supported"));
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
  // "moderation" is refused.
  CHECK(Message(ReadWith(Api::kChat, "moderations", 1)) == "moderations: is not supported");
  CHECK(Message(ReadWith(Api::kChat, "guided_jsons", 1)) == "guided_jsons: is not supported");
}

TEST_CASE("Completions and chats accept labels, and fixed fields at their value") {
  const Json fields = Json::parse(R"({
      "user": "u", "safety_identifier": "u", "prompt_cache_key": "k", "metadata": {"a": "b"}, "best_of": 1,
      "logit_bias": {}, "suffix": "", "functions": [], "min_tokens": 0, "response_format": {"type": "text"},
      "modalities": ["text"], "verbosity": "medium", "function_call": "none", "store": false, "service_tier": "auto",
      "prompt_cache_retention": "in_memory", "prompt_cache_options": {}, "stream_interval": 1})");
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
