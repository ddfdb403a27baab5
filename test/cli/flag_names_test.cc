#include "cli/flag_names.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("An error names the flag of the field that the router refuses") {
  GenerateOptions ids, prompt, chat;
  ids.ids = "1,999";
  prompt.prompt = "";
  chat.chat = "a";
  struct Case {
    const GenerateOptions& options;
    const char *error, *shown;
  };
  const Case cases[] = {
      {ids, "segments.segments[0].token_ids.ids[1]: expected [0, 99)", "--ids[1]: expected [0, 99)"},
      {ids, "segments.segments: 9 tokens, limit 7", "--ids: 9 tokens, limit 7"},
      {prompt, "segments.segments: is empty", "--prompt: is empty"},
      {prompt, "segments.segments[0].text: is not valid UTF-8", "--prompt: is not valid UTF-8"},
      {chat, "chat.messages: 9 tokens, limit 7", "--chat: 9 tokens, limit 7"},
      {chat, "chat.messages[0].content: is not valid UTF-8", "--chat: is not valid UTF-8"},
      {chat, "sampling.stop_ids[0]: expected an id", "--stop-ids[0]: expected an id"},
      {chat, "sampling.stop[1]: expected 1 to 1024 bytes", "--stop[1]: expected 1 to 1024 bytes"},
      {chat, "sampling.max_tokens: expected >= 0, got -1", "--max-tokens: expected >= 0, got -1"},
      {chat, "sampling.top_p: expected a number", "--top-p: expected a number"},
      {chat, "session_id: 300 bytes, limit 256", "--session: 300 bytes, limit 256"},
      {chat, "context_id: no context 'c'", "--context: no context 'c'"},
      {chat, "workflow: 300 bytes, limit 128", "--workflow: 300 bytes, limit 128"},
      {chat, "agent: 300 bytes, limit 128", "--agent: 300 bytes, limit 128"},
      {chat, "model: unknown: 'x'", "--model: unknown: 'x'"},
      {chat, "model 'x' has no chat template", "model 'x' has no chat template"},
      {chat, "sampling.logprobs: expected", "sampling.logprobs: expected"},
      {chat, "no prefill worker is attached", "no prefill worker is attached"},
  };
  for (const auto& [options, error, shown] : cases) {
    CHECK(NameFlag(absl::InvalidArgumentError(error), GenerateFlagNames(options)) == absl::InvalidArgumentError(shown));
  }
  CHECK(NameFlag(absl::NotFoundError("context_id: no"), GenerateFlagNames(chat)) ==
        absl::NotFoundError("--context: no"));
  CHECK(NameFlag(absl::OkStatus(), GenerateFlagNames(chat)).ok());
}

TEST_CASE("An error of a chat keeps the name of the messages, which no flag sets") {
  const absl::Status error = absl::InvalidArgumentError("chat.messages: 9 tokens, limit 7");
  CHECK(NameFlag(error, ChatFlagNames()) == error);
}

}  // namespace
}  // namespace baton
