// The text of outputs that begin inside a character.
#include <random>

#include "outputs.h"

namespace baton {
namespace {

TEST_CASE("DecodeEngine begins the text with the character that the prompt begins") {
  std::mt19937 rng(1);
  std::vector<TokenId> prompt;
  // Tokens 26 and 27 are the bytes of "é".
  do {
    prompt = RandomPrompt(rng, 5);
    prompt.push_back(26);
  } while (FakeBackend::NextToken(prompt) != 27);
  const Output output = RunAlone(TestJob("r", prompt, 3));
  CHECK(output.text.starts_with("é"));
  CHECK(output.text == TextOf(output.tokens, prompt));
}

}  // namespace
}  // namespace baton
