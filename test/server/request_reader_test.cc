#include "server/request_reader.h"

#include <cmath>
#include <limits>

#include "base/strings.h"
#include "byte_model.h"
#include "catch.h"

namespace baton {
namespace {

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.mutable_segments()->add_segments()->set_text(text);
  return request;
}

// The error of reading it; fails the test if there is none.
std::string ErrorOf(const v1::GenerateRequest& request, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto result = ReadRequest(request, OneByteModel(), absl::UnixEpoch());
  CHECK(result.status().code() == code);
  return std::string(Message(result.status()));
}

bool Has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

TEST_CASE("segments are tokenised on their own and joined, after the tokenizer's prefix if text comes first") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("a", {200, 201}));
  list.push_back(ByteModel("b"));
  const ServedModels models(std::move(list));
  v1::GenerateRequest request = Text("hi");
  request.set_model("a");
  request.mutable_segments()->add_segments()->mutable_token_ids()->add_ids(7);
  request.mutable_segments()->add_segments()->set_text("!");
  auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->tokens == std::vector<TokenId>{200, 201, 'h', 'i', 7, '!'});

  request.mutable_segments()->mutable_segments()->DeleteSubrange(0, 1);
  read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->tokens == std::vector<TokenId>{7, '!'});
}

TEST_CASE("unset sampling fields have the documented defaults") {
  const auto read = ReadRequest(Text("hello"), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->sampling.max_tokens == 59);  // what the context has left is less than 512
  CHECK(read->sampling.temperature == 1);
  CHECK_FALSE(read->sampling.seed.has_value());
  CHECK(read->priority == 0);
  CHECK_FALSE(read->prefill_only);
}

TEST_CASE("what the client leaves unset is the model's default, and what it sets is not") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  SamplingParams& defaults = list[0].sampling;
  defaults.temperature = 0.5f;
  defaults.top_k = 20;
  defaults.top_p = 0.25f;
  defaults.min_p = 0.125f;
  defaults.repetition_penalty = 1.5f;
  const ServedModels models(std::move(list));
  v1::GenerateRequest request = Text("hello");
  auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->sampling.temperature == 0.5f);
  CHECK(read->sampling.top_k == 20);
  CHECK(read->sampling.top_p == 0.25f);
  CHECK(read->sampling.min_p == 0.125f);
  CHECK(read->sampling.repetition_penalty == 1.5f);

  v1::Sampling& given = *request.mutable_sampling();
  given.set_temperature(0);
  given.set_top_k(0);
  given.set_top_p(1);
  given.set_min_p(0);
  given.set_repetition_penalty(1);
  read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->sampling.temperature == 0);
  CHECK(read->sampling.top_k == 0);
  CHECK(read->sampling.top_p == 1);
  CHECK(read->sampling.min_p == 0);
  CHECK(read->sampling.repetition_penalty == 1);
}

TEST_CASE("a bad field is refused by name, value and limit") {
  v1::GenerateRequest request = Text("hello");
  SECTION("unknown model") {
    request.set_model("gpt");
    Has(ErrorOf(request), "model: unknown: 'gpt'; served here: 'bytes'");
  }
  SECTION("no prompt") { Has(ErrorOf({}), "prompt: expected segments or chat"); }
  SECTION("empty prompt") { Has(ErrorOf(Text("")), "prompt: is empty"); }
  SECTION("a segment of nothing") {
    request.mutable_segments()->add_segments();
    Has(ErrorOf(request), "segments[1]: expected text, token_ids or output_of");
  }
  SECTION("too many segments") {
    for (int i = 0; i < 4096; ++i) request.mutable_segments()->add_segments()->set_text("");
    Has(ErrorOf(request), "segments: 4097 segments, limit 4096");
  }
  SECTION("token id beyond the vocabulary, or negative") {
    const int32_t id = GENERATE(256, -1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->add_ids(id);
    Has(ErrorOf(request), absl::StrCat("segments[0].token_ids.ids[0]: expected [0, 256)"));
  }
  SECTION("prompt longer than the context") {
    request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids()->Resize(64, 7);
    Has(ErrorOf(request), "prompt: 64 tokens, limit 63 (context 64 of 'bytes', less one token to generate)");
  }
  SECTION("prompt and max_tokens longer than the context") {
    request.mutable_sampling()->set_max_tokens(60);
    Has(ErrorOf(request), "sampling.max_tokens: 60 after a prompt of 5 tokens, limit 59");
  }
  SECTION("max_tokens that would overflow") {
    request.mutable_sampling()->set_max_tokens(std::numeric_limits<int32_t>::max());
    Has(ErrorOf(request), "sampling.max_tokens: 2147483647");
  }
  SECTION("max_tokens of nothing") {
    request.mutable_sampling()->set_max_tokens(0);
    Has(ErrorOf(request), "max_tokens");
  }
  SECTION("sampling that is no number, negative or infinite") {
    const float bad = GENERATE(-1.0f, NAN, INFINITY, -INFINITY);
    SECTION("temperature") {
      request.mutable_sampling()->set_temperature(bad);
      Has(ErrorOf(request), "temperature");
    }
    SECTION("top_p") {
      request.mutable_sampling()->set_top_p(bad);
      Has(ErrorOf(request), "top_p");
    }
    SECTION("min_p") {
      request.mutable_sampling()->set_min_p(bad);
      Has(ErrorOf(request), "min_p");
    }
    SECTION("repetition_penalty") {
      request.mutable_sampling()->set_repetition_penalty(bad);
      Has(ErrorOf(request), "repetition_penalty");
    }
  }
  SECTION("a million stop strings") {
    for (int i = 0; i < 1'000'000; ++i) request.mutable_sampling()->add_stop()->push_back('x');
    Has(ErrorOf(request), "sampling.stop is 1000000 strings");
  }
  SECTION("names that are too long") {
    SECTION("session") {
      request.set_session_id(std::string(257, 's'));
      Has(ErrorOf(request), "session_id: 257 bytes, limit 256");
    }
    SECTION("salt") {
      request.set_cache_salt(std::string(257, 's'));
      Has(ErrorOf(request), "cache_salt: 257 bytes, limit 256");
    }
    SECTION("request id") {
      request.set_request_id(std::string(129, 's'));
      Has(ErrorOf(request), "request_id: 129 bytes, limit 128");
    }
  }
  SECTION("a request id with a newline") {
    request.set_request_id("a\nb");
    Has(ErrorOf(request), "request_id: expected letters");
  }
  SECTION("priority") {
    request.set_priority(std::numeric_limits<int32_t>::min());
    Has(ErrorOf(request), "priority: expected [-1000, 1000], got -2147483648");
  }
}

TEST_CASE("text that cannot fit is refused before it is tokenised") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template = *ChatTemplate::Parse("{{ messages[0].content }}", "", "");
  const auto& tokenizer = static_cast<const ByteTokenizer&>(*list[0].tokenizer);
  const ServedModels models(std::move(list));
  v1::GenerateRequest request;
  size_t encoded = 0;
  SECTION("by itself") { request = Text(std::string(1 << 20, 'a')); }
  SECTION("after what came before") {
    request = Text("hello");
    request.mutable_segments()->add_segments()->set_text(std::string(59, 'a'));
    encoded = 5;
  }
  SECTION("as a chat") {
    request.mutable_chat()->add_messages()->set_role("user");
    request.mutable_chat()->mutable_messages(0)->set_content(std::string(1 << 20, 'a'));
  }
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(absl::IsInvalidArgument(read.status()));
  Has(std::string(Message(read.status())), "prompt: at least ");
  Has(std::string(Message(read.status())), " tokens, limit 63 (context 64 of 'bytes', less one token to generate)");
  CHECK(tokenizer.bytes_encoded_ == encoded);
}

TEST_CASE("what is declared and not there yet is UNIMPLEMENTED") {
  v1::GenerateRequest request;
  SECTION("output_of") {
    request.mutable_segments()->add_segments()->set_output_of("other");
    Has(ErrorOf(request, absl::StatusCode::kUnimplemented), "segments[0].output_of");
  }
  SECTION("chat with a model that has no template") {
    request.mutable_chat()->add_messages()->set_role("user");
    Has(ErrorOf(request, absl::StatusCode::kUnimplemented), "chat: model 'bytes' has no chat template");
  }
}

TEST_CASE("a chat is rendered with its roles and contents") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template = *ChatTemplate::Parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}!{% endif %}", "",
      "");
  const ServedModels models(std::move(list));
  v1::GenerateRequest request;
  v1::ChatMessage& first = *request.mutable_chat()->add_messages();
  const auto error = [&] {
    const auto read = ReadRequest(request, models, absl::UnixEpoch());
    CHECK(absl::IsInvalidArgument(read.status()));
    return std::string(Message(read.status()));
  };
  CHECK(error() == "chat.messages[0].role: must not be empty");
  first.set_role(std::string(65, 'r'));
  CHECK(error() == "chat.messages[0].role: 65 bytes, limit 64");
  first.set_role("user");
  first.set_content("hi");
  v1::ChatMessage& second = *request.mutable_chat()->add_messages();
  second.set_role("bot");
  second.set_content("yes");
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(std::string(read->tokens.begin(), read->tokens.end()) == "<user>hi<bot>yes!");
  while (request.chat().messages_size() <= 4096) *request.mutable_chat()->add_messages() = request.chat().messages(0);
  CHECK(error() == "chat.messages: expected 1 to 4096, got 4097");
  request.mutable_chat()->clear_messages();
  CHECK(error() == "chat.messages: expected 1 to 4096, got 0");
}

TEST_CASE("where several models are served, a request must name one") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("a"));
  list.push_back(ByteModel("b"));
  const auto read = ReadRequest(Text("hi"), ServedModels(std::move(list)), absl::UnixEpoch());
  CHECK(absl::IsInvalidArgument(read.status()));
  CHECK(Message(read.status()) == "model: must be named where several are served; served here: 'a', 'b'");
}

TEST_CASE("prefill-only may fill the whole context") {
  v1::PrefillOnlyRequest request;
  request.mutable_segments()->add_segments()->set_text(std::string(64, 'a'));
  const auto read = ReadRequest(request, OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->prefill_only);
  request.mutable_segments()->add_segments()->set_text("b");
  CHECK(absl::IsInvalidArgument(ReadRequest(request, OneByteModel(), absl::UnixEpoch()).status()));
}

}  // namespace
}  // namespace baton
