// Tests of a real router's two front ends with a tiny model. Both give the same tokens.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "catch.h"
#include "http_client.h"
#include "model/sampler.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::json;

struct CompletionAnswer {
  std::string text, finish_reason;
};

// Reads the answer of a completion, whole or as events.
CompletionAnswer Read(HttpClient& client) {
  HttpAnswer answer = client.Read();
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  CompletionAnswer out;
  const auto add = [&](const std::string& text) {
    const json choice = json::parse(text)["choices"][0];
    out.text += choice["text"].get<std::string>();
    if (choice["finish_reason"].is_string()) out.finish_reason = choice["finish_reason"].get<std::string>();
  };
  if (answer.headers["content-type"] != "text/event-stream") {
    add(answer.body);
    return out;
  }
  CHECK(answer.body.ends_with("data: [DONE]\n\n"));
  for (size_t at = 0; answer.body.compare(at, 12, "data: [DONE]") != 0;) {
    const size_t end = answer.body.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    add(answer.body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return out;
}

TEST_CASE("HTTP and gRPC give the same tokens for the same seed") {
  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  HttpClient http(HttpOf(serve));
  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  for (const int seed : {1, 2, 3}) {
    v1::GenerateRequest request = MakeRequest(/*max_tokens=*/24);
    request.mutable_sampling()->set_temperature(0.8f);
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
    request.mutable_sampling()->set_ignore_eos(false);
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    std::string text;
    std::vector<int32_t> ids;
    while (reader->Read(&response)) {
      text += response.text();
      ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    }
    REQUIRE(reader->Finish().ok());
    REQUIRE_FALSE(text.empty());

    const std::string prompt = absl::StrJoin(request.segments().segments(0).token_ids().ids(), ",");
    for (const char* stream : {"false", "true"}) {
      http.Post("/v1/completions",
                absl::StrCat("{\"prompt\":[", prompt, "],\"max_tokens\":24,\"temperature\":0.8,\"seed\":", seed,
                             ",\"stream\":", stream, "}"));
      const CompletionAnswer answer = Read(http);
      CHECK(answer.text == text);
      CHECK(answer.finish_reason == (ids.size() == 24 ? "length" : "stop"));
    }
    http.Post("/generate",
              absl::StrCat("{\"segments\":{\"segments\":[{\"token_ids\":{\"ids\":[", prompt,
                           "]}}]},\"sampling\":{\"max_tokens\":24,\"temperature\":0.8,\"seed\":", seed, "}}"));
    const json generated = json::parse(http.Read().body);
    CHECK(generated["text"] == text);
    CHECK(generated["token_ids"] == json(ids));
  }
}

TEST_CASE("An answer depends on its prompt and seed, not on its place in a call") {
  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  HttpClient http(HttpOf(serve));
  const auto answers = [&](const std::string& prompt, uint64_t seed, int n) {
    http.Post("/v1/completions", absl::StrCat("{\"prompt\":", prompt, ",\"n\":", n, ",\"seed\":", seed,
                                              ",\"max_tokens\":16,\"temperature\":1,\"ignore_eos\":true}"));
    const HttpAnswer answer = http.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    std::vector<std::string> texts;
    const json body = json::parse(answer.body);
    for (const json& choice : body["choices"]) texts.push_back(choice["text"]);
    return texts;
  };
  using Texts = std::vector<std::string>;
  const std::string prompts[] = {"\"Once upon a time\"", "\"a boat\"", "[3,4,5]"};
  for (const uint64_t seed : {0, 7}) {
    Texts alone;
    for (const std::string& prompt : prompts) alone.push_back(answers(prompt, seed, 1).at(0));
    CHECK(answers("[\"Once upon a time\",\"a boat\",[3,4,5]]", seed, 1) == alone);
    CHECK(answers("[[3,4,5],\"a boat\",\"a boat\"]", seed, 1) == Texts{alone[2], alone[1], alone[1]});

    const Texts four = answers(prompts[1], seed, 4);
    CHECK(std::set<std::string>(four.begin(), four.end()).size() == 4);
    CHECK(four[0] == alone[1]);
    for (int n = 1; n <= 3; ++n) CHECK(answers(prompts[1], seed, n) == Texts(four.begin(), four.begin() + n));
    for (uint64_t i = 1; i < 4; ++i) CHECK(answers(prompts[1], ChoiceSeed(seed, i), 1) == Texts{four[i]});
    const Texts both = answers("[\"Once upon a time\",\"a boat\"]", seed, 2);
    CHECK(both == Texts{alone[0], both[1], four[0], four[1]});
  }
}

using Ids = std::vector<TokenId>;

constexpr TokenId kThink = 270, kThinkEnd = 271;

// Writes the tiny model with its last two tokens as the marks of thinking.
void WriteModel(const TempDir& directory) {
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json"}) {
    std::filesystem::copy_file(kModel + "/" + file, directory / file);
  }
  json tokenizer = json::parse(std::ifstream(kModel + "/tokenizer.json"));
  json& merges = tokenizer["model"]["merges"];
  merges.erase(merges.size() - 1);
  merges.erase(merges.size() - 1);
  json mark = tokenizer["added_tokens"][0];
  for (const auto& [id, text] : {std::pair(kThink, "<think>"), std::pair(kThinkEnd, "</think>")}) {
    json& vocabulary = tokenizer["model"]["vocab"];
    vocabulary.erase(std::ranges::find(vocabulary, json(id)));
    mark["id"] = id;
    mark["content"] = text;
    tokenizer["added_tokens"].push_back(mark);
  }
  directory.Write("tokenizer.json", tokenizer.dump());
}

TokenId Letter(char letter) { return letter >= 'a' ? 66 + letter - 'a' : 34 + letter - 'A'; }

struct ThinkingModel : TempDir {
  ThinkingModel() { WriteModel(*this); }
};

struct Server {
  ThinkingModel model;
  Process process{"baton",
                  {"serve", model.path(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                   "--kv-memory-mb", "8"}};
  HttpClient http{HttpOf(process)};

  json Choices(const json& body) {
    http.Post("/v1/completions", body.dump());
    const HttpAnswer answer = http.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    return json::parse(answer.body)["choices"];
  }
  // Returns the model's log probabilities of `output` after `prompt`.
  json Scored(const Ids& prompt, const Ids& output) {
    Ids all = prompt;
    all.insert(all.end(), output.begin(), output.end());
    const json choices = Choices({{"prompt", all}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
    const json& of_all = choices[0]["logprobs"]["token_logprobs"];
    return {of_all.begin() + std::ssize(prompt), of_all.end()};
  }
};

// Checks each constraint of the test's call for one choice.
void CheckConstraints(const json& choice, const Ids& allowed) {
  const Ids ids = choice["token_ids"];
  for (const TokenId id : ids) CHECK((std::ranges::count(allowed, id) > 0 || id == kThinkEnd));
  CHECK(std::ranges::find(ids, kThinkEnd) - ids.begin() <= 5);
  CHECK(std::ranges::count(ids, Letter('c')) == 0);
  for (size_t i = 1; i < ids.size(); ++i) CHECK_FALSE((ids[i - 1] == Letter('a') && ids[i] == Letter('b')));
  const std::string text = choice["text"];
  if (choice["finish_reason"] == "stop") CHECK(ids.size() > 12);
  CHECK(text.find('q', 20) == std::string::npos);  // of a token behind min_tokens
}

TEST_CASE("Each of several constrained choices equals the call for it alone") {
  Server server;
  const Ids prompt = {3, 4, 5, kThink};
  Ids allowed;
  for (char letter = 'a'; letter <= 'z'; ++letter) allowed.push_back(Letter(letter));
  for (char letter = 'A'; letter <= 'Z'; ++letter) allowed.push_back(Letter(letter));
  constexpr uint64_t kSeed = 7;
  json body = {{"prompt", prompt},
               {"max_tokens", 200},
               {"temperature", 1},
               {"seed", kSeed},
               {"return_token_ids", true},
               {"logprobs", 3},
               {"min_tokens", 12},
               {"allowed_token_ids", allowed},
               {"bad_words", {"ab", "c"}},
               {"logit_bias", {{std::to_string(Letter('z')), 3}, {std::to_string(Letter('d')), -100}}},
               {"thinking_token_budget", 5},
               {"stop", {"q", "rz"}}};
  json alone = json::array();
  for (uint64_t i = 0; i < 3; ++i) {
    body["seed"] = ChoiceSeed(kSeed, i);
    alone.push_back(server.Choices(body)[0]);
    alone.back()["index"] = i;
    CheckConstraints(alone.back(), allowed);
    const Ids ids = alone.back()["token_ids"];
    const json logprobs = alone.back()["logprobs"]["token_logprobs"], scored = server.Scored(prompt, ids);
    REQUIRE(logprobs.size() == ids.size());
    for (size_t k = 0; k < ids.size(); ++k)
      CHECK(logprobs[k].get<double>() == Approx(scored[k].get<double>()).margin(1e-3));
  }
  body["seed"] = kSeed;
  CHECK(std::ranges::any_of(alone, [](const json& choice) { return choice["finish_reason"] == "stop"; }));
  for (const size_t n : {2, 3}) {
    body["n"] = n;
    const json choices = server.Choices(body);
    REQUIRE(choices.size() == n);
    for (size_t i = 0; i < n; ++i) CHECK(choices[i] == alone[i]);
  }
}

TEST_CASE("A program names the flag that changes a port in use") {
  Process first("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  const std::string address = HttpOf(first);
  Process second("baton-router", {"--listen", "127.0.0.1:0", "--http", address, "--model", kModel, "--prefill-workers",
                                  "127.0.0.1:1", "--decode-workers", "127.0.0.1:2"});
  CHECK(second.Wait() == 1);
  INFO(second.Output());
  CHECK(second.Output().find(address) != std::string::npos);
  CHECK(second.Output().find("--http HOST:PORT") != std::string::npos);
}

}  // namespace
}  // namespace baton
