// Tests of the edges of texts: stop strings with names of special tokens, characters that tokens of
// a prompt and of its output share, and ids without a token. A process of `baton serve` has a tiny
// model.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "temp_dir.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton {
namespace {

using nlohmann::json;

// Special tokens of the tiny model. All others are bytes, or pairs of letters.
constexpr TokenId kFirstPlain = 2, kFirstPair = 258;

class Server {
 public:
  Server()
      : process_("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                           "--kv-memory-mb", "8"}),
        http_(HttpOf(process_)) {
    auto tokenizer = Tokenizer::Load(kModel);
    REQUIRE(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }

  json Post(const std::string& path, const json& body) {
    http_.Post(path, body.dump());
    const HttpAnswer answer = http_.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    return json::parse(answer.body);
  }

  struct Answer {
    std::string text, finish_reason;
    bool operator==(const Answer&) const = default;
  };
  // Returns the answer to a completion or a chat. CHECKs that a stream has the same.
  Answer Complete(const std::string& path, json body) {
    Answer whole, streamed;
    Add(Post(path, body)["choices"][0], whole);
    body["stream"] = true;
    http_.Post(path, body.dump());
    const std::string events = http_.Read().body;
    for (size_t at = 0; events.compare(at, 12, "data: [DONE]") != 0;) {
      const size_t end = events.find("\n\n", at);
      REQUIRE(end != std::string::npos);
      Add(json::parse(events.substr(at + 6, end - at - 6))["choices"][0], streamed);
      at = end + 2;
    }
    CHECK(streamed == whole);
    return whole;
  }

  // The text of `ids` that follow `before`.
  std::string TextOf(std::span<const TokenId> ids, std::span<const TokenId> before = {}) const {
    Detokenizer detokenizer(*tokenizer_);
    detokenizer.BeginAfter(before);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.Push(id);
    return text + detokenizer.Finish();
  }
  // Whether a token of `ids` completes a character that begins in `before`.
  bool Continues(std::span<const TokenId> ids, std::span<const TokenId> before) const {
    return !UnfinishedEnd(*tokenizer_, before).empty() && !TextOf(ids, before).starts_with("\uFFFD");
  }

 private:
  static void Add(const json& choice, Answer& answer) {
    if (choice.contains("text")) answer.text += choice["text"].get<std::string>();
    for (const char* member : {"message", "delta"}) {
      if (choice.contains(member)) answer.text += choice[member].value("content", "");
    }
    if (choice["finish_reason"].is_string()) answer.finish_reason = choice["finish_reason"].get<std::string>();
  }

  Process process_;
  HttpClient http_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

json Segment(const std::vector<TokenId>& ids) { return {{"token_ids", {{"ids", ids}}}}; }

json Sampling(uint64_t seed, int max_tokens) {
  return {{"max_tokens", max_tokens}, {"temperature", 2}, {"seed", seed}, {"ignore_eos", true}};
}

// The last character of a text.
std::string LastOf(const std::string& text) {
  size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

TEST_CASE("A special token's name ends an answer as its id does") {
  Server server;
  const bool chat = GENERATE(false, true);
  const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
  json body = Sampling(0, 60);
  if (chat) {
    body["messages"] = {{{"role", "user"}, {"content", "abc"}}};
  } else {
    body["prompt"] = "abc";
  }
  Server::Answer by_id;
  body["stop_token_ids"] = {0};
  for (int seed = 1; by_id.finish_reason != "stop" || by_id.text.size() < 8; ++seed) {
    REQUIRE(seed < 200);
    body["seed"] = seed;
    by_id = server.Complete(path, body);
  }
  body.erase("stop_token_ids");
  body["stop"] = {"<s>"};
  CHECK(server.Complete(path, body) == by_id);
  const std::string last = LastOf(by_id.text);
  body["stop"] = {last + "<s>"};
  const std::string before_last = by_id.text.substr(0, by_id.text.size() - last.size());
  CHECK(server.Complete(path, body).text == before_last);
  body["stop_token_ids"] = {0};  // the same token is also a stop id
  CHECK(server.Complete(path, body).text == before_last);
}

TEST_CASE("An echo and its output have the text of all their tokens") {
  Server server;
  std::mt19937 random(1);
  int continued = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::vector<TokenId> prompt(random() % 5 + 1);
    for (TokenId& id : prompt) id = kFirstPlain + static_cast<TokenId>(random() % (kFirstPair - kFirstPlain));
    const auto middle = prompt.begin() + static_cast<std::ptrdiff_t>(random() % prompt.size());
    const json segments = {Segment({prompt.begin(), middle}), Segment({middle, prompt.end()})};
    const json sampling = Sampling(seed, 3);
    const std::vector<TokenId> output =
        server.Post("/generate", {{"segments", {{"segments", segments}}}, {"sampling", sampling}})["token_ids"];
    json body = sampling;
    body["segments"] = {{{"token_ids", std::vector<TokenId>(prompt.begin(), middle)}},
                        {{"token_ids", std::vector<TokenId>(middle, prompt.end())}}};
    body["echo"] = true;
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), output.begin(), output.end());
    CHECK(server.Complete("/v1/completions", body).text == server.TextOf(all));
    continued += server.Continues(output, prompt);
  }
  CHECK(continued > 0);
}

TEST_CASE("A prompt may go on inside a character that an output ends in") {
  Server server;
  int continued = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const std::string id = absl::StrCat("r", seed);
    const json upstream = {
        {"request_id", id}, {"segments", {{"segments", {Segment({100, 101})}}}}, {"sampling", Sampling(seed, 2)}};
    std::vector<TokenId> ids = server.Post("/generate", upstream)["token_ids"];
    std::erase_if(ids, [](TokenId token) { return token < kFirstPlain; });
    if (ids.empty()) continue;

    const json reference = {{"output_of", {{"request_id", id}}}};
    json downstream = {{"segments", {{"segments", {reference}}}}, {"sampling", Sampling(seed + 100, 3)}};
    const json answer = server.Post("/generate", downstream);
    const std::vector<TokenId> output = answer["token_ids"];
    CHECK(answer["text"] == server.TextOf(output, ids));
    continued += server.Continues(output, ids);

    server.Post("/prefill_only", {{"context_id", id}, {"segments", {{"segments", {Segment(ids)}}}}});
    downstream.erase("segments");
    downstream["context_id"] = id;
    CHECK(server.Post("/generate", downstream)["text"] == answer["text"]);
  }
  CHECK(continued > 0);
}

TEST_CASE("Offsets of log probabilities are those of the final text") {
  Server server;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const json sampling = Sampling(seed, 12);
    const json segments = {{"segments", {Segment({100, 101})}}};
    const std::vector<TokenId> ids =
        server.Post("/generate", {{"segments", segments}, {"sampling", sampling}})["token_ids"];
    json body = sampling;
    body["prompt"] = {100, 101};
    body["logprobs"] = 0;
    const json choice = server.Post("/v1/completions", body)["choices"][0];
    const std::vector<int64_t> offsets = choice["logprobs"]["text_offset"];
    REQUIRE(offsets.size() == ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      // The token's own bytes are in the last characters of the text up to it.
      const std::string until = server.TextOf(std::span(ids).first(i + 1));
      const int64_t own = ids[i] < kFirstPlain ? 0 : ids[i] < kFirstPair ? 1 : 2;
      CHECK(offsets[i] == CountCharacters(until) - own);
    }
  }
}

constexpr int32_t kRows = 272;

// kModel with a tokenizer of ASCII characters and two pairs, which leaves holes and padding.
class SparseModel {
 public:
  SparseModel() {
    std::filesystem::copy(kModel, directory());
    std::ifstream file(kModel + "/tokenizer.json");
    json tokenizer = json::parse(file);
    json& vocab = tokenizer["model"]["vocab"];
    const json all = vocab;
    vocab = json::object();
    for (const auto& [name, id] : all.items()) {
      if (id >= 96 && name != "et" && name != "ti") continue;
      vocab[name] = id;
      named_.insert(id.get<int32_t>());
    }
    tokenizer["model"]["merges"] = json::parse(R"([["e", "t"], ["t", "i"]])");
    std::ofstream(directory() + "/tokenizer.json") << tokenizer;
  }

  std::string directory() const { return root_ / "sparse"; }
  bool Names(int32_t id) const { return named_.contains(id); }
  int32_t unnamed() const { return kRows - static_cast<int32_t>(named_.size()); }

 private:
  const TempDir root_;
  std::set<int32_t> named_;
};

json Post(HttpClient& http, const char* path, const std::string& body, int status) {
  http.Post(path, body);
  const HttpAnswer answer = http.Read();
  INFO(answer.body);
  REQUIRE(answer.status == status);
  return json::parse(answer.body);
}

TEST_CASE("A server samples only ids that have a token, and refuses the others") {
  const SparseModel model;
  Process serve("baton", {"serve", model.directory(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads",
                          "1", "--kv-memory-mb", "8"});
  HttpClient http(HttpOf(serve));
  CHECK(serve.Output().find(absl::StrCat("model sparse: ", model.unnamed(), " of 272 token ids have no token")) !=
        std::string::npos);

  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  v1::GenerateRequest request = MakeRequest(/*max_tokens=*/60);
  auto& ids = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids();
  for (int32_t& id : ids) id %= 96;
  for (const float temperature : {0.0f, 3.0f}) {
    request.mutable_sampling()->set_temperature(temperature);
    // With top log probabilities, tokens are sampled on the CPU. Without, a device may sample.
    for (const int top : {0, 20}) {
      request.mutable_sampling()->set_logprobs(top);
      for (uint64_t seed = 0; seed < (temperature > 0 ? 5 : 1); ++seed) {
        request.mutable_sampling()->set_seed(seed);
        grpc::ClientContext context;
        const auto reader = stub->Generate(&context, request);
        v1::GenerateResponse response;
        int tokens = 0;
        while (reader->Read(&response)) {
          tokens += response.token_ids_size();
          for (const int32_t id : response.token_ids()) CHECK(model.Names(id));
          for (const v1::TokenLogprobs& entry : response.logprobs()) {
            CHECK(entry.top_ids_size() == top);
            for (const int32_t id : entry.top_ids()) CHECK(model.Names(id));
          }
        }
        REQUIRE(reader->Finish().ok());
        CHECK(tokens == 60);
      }
    }
  }
  const char sampled_body[] =
      R"({"prompt": [5, 6, 7], "temperature": 3, "seed": 1, "max_tokens": 40, "ignore_eos": true, "logprobs": 5})";
  const json answer = Post(http, "/v1/completions", sampled_body, 200);
  for (const json& name : answer["choices"][0]["logprobs"]["tokens"]) CHECK_FALSE(name.get<std::string>().empty());

  const auto refused = [&](const char* path, const std::string& body, const std::string& param) {
    const json error = Post(http, path, body, 400)["error"];
    CHECK(error["param"] == param);
    CHECK(error["message"] ==
          absl::StrCat(param, ": expected an id that has a token in tokenizer.json of 'sparse', got 200"));
  };
  refused("/v1/completions", R"({"prompt": [5, 200]})", "prompt[1]");
  refused("/v1/completions", R"({"prompt": [[5], [5, 200]]})", "prompt[1][1]");
  refused("/v1/completions", R"({"segments": [{"token_ids": [200]}]})", "segments[0].token_ids[0]");
  refused("/detokenize", R"({"tokens": [5, 200]})", "tokens[1]");
  const json stop = Post(http, "/v1/completions", R"({"prompt": [5], "stop_token_ids": [5, 200]})", 400)["error"];
  CHECK(stop["param"].get<std::string>().ends_with("[1]"));
  CHECK(stop["message"].get<std::string>().ends_with("tokenizer.json of 'sparse', got 200"));

  ids.Add(271);
  CHECK(Call(*stub, request).Finish() ==
        absl::InvalidArgumentError(
            "segments.segments[0].token_ids.ids[40]: expected an id that has a token in tokenizer.json of "
            "'sparse', got 271"));
}

TEST_CASE("A decode worker reports at its start how many ids have no token") {
  const SparseModel model;
  Process decode("baton-decode", Small({"--check"}, model.directory()));
  CHECK(decode.Wait() == 0);
  INFO(decode.Output());
  CHECK(decode.Output().find(absl::StrCat("model sparse: ", model.unnamed(), " of 272 token ids have no token")) !=
        std::string::npos);
  Process whole("baton-decode", Small({"--check"}));
  CHECK(whole.Wait() == 0);
  CHECK(whole.Output().find("have no token") == std::string::npos);
}

}  // namespace
}  // namespace baton
