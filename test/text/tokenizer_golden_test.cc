// Tests against ids of other implementations: Hugging Face's tokenizers and llama.cpp.
// `tools/make_tokenizer_goldens` writes those of Hugging Face to test/golden. Those of llama.cpp
// are shared data, where present.
#include <fstream>
#include <iostream>
#include <sstream>

#include "catch.h"
#include "source_path.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"
#include "tokenizer_gguf.h"

namespace baton {
namespace {

using nlohmann::json;
using SpecialTokens = Tokenizer::SpecialTokens;

const std::string kShared = SourcePath("../shared/data/tokenizers/");

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Present(const std::string& path) {
  if (std::filesystem::exists(path)) return true;
  std::cout << "skipped: " << path << " is not here\n";
  return false;
}

TEST_CASE("Tokenizer gives Hugging Face's ids for a tiny tokenizer of each family") {
  for (const std::string family : {"gpt2", "smollm", "llama3", "qwen2"}) {
    const json golden = json::parse(ReadFile(SourcePath("test/golden/tokenizer_" + std::string(family) + ".json")));
    const auto tokenizer = LoadTokenizer(golden["tokenizer"]);
    for (const json& sample : golden["cases"]) {
      const auto text = sample["text"].get<std::string>();
      CAPTURE(family, text);
      CHECK(tokenizer->Encode(text, SpecialTokens::kParse) == sample["ids"].get<std::vector<TokenId>>());
      CHECK(tokenizer->Encode(text, SpecialTokens::kAsText) == sample["ids_as_text"].get<std::vector<TokenId>>());
    }
  }
}

std::vector<std::string> SplitBy(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + separator.size();
  }
}

// Checks the goldens of llama.cpp, which have one line of ids for each input.
void CheckGoldens(const Tokenizer& tokenizer, const std::string& name) {
  const std::string stem = kShared + "goldens/ggml-vocab-" + name + ".gguf";
  const std::vector<std::string> inputs = SplitBy(ReadFile(stem + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> outputs = SplitBy(ReadFile(stem + ".out"), "\n");
  REQUIRE(inputs.size() == 47);
  REQUIRE(outputs.size() >= inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::istringstream line(outputs[i]);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(line), {}};
    CAPTURE(name, inputs[i]);
    CHECK(Encode(tokenizer, inputs[i]) == expected);
  }
}

TEST_CASE("Tokenizer gives llama.cpp's ids and the prompt prefixes of Llama 3 and Qwen") {
  struct Model {
    const char *folder, *golden;
    std::vector<TokenId> prefix;
  };
  for (const Model& model :
       {Model{"llama3_1", "llama-bpe", {128000}}, Model{"qwen2_5", "qwen2", {}}, Model{"qwen3", "qwen2", {}}}) {
    if (!Present(kShared + model.folder)) continue;
    const auto tokenizer = Tokenizer::Load(kShared + model.folder);
    REQUIRE(tokenizer.ok());
    CheckGoldens(**tokenizer, model.golden);
    const auto prefix = (*tokenizer)->prompt_prefix();
    CHECK(std::vector<TokenId>(prefix.begin(), prefix.end()) == model.prefix);
  }
}

// Builds tokenizer.json from a GGUF vocabulary, as tools/gguf_tokenizer.py does.
json FromGguf(const std::string& path, bool splits_digits) {
  const GgufVocabulary vocabulary = GgufReader(path).Read();
  json tokenizer = TinyTokenizer();
  tokenizer["model"]["vocab"] = json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    tokenizer["model"]["vocab"][vocabulary.tokens[id]] = id;
    if (vocabulary.types[id] == 3 || vocabulary.types[id] == 4) {
      tokenizer["added_tokens"].push_back(
          AddedTokenJson(static_cast<int>(id), vocabulary.tokens[id], vocabulary.types[id] == 3));
    }
  }
  tokenizer["model"]["merges"] = vocabulary.merges;
  if (splits_digits) {
    const json digits = {{"type", "Digits"}, {"individual_digits", true}};
    tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {digits, tokenizer["pre_tokenizer"]}}};
  }
  return tokenizer;
}

TEST_CASE("Tokenizer gives llama.cpp's ids for GPT-2, StarCoder and Refact") {
  const std::pair<const char*, bool> models[] = {{"gpt-2", false}, {"starcoder", true}, {"refact", true}};
  for (const auto& [name, splits_digits] : models) {
    const std::string path = kShared + "goldens/ggml-vocab-" + name + ".gguf";
    if (!Present(path)) continue;
    CheckGoldens(*LoadTokenizer(FromGguf(path, splits_digits)), name);
  }
}

}  // namespace
}  // namespace baton
