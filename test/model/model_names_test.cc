#include "model/model_names.h"

#include <string>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"

namespace baton {
namespace {

using Texts = std::vector<std::string>;

std::string ErrorOf(const Texts& models, const Texts& served, const Texts& aliases = {}) {
  const absl::Status status = ModelNames::Make(models, served, aliases).status();
  CHECK((status.ok() || absl::IsInvalidArgument(status)));
  return std::string(Message(status));
}

ServedModels Serve(const Texts& own_names, const Texts& served, const Texts& aliases) {
  std::vector<ServedModel> models;
  for (const std::string& name : own_names) models.push_back(ByteModel(name));
  return ServedModels(std::move(models), ModelNames::Make(own_names, served, aliases).value());
}

std::string Found(const ServedModels& models, const std::string& name) {
  const auto model = models.Find(name);
  CHECK(models.Contains(name) == (model.ok() || name.empty()));
  return model.ok() ? (*model)->name : "";
}

TEST_CASE("ServedModels lists served names and aliases, and finds a model by its own name") {
  const ServedModels models =
      Serve({"big", "small"}, {"big=org/big:1", "big=best", "small=fast"}, {"gpt-4=big", "gpt-*=big"});
  CHECK(Found(models, "org/big:1") == "big");
  CHECK(Found(models, "best") == "big");
  CHECK(Found(models, "big") == "big");
  CHECK(Found(models, "fast") == "small");
  CHECK(Found(models, "gpt-4") == "big");
  CHECK(models.all()[0]->listed_names == Texts{"org/big:1", "best", "gpt-4"});
  CHECK(models.all()[1]->listed_names == Texts{"fast"});
  CHECK(models.all()[0]->shown_name() == "org/big:1");
  CHECK(Message(models.Find("x").status()) == "model: expected one of 'org/big:1', 'best', 'gpt-4', 'fast', got 'x'");
  CHECK(Found(Serve({"big"}, {"best"}, {}), "best") == "big");
  CHECK(Serve({"big"}, {}, {"b=big", "a=b", "b=a"}).all()[0]->listed_names == Texts{"big", "b", "a"});
  // A model's own name is listed beside served names if it is asked for.
  CHECK(Serve({"big"}, {"best"}, {"big=best", "big=big"}).all()[0]->listed_names == Texts{"best", "big"});
  CHECK(Serve({"big"}, {"best", "big"}, {}).all()[0]->listed_names == Texts{"best", "big"});
}

TEST_CASE("ServedModels prefers an exact name and then the narrowest pattern") {
  const ServedModels models =
      Serve({"big", "small", "gpt-x"}, {}, {"*=big", "gpt-*=big", "gpt-*-mini=small", "gpt-5-mini=big", "*-nano=big"});
  CHECK(Found(models, "claude") == "big");
  CHECK(Found(models, "gpt-4o-mini") == "small");
  CHECK(Found(models, "gpt-5-mini") == "big");
  CHECK(Found(models, "gpt-x") == "gpt-x");
  CHECK(Found(models, "GPT-4o-mini") == "big");
  CHECK(Found(models, "") == "");
  CHECK(Found(models, std::string(256, 'n')) == "big");
  CHECK(Found(models, std::string(257, 'n')) == "");
}

TEST_CASE("ModelNames refuses a name that two models would have") {
  const Texts models = {"a", "b"};
  CHECK(ErrorOf(models, {"a=x", "b=x"}) == "served-model-name: 'x' cannot name 'b', because it names 'a'");
  CHECK(ErrorOf(models, {"a=b"}) == "served-model-name: 'b' cannot name 'a', because it names 'b'");
  CHECK(ErrorOf(models, {}, {"b=a"}) == "model-alias: 'b' cannot name 'a', because it names 'b'");
  CHECK(ErrorOf(models, {"a=x"}, {"x=b"}) == "model-alias: 'x' cannot name 'b', because it names 'a'");
  CHECK(ErrorOf(models, {}, {"x=a", "x=b"}) == "model-alias: 'x' cannot name 'b', because it names 'a'");
  // The same model may be named twice.
  CHECK(ErrorOf(models, {"a=x", "a=x", "a=a"}, {"x=a", "a=x", "y=x"}) == "");
}

TEST_CASE("ModelNames refuses patterns that match one name without a narrower one") {
  const Texts models = {"a", "b"};
  CHECK(ErrorOf(models, {}, {"gpt-*=a", "*-mini=b"}) ==
        "model-alias: '*-mini' of 'b' and 'gpt-*' of 'a' match the same names, and neither is narrower than the other");
  CHECK(ErrorOf(models, {}, {"x*=a", "x**=b"}).starts_with("model-alias: 'x*' of 'b' and 'x*' of 'a' match"));
  CHECK(ErrorOf(models, {}, {"gpt-*=a", "*-mini=a"}) == "");
  CHECK(ErrorOf(models, {}, {"gpt-*=a", "claude-*=b", "*=b", "gpt-*-mini=b"}) == "");
}

TEST_CASE("ModelNames refuses malformed elements and unknown models") {
  const Texts two = {"a", "b"};
  CHECK(ErrorOf(two, {"x"}) == "served-model-name: 'x' names no model: expected MODEL=NAME with one of 'a', 'b'");
  CHECK(ErrorOf(two, {"c=x"}) == "served-model-name: 'c' is not a model: expected one of 'a', 'b'");
  CHECK(ErrorOf(two, {"a="}) == "served-model-name: expected a name, got an empty text");
  CHECK(ErrorOf({"a"}, {""}) == "served-model-name: expected a name, got an empty text");
  CHECK(ErrorOf(two, {"a=x*"}) == "served-model-name: 'x*' has a '*', which only --model-alias may have");
  CHECK(ErrorOf(two, {"a=x\ny"}) == R"(served-model-name: 'x\ny' has a control character)");
  CHECK(ErrorOf(two, {"a=\xff"}) == R"(served-model-name: '\xff' is not UTF-8)");
  CHECK(ErrorOf(two, {"a=" + std::string(257, 'n')}) ==
        StrCat("served-model-name: '", std::string(32, 'n'), "' begins a name of 257 bytes, limit 256"));
  CHECK(ErrorOf(two, {}, {"x"}) == "model-alias: 'x' names no model: expected PATTERN=MODEL");
  CHECK(ErrorOf(two, {}, {"=a"}) == "model-alias: expected a name, got an empty text");
  CHECK(ErrorOf(two, {}, {"x*=c"}) == "model-alias: 'c' is not a model, in the alias of 'x*'");
  CHECK(ErrorOf(two, {}, {"x="}) == "model-alias: '' is not a model, in the alias of 'x'");
  CHECK(ErrorOf(two, {}, {"x\x7f*=a"}) == R"(model-alias: 'x\x7f*' has a control character)");
}

TEST_CASE("ModelNames takes many aliases, and refuses more than 1,024 patterns") {
  Texts names, patterns;
  for (int i = 0; i < 10'000; ++i) {
    names.push_back(StrCat("name-", i, "=", i % 2 == 0 ? "a" : "b"));
    patterns.push_back(StrCat("name-", i, "-*=", i % 2 == 0 ? "a" : "b"));
  }
  const ServedModels models = Serve({"a", "b"}, {}, names);
  CHECK(Found(models, "name-9998") == "a");
  CHECK(Found(models, "name-9999") == "b");
  const std::string error(Message(models.Find("x").status()));
  CHECK(error.starts_with("model: expected one of 'a', 'name-0', 'name-2', "));
  CHECK(error.ends_with("'name-28' or 9986 more names, got 'x'"));
  CHECK(ErrorOf({"a", "b"}, {}, patterns) == "model-alias: expected at most 1024 patterns with '*'");
}

TEST_CASE("ServedModels does not serve a decoder whose name belongs to another model") {
  ServedModels models = Serve({"a"}, {"best"}, {"fast=a", "c*=a"});
  CHECK(Message(models.Join("best", "a")) ==
        "the decoder 'best' is not served, because its name is a served name or an alias of 'a'");
  CHECK(absl::IsAlreadyExists(models.Join("fast", "a")));
  CHECK(models.all().size() == 1);
  // A pattern yields to the decoder's name.
  CHECK(Found(models, "coder") == "a");
  CHECK(models.Join("coder", "a").ok());
  CHECK(models.Join("coder", "a").ok());
  CHECK(Found(models, "coder") == "coder");
  CHECK(models.all()[1]->listed_names == Texts{"coder"});
}

}  // namespace
}  // namespace baton
