#include "model/unnamed_ids.h"

#include "catch.h"
#include "model/served_model.h"
#include "model/temp_model.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {
namespace {

// Writes a model with a vocabulary of 9 rows. Ids 3, 6, 7 and 8 have no token, and 7 ends outputs.
void WriteHoledModel(const TempDir& directory) {
  nlohmann::json config = SmallConfig();
  config["vocab_size"] = 9;
  config["eos_token_id"] = {5, 7};
  directory.Write("config.json", config.dump());
  directory.Write("tokenizer.json", R"({"added_tokens": [
      {"id": 4, "content": "<tool>", "special": false, "normalized": false, "single_word": false},
      {"id": 5, "content": "</s>", "special": true, "normalized": false, "single_word": false}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

TEST_CASE("UnnamedIds lists holes and padding, and no added token and no end id") {
  const TempDir directory;
  WriteHoledModel(directory);
  const auto model = LoadServedModel(directory.path());
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(model->unnamed == std::vector<TokenId>{3, 6, 8});
  CHECK(LoadServedModel(SourcePath("test/golden/tiny_llama3_bf16"))->unnamed.empty());
}

TEST_CASE("CheckNamed names the element, the id and the model when an id has no token") {
  const TempDir directory;
  WriteHoledModel(directory);
  ServedModel model = LoadServedModel(directory.path()).value();
  model.name = "tiny";
  CHECK(CheckNamed("prompt", {}, model).ok());
  CHECK(CheckNamed("prompt", std::vector<TokenId>{0, 1, 2, 4, 5, 7}, model).ok());
  CHECK(CheckNamed("prompt", std::vector<TokenId>{2, 6, 8}, model) ==
        absl::InvalidArgumentError("prompt[1]: expected an id that has a token in tokenizer.json of 'tiny', got 6"));
}

}  // namespace
}  // namespace baton
