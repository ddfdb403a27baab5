// A model whose vocabulary has rows without a token, in real processes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::json;

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
  const char body[] =
      R"({"prompt": [5, 6, 7], "temperature": 3, "seed": 1, "max_tokens": 40, "ignore_eos": true, "logprobs": 5})";
  const json answer = Post(http, "/v1/completions", body, 200);
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
  CHECK(
      Call(*stub, request).Finish() ==
      absl::InvalidArgumentError("segments[0].token_ids.ids[40]: expected an id that has a token in tokenizer.json of "
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
