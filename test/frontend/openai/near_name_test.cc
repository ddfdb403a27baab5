#include "frontend/openai/near_name.h"

#include <string>

#include "catch.h"

namespace baton {
namespace {

constexpr std::string_view kKnown[] = {"n", "model", "max_tokens", "top_p", "stop", "stop_token_ids", "max_tokens_x"};

std::string Near(std::string_view name) { return std::string(NearestName(name, kKnown)); }

TEST_CASE("NearestName finds misspelt names, and names in another style") {
  CHECK(Near("max_token") == "max_tokens");
  CHECK(Near("maxTokens") == "max_tokens");
  CHECK(Near("max-tokens") == "max_tokens");
  CHECK(Near("max_new_tokens") == "max_tokens");
  CHECK(Near("modle") == "");
  CHECK(Near("modell") == "model");
  CHECK(Near("topp") == "top_p");
  CHECK(Near("stops") == "stop");
}

TEST_CASE("NearestName finds nothing for names that are far from all") {
  CHECK(Near("") == "");
  CHECK(Near("x") == "");
  CHECK(Near("beam_width") == "");
  CHECK(Near("stop" + std::string(61, 'p')) == "");
  CHECK(NearestName("model", {}) == "");
}

}  // namespace
}  // namespace baton
