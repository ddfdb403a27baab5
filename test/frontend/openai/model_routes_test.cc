#include "frontend/openai/model_routes.h"

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

absl::StatusOr<std::vector<TokenId>> NoChat(const v1::Chat&, const ChatValues&, const ServedModel&) {
  return absl::InternalError("no chat was expected");
}

absl::StatusOr<std::string> Tokenize(const char* body) {
  return TokenizeBody(*ParseJsonBody(body), TestModels(), NoChat);
}
absl::StatusOr<std::string> Detokenize(const char* body) { return DetokenizeBody(*ParseJsonBody(body), TestModels()); }

TEST_CASE("ModelsBody lists models, and ModelBody finds a model by name") {
  const std::string plain =
      R"({"id":"plain","object":"model","created":9,"owned_by":"baton","root":"plain","parent":null,)"
      R"("max_model_len":1000,"permission":[{"id":"modelperm-plain","object":"model_permission","created":9,)"
      R"("allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,)"
      R"("allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]})";
  CHECK(ModelsBody(TestModels(), absl::FromUnixSeconds(9)).starts_with(R"({"object":"list","data":[)" + plain + ","));
  CHECK(*ModelBody(TestModels(), "plain", absl::FromUnixSeconds(9)) == plain);
  CHECK(absl::IsNotFound(ModelBody(TestModels(), "", absl::UnixEpoch()).status()));
  CHECK(Message(ModelBody(TestModels(), "gpt", absl::UnixEpoch()).status()) ==
        "model: expected one of 'plain', 'qwen', 'llama', 'think', 'other', got 'gpt'");
  CHECK(VersionBody().starts_with("{\"version\":\""));
}

TEST_CASE("TokenizeBody puts the tokenizer's prefix before text by default") {
  CHECK(*Tokenize(R"({"model": "plain", "prompt": "hi"})") ==
        R"({"count":3,"max_model_len":1000,"tokens":[257,104,105]})");
  CHECK(*Tokenize(R"({"model": "plain", "prompt": "hi", "add_special_tokens": false})") ==
        R"({"count":2,"max_model_len":1000,"tokens":[104,105]})");
  CHECK(*Tokenize(R"({"model": "plain", "prompt": "", "add_special_tokens": false})") ==
        R"({"count":0,"max_model_len":1000,"tokens":[]})");
}

TEST_CASE("TokenizeBody tokenises messages like their chat") {
  const auto chat_tokens = [](const v1::Chat& chat, const ChatValues& values,
                              const ServedModel& model) -> absl::StatusOr<std::vector<TokenId>> {
    CHECK(model.name == "qwen");
    CHECK(chat.messages(0).content() == "hi");
    CHECK(*jinja::ToJson(values.tools, -1) == R"([{"function": {"name": "f"}}])");
    return std::vector<TokenId>{1, 2};
  };
  CHECK(*TokenizeBody(*ParseJsonBody(R"({"model": "qwen", "messages": [{"role": "user", "content": "hi"}],
                                         "tools": [{"function": {"name": "f"}}]})"),
                      TestModels(), chat_tokens) == R"({"count":2,"max_model_len":1000,"tokens":[1,2]})");
}

TEST_CASE("DetokenizeBody turns ids into text, with special tokens by name") {
  CHECK(*Detokenize(R"({"model": "plain", "tokens": [104, 257, 195, 169, 255]})") ==
        "{\"prompt\":\"h<|eot_id|>\u00e9\uFFFD\"}");
  CHECK(*Detokenize(R"({"model": "plain", "tokens": []})") == R"({"prompt":""})");
}

TEST_CASE("Both routes refuse bad fields by name") {
  const auto error = [](const absl::StatusOr<std::string>& result) {
    CHECK(absl::IsInvalidArgument(result.status()));
    return std::string(Message(result.status()));
  };
  CHECK(error(Tokenize(R"({"model": "plain"})")) == "messages: expected a list of messages, got none");
  CHECK(error(Tokenize(R"({"model": "plain", "prompt": ["a"]})")) == "prompt: expected a string, got a list of 1");
  CHECK(error(Tokenize(R"({"model": "plain", "prompt": "a", "messages": []})")) == "messages: is not supported");
  CHECK(error(Tokenize(R"({"model": "plain", "prompt": "a", "x": 1})")) == "x: is not supported");
  const std::string longer = StrCat(R"({"model": "plain", "prompt": ")", std::string(1001, 'a'), "\"}");
  CHECK(error(Tokenize(longer.c_str())).starts_with("prompt: at least 1001 tokens, limit 1000"));
  // The prefix of the tokenizer counts as one of the tokens.
  CHECK(error(Tokenize(StrCat(R"({"model": "plain", "prompt": ")", std::string(1000, 'a'), "\"}").c_str()))
            .starts_with("prompt: 1001 tokens, limit 1000"));
  std::string ids = "1";
  for (int i = 0; i < 1000; ++i) ids += ",1";
  CHECK(error(Detokenize(StrCat(R"({"model": "plain", "tokens": [)", ids, "]}").c_str())) ==
        "tokens: expected at most 1000, got 1001 (context length 1000 of 'plain')");
  CHECK(error(Detokenize(R"({"model": "plain"})")) == "tokens: expected a list of token ids, got none");
  CHECK(error(Detokenize(R"({"model": "plain", "tokens": [260]})")) ==
        "tokens[0]: expected a token id in [0, 260), got 260");
  CHECK(absl::IsNotFound(Detokenize(R"({"model": "gpt", "tokens": [1]})").status()));
  const ServedModels unnamed = ModelWithUnnamedIds();
  CHECK(error(DetokenizeBody(*ParseJsonBody(R"({"tokens": [199, 200]})"), unnamed)) ==
        "tokens[1]: expected an id that has a token in tokenizer.json of 'plain', got 200");
}

}  // namespace
}  // namespace baton
