// Tests that each unusable file is refused with its name, the position and the reason.
#include <string>

#include "catch.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

using nlohmann::json;

// Checks that the refusal names tokenizer.json and contains each of `words`.
void CheckRefused(const std::string& text, std::initializer_list<const char*> words) {
  const auto loaded = TryLoad(text);
  REQUIRE(!loaded.ok());
  const std::string message(loaded.status().message());
  CAPTURE(message);
  CHECK(absl::IsInvalidArgument(loaded.status()));
  CHECK(message.find("/tokenizer.json: ") != std::string::npos);
  for (const char* word : words) {
    CAPTURE(word);
    CHECK(message.find(word) != std::string::npos);
  }
}

// Checks the refusal of the tiny tokenizer with `value` at `place`.
void CheckRefusedWith(const char* place, const json& value, std::initializer_list<const char*> words) {
  CAPTURE(place, value.dump());
  json tokenizer = TinyTokenizer({{"a", "b"}});
  tokenizer[json::json_pointer(place)] = value;
  CheckRefused(tokenizer.dump(), words);
}

TEST_CASE("Tokenizer returns NOT_FOUND for a directory without tokenizer.json") {
  const TempDir directory;
  const auto loaded = Tokenizer::Load(directory.path());
  CHECK(absl::IsNotFound(loaded.status()));
  CHECK(std::string(loaded.status().message()).find("tokenizer.json") != std::string::npos);
}

TEST_CASE("Tokenizer refuses a file that is not JSON") {
  const std::string whole = TinyTokenizer().dump();
  CheckRefused("", {"not JSON"});
  CheckRefused("{", {"not JSON"});
  CheckRefused("[]", {"object"});
  CheckRefused("3", {"object"});
  CheckRefused("{}", {"model"});
  CheckRefused(whole + "x", {"not JSON"});
  CheckRefused("{\"a\": \"\xFF\"}", {"not JSON"});
  CheckRefused("{\"a\": 1e999}", {"not JSON"});
  CheckRefused(std::string(100'000, '['), {"nested deeper"});
  for (size_t size = 0; size < whole.size(); size += 7) CHECK(!TryLoad(whole.substr(0, size)).ok());
}

TEST_CASE("Tokenizer refuses a vocabulary without distinct tokens and ids") {
  CheckRefusedWith("/model/vocab", nullptr, {"model.vocab", "object"});
  CheckRefusedWith("/model/vocab", json::array(), {"model.vocab", "object"});
  CheckRefusedWith("/model/vocab/a", "1", {"model.vocab", "string"});
  CheckRefusedWith("/model/vocab/a", json::object(), {"model.vocab", "object"});
  CheckRefusedWith("/model/vocab/a", json::array(), {"model.vocab", "array"});
  CheckRefusedWith("/model/vocab/a", 1.5, {"model.vocab", "number"});
  CheckRefusedWith("/model/vocab/a", -1, {"model.vocab", "-1"});
  CheckRefusedWith("/model/vocab/a", 1 << 30, {"model.vocab", "1073741824"});
  CheckRefusedWith("/model/vocab/a", uint64_t{1} << 40, {"model.vocab", "too large"});
  CheckRefusedWith("/model/vocab/a", 'b', {"model.vocab", "id 98"});
  CheckRefusedWith("/model/vocab/", 400, {"model.vocab", "id 400", "byte-level"});
  CheckRefusedWith("/model/vocab/▁the", 400, {"model.vocab", "▁the", "byte-level"});
  const std::string whole = TinyTokenizer().dump();
  const std::string twice =
      whole.substr(0, whole.rfind("\"a\":97")) + "\"a\":300,\"a\":97" + whole.substr(whole.rfind("\"a\":97") + 6);
  CheckRefused(twice, {"model.vocab", "'a'", "twice"});
}

TEST_CASE("Tokenizer refuses merges that are not pairs of tokens") {
  CheckRefusedWith("/model/merges/0", "a", {"model.merges[0]", "'a'"});
  CheckRefusedWith("/model/merges/0", "a b c", {"model.merges[0]", "'a b c'"});
  CheckRefusedWith("/model/merges/0", " b", {"model.merges[0]"});
  CheckRefusedWith("/model/merges/0", json::array({"a"}), {"model.merges", "two tokens"});
  CheckRefusedWith("/model/merges/0", json::array({"a", "b", "c"}), {"model.merges", "two tokens"});
  CheckRefusedWith("/model/merges/0", json::array({"a", 1}), {"model.merges", "number"});
  CheckRefusedWith("/model/merges/0", json::array({"a", json::array()}), {"model.merges", "array"});
  CheckRefusedWith("/model/merges/0", 3, {"model.merges", "number"});
  CheckRefusedWith("/model/merges/0", "a c", {"model.merges", "[0]", "'ac'"});
  CheckRefusedWith("/model/merges/0", "a zz", {"model.merges", "[0]", "'zz'"});
}

TEST_CASE("Tokenizer refuses an unsupported model or model option by name") {
  CheckRefusedWith("/model", 1, {"model"});
  CheckRefusedWith("/model/type", "Unigram", {"model", "Unigram"});
  CheckRefusedWith("/model/type", nullptr, {"model", "type"});
  CheckRefusedWith("/model/dropout", 0.1, {"dropout"});
  CheckRefusedWith("/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"});
  CheckRefusedWith("/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"});
  CheckRefusedWith("/model/ignore_merges", "yes", {"ignore_merges"});
  json lacking = TinyTokenizer();
  lacking["model"]["vocab"].erase("a");
  lacking["model"]["byte_fallback"] = true;
  CheckRefused(lacking.dump(), {"byte_fallback"});
  lacking["model"]["byte_fallback"] = false;
  lacking["model"]["unk_token"] = "[UNK]";
  CheckRefused(lacking.dump(), {"unk_token", "[UNK]"});
  lacking["model"]["unk_token"] = "b";
  lacking["model"]["fuse_unk"] = true;
  CheckRefused(lacking.dump(), {"fuse_unk"});
}

TEST_CASE("Tokenizer refuses unsupported steps by name") {
  const json byte_level = TinyTokenizer()["pre_tokenizer"];
  CheckRefusedWith("/normalizer", {{"type", "Lowercase"}}, {"normalizer", "Lowercase"});
  CheckRefusedWith("/normalizer", 1, {"normalizer", "type"});
  CheckRefusedWith("/pre_tokenizer", nullptr, {"pre_tokenizer", "ByteLevel"});
  CheckRefusedWith("/pre_tokenizer", {{"type", "Metaspace"}}, {"pre_tokenizer", "Metaspace"});
  CheckRefusedWith("/pre_tokenizer/add_prefix_space", true, {"pre_tokenizer", "add_prefix_space"});
  CheckRefusedWith("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}},
                   {"pre_tokenizer", "pretokenizers[1]", "ByteLevel"});
  CheckRefusedWith("/pre_tokenizer",
                   {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}, {"invert", false}},
                   {"pre_tokenizer", "String"});
  CheckRefusedWith("/pre_tokenizer",
                   {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}, {"invert", false}},
                   {"pre_tokenizer", "Removed"});
  CheckRefusedWith("/decoder/type", "WordPiece", {"decoder", "WordPiece"});
  CheckRefusedWith("/post_processor", {{"type", "BertProcessing"}}, {"post_processor", "BertProcessing"});
}

TEST_CASE("Tokenizer refuses a template that needs more than a prefix") {
  const json text = {{"Sequence", {{"id", "A"}}}}, token = {{"SpecialToken", {{"id", "<s>"}}}};
  const auto processor = [](json single, json ids) -> json {
    return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", {{"<s>", {{"ids", ids}}}}}};
  };
  CheckRefusedWith("/post_processor", processor({text, token}, {1}), {"post_processor", "after the text"});
  CheckRefusedWith("/post_processor", processor({token, text, text}, {1}), {"post_processor", "repeats"});
  CheckRefusedWith("/post_processor", processor(json::array({token}), {1}), {"post_processor", "Sequence"});
  CheckRefusedWith("/post_processor", processor({token, text}, {100000}), {"post_processor", "100000"});
  CheckRefusedWith("/post_processor", processor({token, text}, {-1}), {"post_processor", "-1"});
  CheckRefusedWith("/post_processor", processor({token, text}, {"x"}), {"post_processor", "x"});
  CheckRefusedWith("/post_processor", processor(json::array({1, text}), {1}), {"post_processor", "single"});
}

TEST_CASE("Tokenizer refuses patterns whose meaning may differ here by name") {
  const json byte_level = TinyTokenizer()["pre_tokenizer"];
  for (const auto& [pattern, what] :
       std::initializer_list<std::pair<const char*, const char*>>{{"\\w+", "\\w"},      {"\\p{Lu}", "\\p{Lu}"},
                                                                  {"\\P{L}", "\\P{L}"}, {"\\h", "\\h"},
                                                                  {"^a", "^"},          {"a$", "$"},
                                                                  {"a.b", "."},         {"[a&&b]", "&&"},
                                                                  {"[[:alpha:]]", "["}, {"(*COMMIT)a", "(*"},
                                                                  {"(?m)a", "(?m"},     {"(?<x>a)", "(?<"},
                                                                  {"a{,3}", "{,"},      {"a{1,3}+", "}+"},
                                                                  {"a\\", "\\"},        {"\\p{L", "\\p{L"},
                                                                  {"(a", "parenthes"},  {"[a", "terminating ]"},
                                                                  {"a*", "nothing"},    {"*a", "quantifier"}}) {
    const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    CheckRefusedWith("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}},
                     {"pre_tokenizer", pattern, what});
  }
}

TEST_CASE("Tokenizer refuses unsupported added tokens by name") {
  const auto refused = [](const json& token, std::initializer_list<const char*> words) {
    CheckRefusedWith("/added_tokens", json::array({token}), words);
  };
  const auto with = [](const char* field, const json& value) {
    json token = AddedTokenJson(300, "<s>", true);
    token[field] = value;
    return token;
  };
  refused(with("lstrip", true), {"added_tokens[0]", "<s>", "lstrip"});
  refused(with("rstrip", true), {"added_tokens[0]", "<s>", "rstrip"});
  refused(with("single_word", true), {"added_tokens[0]", "<s>", "single_word"});
  refused(with("content", ""), {"added_tokens[0]", "content"});
  refused(with("content", std::string(2000, 'x')), {"added_tokens[0]", "content", "2000"});
  refused(with("content", 5), {"added_tokens[0]", "content", "string"});
  refused(with("content", "a"), {"added_tokens", "'a'", "300", "97"});
  refused(with("special", "yes"), {"added_tokens[0]", "special"});
  refused(with("id", -1), {"added_tokens[0]", "-1"});
  refused(with("id", 97), {"added_tokens", "97"});
  refused(with("id", int64_t{1} << 40), {"added_tokens[0]", "1099511627776"});
  refused(with("id", "x"), {"added_tokens[0]", "id"});
  refused(1, {"added_tokens[0]", "id"});
  const json token = AddedTokenJson(300, "<s>", true);
  CheckRefusedWith("/added_tokens", {token, token}, {"added_tokens[1]", "<s>", "twice"});
  CheckRefusedWith("/added_tokens", "x", {"added_tokens", "array"});
}

TEST_CASE("Tokenizer errors replace control characters of a file and have bounded size") {
  CheckRefusedWith("/normalizer", {{"type", "x\ny\x1b[2J"}}, {"x?y?[2J"});
  CheckRefusedWith("/normalizer", {{"type", std::string(100'000, 'x')}}, {"normalizer: xxx"});
  CHECK(TryLoad("{\"normalizer\": \"" + std::string(100'000, 'x')).status().message().size() < 10'000);
}

TEST_CASE("Tokenizer refuses a contradicting tokenizer_config.json by its name") {
  const auto refused = [](const std::string& config, const char* word) {
    const TempDir directory;
    directory.Write("tokenizer.json", TinyTokenizer().dump());
    directory.Write("tokenizer_config.json", config);
    const auto loaded = Tokenizer::Load(directory.path());
    REQUIRE(!loaded.ok());
    const std::string message(loaded.status().message());
    CAPTURE(message);
    CHECK(message.find("tokenizer_config.json: ") != std::string::npos);
    CHECK(message.find(word) != std::string::npos);
  };
  refused("{", "not JSON");
  refused(R"({"added_tokens_decoder": []})", "added_tokens_decoder");
  refused(R"({"added_tokens_decoder": {"x": {"content": "<s>"}}})", "'x'");
  refused(R"({"added_tokens_decoder": {"97": {"content": "<s>"}}})", "97");
  refused(R"({"added_tokens_decoder": {"300": {}}})", "content");
}

}  // namespace
}  // namespace baton
