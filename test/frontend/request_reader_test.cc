#include "frontend/request_reader.h"

#include <cmath>
#include <limits>

#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"

namespace baton {
namespace {

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.mutable_segments()->add_segments()->set_text(text);
  return request;
}

// The error of reading the request. The test fails if there is none.
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

std::vector<ServedModel> ModelsWithTemplate(const char* chat_template) {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template = *ChatTemplate::Parse(chat_template, "", "");
  return list;
}

TEST_CASE("ReadRequest tokenises segments separately after the tokenizer's prefix") {
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
  CHECK(read->spec.tokens == std::vector<TokenId>{200, 201, 'h', 'i', 7, '!'});

  request.mutable_segments()->mutable_segments()->DeleteSubrange(0, 1);
  read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->spec.tokens == std::vector<TokenId>{7, '!'});
}

TEST_CASE("Unset sampling fields have the documented defaults") {
  const auto read = ReadRequest(Text("hello"), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->spec.sampling.max_tokens == 59);  // the rest of the context
  CHECK(read->spec.sampling.draw.temperature == 1);
  CHECK_FALSE(read->spec.sampling.seed.has_value());
  CHECK(read->spec.priority == 0);
  CHECK_FALSE(read->prefill_only);
}

TEST_CASE("Unset sampling fields have the model's defaults") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  SamplingParams& defaults = list[0].sampling;
  defaults.draw.temperature = 0.5f;
  defaults.draw.top_k = 20;
  defaults.draw.top_p = 0.25f;
  defaults.draw.min_p = 0.125f;
  defaults.draw.repetition_penalty = 1.5f;
  const ServedModels models(std::move(list));
  v1::GenerateRequest request = Text("hello");
  auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->spec.sampling.draw.temperature == 0.5f);
  CHECK(read->spec.sampling.draw.top_k == 20);
  CHECK(read->spec.sampling.draw.top_p == 0.25f);
  CHECK(read->spec.sampling.draw.min_p == 0.125f);
  CHECK(read->spec.sampling.draw.repetition_penalty == 1.5f);

  v1::Sampling& given = *request.mutable_sampling();
  given.set_temperature(0);
  given.set_top_k(0);
  given.set_top_p(1);
  given.set_min_p(0);
  given.set_repetition_penalty(1);
  read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->spec.sampling.draw.temperature == 0);
  CHECK(read->spec.sampling.draw.top_k == 0);
  CHECK(read->spec.sampling.draw.top_p == 1);
  CHECK(read->spec.sampling.draw.min_p == 0);
  CHECK(read->spec.sampling.draw.repetition_penalty == 1);
}

TEST_CASE("ReadRequest refuses a bad field with name, value and limit") {
  v1::GenerateRequest request = Text("hello");
  SECTION("an unknown model") {
    request.set_model("gpt");
    Has(ErrorOf(request), "model: expected one of 'bytes', got 'gpt'");
  }
  SECTION("a context_length without a context_id") {
    request.set_context_length(3);
    Has(ErrorOf(request), "context_length: requires a context_id");
  }
  SECTION("a negative context_length") {
    request.set_context_id("c");
    request.set_context_length(-1);
    Has(ErrorOf(request), "context_length: expected >= 0, got -1");
  }
  SECTION("a context_id with a space") {
    request.set_context_id("a b");
    Has(ErrorOf(request), "context_id: expected letters, digits");
  }
  SECTION("a request without a prompt") { Has(ErrorOf({}), "prompt: expected segments or chat"); }
  SECTION("an empty prompt") { Has(ErrorOf(Text("")), "segments.segments: is empty"); }
  SECTION("an empty segment") {
    request.mutable_segments()->add_segments();
    Has(ErrorOf(request), "segments.segments[1]: expected text, token_ids, output_of or group");
  }
  SECTION("too many segments") {
    for (int i = 0; i < 4096; ++i) request.mutable_segments()->add_segments()->set_text("");
    Has(ErrorOf(request), "segments.segments: 4097 segments, limit 4096");
  }
  SECTION("a token id that is negative or beyond the vocabulary") {
    const int32_t id = GENERATE(256, -1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->add_ids(id);
    Has(ErrorOf(request), absl::StrCat("segments.segments[0].token_ids.ids[0]: expected [0, 256)"));
  }
  SECTION("a token id or a stop id without a token") {
    std::vector<ServedModel> models;
    models.push_back(ByteModel("bytes"));
    models[0].unnamed = {98, 250, 255};
    const ServedModels served(std::move(models));
    const std::string expected = "expected an id that has a token in tokenizer.json of 'bytes', got 250";
    const auto error = [&] { return std::string(ReadRequest(request, served, absl::UnixEpoch()).status().message()); };
    request.mutable_sampling()->add_stop_ids(254);
    request.mutable_sampling()->add_stop_ids(250);
    CHECK(error() == "sampling.stop_ids[1]: " + expected);
    auto& ids = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids();
    for (const int32_t id : {97, 99, 250}) ids.add_ids(id);
    CHECK(error() == "segments.segments[0].token_ids.ids[2]: " + expected);
  }
  SECTION("a prompt longer than the context length") {
    request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids()->Resize(64, 7);
    Has(ErrorOf(request),
        "segments.segments: 64 tokens, limit 63 (context length 64 of 'bytes', less one token to generate)");
  }
  SECTION("a prompt and max_tokens longer than the context length") {
    request.mutable_sampling()->set_max_tokens(60);
    Has(ErrorOf(request), "sampling.max_tokens: 60 after a prompt of 5 tokens, limit 59");
  }
  SECTION("max_tokens that would overflow a sum") {
    request.mutable_sampling()->set_max_tokens(std::numeric_limits<int32_t>::max());
    Has(ErrorOf(request), "sampling.max_tokens: 2147483647");
  }
  SECTION("a negative max_tokens") {
    request.mutable_sampling()->set_max_tokens(-1);
    Has(ErrorOf(request), "sampling.max_tokens: expected >= 0, got -1");
  }
  SECTION("sampling values that are NaN, negative or infinite") {
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
    Has(ErrorOf(request), "sampling.stop: expected at most 64 strings, got 1000000");
  }
  SECTION("a session_id with control characters") {
    request.set_session_id("x\nbilling");
    Has(ErrorOf(request), "session_id: expected no control characters");
  }
  SECTION("names that are too long") {
    SECTION("session_id") {
      request.set_session_id(std::string(257, 's'));
      Has(ErrorOf(request), "session_id: 257 bytes, limit 256");
    }
    SECTION("cache_salt") {
      request.set_cache_salt(std::string(257, 's'));
      Has(ErrorOf(request), "cache_salt: 257 bytes, limit 256");
    }
    SECTION("request_id") {
      request.set_request_id(std::string(129, 's'));
      Has(ErrorOf(request), "request_id: 129 bytes, limit 128");
    }
    SECTION("workflow") {
      request.set_workflow(std::string(129, 's'));
      Has(ErrorOf(request), "workflow: 129 bytes, limit 128");
    }
    SECTION("agent") {
      request.set_agent(std::string(129, 's'));
      Has(ErrorOf(request), "agent: 129 bytes, limit 128");
    }
  }
  SECTION("a request_id with a newline") {
    request.set_request_id("a\nb");
    Has(ErrorOf(request), "request_id: expected letters");
  }
  SECTION("a priority below the limit") {
    request.set_priority(std::numeric_limits<int32_t>::min());
    Has(ErrorOf(request), "priority: expected [-1000, 1000], got -2147483648");
  }
  SECTION("a timeout below or above the limit") {
    const int64_t timeout = GENERATE(values<int64_t>({-1, std::numeric_limits<int64_t>::min(), 31'536'000'001}));
    request.set_timeout_ms(timeout);
    Has(ErrorOf(request), absl::StrCat("timeout_ms: expected [0, 31536000000], got ", timeout));
    CHECK(TimeoutOf(request) == absl::InfiniteDuration());
  }
  SECTION("limits without a workflow") {
    request.mutable_workflow_limits();
    Has(ErrorOf(request), "workflow_limits: requires a workflow");
  }
  SECTION("limits of a workflow out of range") {
    request.set_workflow("w");
    const int64_t deadline = GENERATE(values<int64_t>({-1, 31'536'000'001, std::numeric_limits<int64_t>::max()}));
    request.mutable_workflow_limits()->set_deadline_ms(deadline);
    Has(ErrorOf(request), absl::StrCat("workflow_limits.deadline_ms: expected [0, 31536000000], got ", deadline));
    request.mutable_workflow_limits()->set_deadline_ms(0);
    request.mutable_workflow_limits()->set_max_tokens(-1);
    Has(ErrorOf(request), "workflow_limits.max_tokens: expected >= 0, got -1");
  }
  SECTION("a negative expected_tokens") {
    request.set_expected_tokens(-1);
    Has(ErrorOf(request), "expected_tokens: expected >= 0, got -1");
  }
}

TEST_CASE("A request has an optional workflow, agent and expected length") {
  v1::GenerateRequest request = Text("hello");
  request.set_workflow("run 7");
  request.set_agent("planner");
  request.set_expected_tokens(1 << 30);
  const auto read = ReadRequest(request, OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->workflow == "run 7");
  CHECK(read->agent == "planner");
  CHECK(read->expected_tokens == 1 << 30);
  v1::PrefillOnlyRequest prefill;
  *prefill.mutable_segments() = request.segments();
  prefill.set_workflow("run 7");
  prefill.set_agent("planner");
  const auto read_prefill = ReadRequest(AsGenerate(prefill), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read_prefill.ok());
  CHECK(read_prefill->workflow == "run 7");
  CHECK(read_prefill->agent == "planner");
}

TEST_CASE("A request has an optional timeout and limits of its workflow, and 0 is none") {
  v1::PrefillOnlyRequest prefill;
  prefill.mutable_segments()->add_segments()->set_text("hello");
  prefill.set_workflow("w");
  CHECK(TimeoutOf(AsGenerate(prefill)) == absl::InfiniteDuration());
  prefill.mutable_workflow_limits();
  auto read = ReadRequest(AsGenerate(prefill), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->workflow_limits.deadline == absl::InfiniteDuration());
  CHECK(read->workflow_limits.max_tokens == WorkflowLimits::kNoTokenLimit);
  prefill.set_timeout_ms(250);
  prefill.mutable_workflow_limits()->set_deadline_ms(31'536'000'000);
  prefill.mutable_workflow_limits()->set_max_tokens(std::numeric_limits<int64_t>::max());
  CHECK(TimeoutOf(AsGenerate(prefill)) == absl::Milliseconds(250));
  read = ReadRequest(AsGenerate(prefill), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->workflow_limits.deadline == absl::Hours(24 * 365));
  CHECK(read->workflow_limits.max_tokens == std::numeric_limits<int64_t>::max());
}

TEST_CASE("A PrefillOnly request is a Generate request with the same fields and no output") {
  v1::PrefillOnlyRequest prefill;
  prefill.set_model("bytes");
  prefill.mutable_segments()->add_segments()->set_text("hello");
  prefill.set_session_id("s");
  prefill.set_request_id("r");
  prefill.set_priority(7);
  prefill.set_cache_salt("salt");
  prefill.set_join(v1::JOIN_ARRIVAL);
  prefill.set_workflow("run 7");
  prefill.set_agent("planner");
  prefill.set_timeout_ms(5);
  prefill.mutable_workflow_limits()->set_max_tokens(7);
  prefill.set_context_id("c");
  prefill.set_context_length(0);
  const v1::GenerateRequest generate = AsGenerate(prefill);
  CHECK(generate.sampling().has_max_tokens());
  // Each field of PrefillOnly has a field of the same name in Generate.
  const google::protobuf::Descriptor& fields = *v1::PrefillOnlyRequest::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& from = *fields.field(i);
    INFO(from.name());
    const google::protobuf::FieldDescriptor* to = v1::GenerateRequest::descriptor()->FindFieldByName(from.name());
    REQUIRE(to != nullptr);
    const google::protobuf::Reflection &theirs = *prefill.GetReflection(), &ours = *generate.GetReflection();
    CHECK(ours.HasField(generate, to) == theirs.HasField(prefill, &from));
    if (from.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      CHECK(ours.GetString(generate, to) == theirs.GetString(prefill, &from));
    }
  }
  const auto read = ReadRequest(generate, OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->prefill_only);
  CHECK(read->id == "r");
  CHECK(read->context.length == 0);
}

TEST_CASE("The chat of a PrefillOnly request ends without a generation prompt by default") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template =
      *ChatTemplate::Parse("{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}", "", "");
  const ServedModels models(std::move(list));
  const auto text = [&](const v1::GenerateRequest& request) {
    const auto read = ReadRequest(request, models, absl::UnixEpoch());
    REQUIRE(read.ok());
    return std::string(read->spec.tokens.begin(), read->spec.tokens.end());
  };
  v1::Chat chat;
  chat.add_messages()->set_role("user");
  chat.mutable_messages(0)->set_content("hi");
  v1::GenerateRequest generate;
  v1::PrefillOnlyRequest prefill;
  *generate.mutable_chat() = *prefill.mutable_chat() = chat;
  CHECK(text(generate) == "hi>");
  CHECK(text(AsGenerate(prefill)) == "hi");
  generate.mutable_chat()->set_add_generation_prompt(false);
  prefill.mutable_chat()->set_add_generation_prompt(true);
  CHECK(text(generate) == "hi");
  CHECK(text(AsGenerate(prefill)) == "hi>");
}

TEST_CASE("ReadRequest refuses text that cannot fit before it tokenises the text") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template = *ChatTemplate::Parse("{{ messages[0].content }}", "", "");
  const auto& tokenizer = static_cast<const ByteTokenizer&>(*list[0].tokenizer);
  const ServedModels models(std::move(list));
  v1::GenerateRequest request;
  size_t encoded = 0;
  std::string field = "segments.segments";
  SECTION("a long text is the only segment") { request = Text(std::string(1 << 20, 'a')); }
  SECTION("a text is too long after an earlier segment") {
    request = Text("hello");
    request.mutable_segments()->add_segments()->set_text(std::string(59, 'a'));
    encoded = 5;
  }
  SECTION("a long text is the message of a chat") {
    request.mutable_chat()->add_messages()->set_role("user");
    request.mutable_chat()->mutable_messages(0)->set_content(std::string(1 << 20, 'a'));
    field = "chat.messages";
  }
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(absl::IsInvalidArgument(read.status()));
  Has(std::string(Message(read.status())), field + ": at least ");
  Has(std::string(Message(read.status())),
      " tokens, limit 63 (context length 64 of 'bytes', less one token to generate)");
  CHECK(tokenizer.bytes_encoded_ == encoded);
}

TEST_CASE("A chat is UNIMPLEMENTED when its model has no template") {
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_role("user");
  const std::string error = ErrorOf(request, absl::StatusCode::kUnimplemented);
  Has(error, "chat.messages: model 'bytes' has no chat template");
  Has(error, "in segments over gRPC");
}

TEST_CASE("ReadRequest reads references and options between the tokens around them") {
  v1::GenerateRequest request = Text("ab");
  v1::OutputOf& first = *request.mutable_segments()->add_segments()->mutable_output_of();
  first.set_request_id("up.1");
  first.set_announced(true);
  first.set_on_failure(v1::OutputOf::ON_FAILURE_SUBSTITUTE);
  first.set_substitute("none");
  first.set_timeout_ms(1500);
  first.set_with_reasoning(true);
  request.mutable_segments()->add_segments()->set_text("c");
  request.mutable_segments()->add_segments()->set_text("d");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("up.2");
  request.set_join(v1::JOIN_ARRIVAL);
  const auto read = ReadRequest(request, OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->spec.tokens.empty());
  CHECK(read->prompt.join == Join::kArrival);
  REQUIRE(read->prompt.segments.size() == 4);
  using Ids = std::vector<TokenId>;
  CHECK(std::get<Ids>(read->prompt.segments[0]) == Ids{'a', 'b'});
  const auto& reference = std::get<Reference>(read->prompt.segments[1]);
  CHECK(reference.upstream == "up.1");
  CHECK(reference.announced);
  CHECK(reference.on_failure == OnFailure::kSubstitute);
  CHECK(reference.substitute == Ids{'n', 'o', 'n', 'e'});
  CHECK(reference.timeout == absl::Milliseconds(1500));
  CHECK(reference.with_reasoning);
  CHECK(std::get<Ids>(read->prompt.segments[2]) == Ids{'c', 'd'});
  CHECK(std::get<Reference>(read->prompt.segments[3]).timeout == absl::InfiniteDuration());
  CHECK_FALSE(std::get<Reference>(read->prompt.segments[3]).with_reasoning);
}

TEST_CASE("ReadRequest refuses max_tokens beyond the context length of a streaming prompt") {
  v1::GenerateRequest request = Text("abcd");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("up");
  request.mutable_segments()->add_segments()->set_text("e");
  request.mutable_sampling()->set_max_tokens(59);  // of 64
  CHECK(ReadRequest(request, OneByteModel(), absl::UnixEpoch()).ok());
  request.mutable_sampling()->set_max_tokens(60);
  Has(ErrorOf(request), "sampling.max_tokens: 60 after a prompt of at least 5 tokens, limit 59");
  request.mutable_segments()->mutable_segments()->DeleteSubrange(0, 1);
  request.mutable_segments()->mutable_segments()->DeleteSubrange(1, 1);
  request.mutable_sampling()->set_max_tokens(64);
  Has(ErrorOf(request), "sampling.max_tokens: 64 after a prompt of at least 1 tokens, limit 63");
}

TEST_CASE("ReadRequest refuses bad references by field") {
  v1::GenerateRequest request = Text("ab");
  v1::OutputOf& reference = *request.mutable_segments()->add_segments()->mutable_output_of();
  const auto error = [&] { return ErrorOf(request, absl::StatusCode::kInvalidArgument); };
  Has(error(), "segments.segments[1].output_of.request_id: must not be empty");
  reference.set_request_id("no spaces");
  Has(error(), "segments.segments[1].output_of.request_id: expected letters");
  reference.set_request_id(std::string(129, 'a'));
  Has(error(), "segments.segments[1].output_of.request_id: 129 bytes, limit 128");
  reference.set_request_id("up");
  reference.set_substitute("none");
  Has(error(), "segments.segments[1].output_of.substitute: requires on_failure ON_FAILURE_SUBSTITUTE");
  reference.clear_substitute();
  reference.set_timeout_ms(-1);
  Has(error(), "segments.segments[1].output_of.timeout_ms: expected >= 0, got -1");
  reference.set_timeout_ms(0);
  reference.set_on_failure(static_cast<v1::OutputOf::OnFailure>(7));
  Has(error(), "segments.segments[1].output_of.on_failure: unknown value 7");
  reference.clear_on_failure();
  request.set_join(static_cast<v1::Join>(5));
  Has(error(), "join: unknown value 5");
}

TEST_CASE("A reference in a chat stands where the template puts the message") {
  const ServedModels models(
      ModelsWithTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}!"));
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("u");
  message.add_parts()->set_text("see \uE000");  // looks like the reader's own mark
  message.add_parts()->mutable_output_of()->set_request_id("up");
  message.add_parts()->set_text(" end ");
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  INFO(read.status());
  REQUIRE(read.ok());
  REQUIRE(read->prompt.segments.size() == 3);
  const auto text = [&](size_t i) {
    const auto& ids = std::get<std::vector<TokenId>>(read->prompt.segments[i]);
    return std::string(ids.begin(), ids.end());
  };
  CHECK(text(0) == "<u>see \uE000");
  CHECK(std::get<Reference>(read->prompt.segments[1]).upstream == "up");
  CHECK(text(2) == " end!");
  message.mutable_parts(0)->set_text("\uE002\uE000\uE0020\uE001\uE002\uE000\uE000");
  const auto again = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(again.ok());
  REQUIRE(again->prompt.segments.size() == 3);
  CHECK(std::get<Reference>(again->prompt.segments[1]).upstream == "up");
  // A mark of thousands of characters would take that much space for each reference.
  std::string marks = "\uE002";
  for (int i = 0; i < 1000; ++i) marks += "\uE000";
  message.mutable_parts(0)->set_text(marks);
  CHECK(Message(ReadRequest(request, models, absl::UnixEpoch()).status()) ==
        "chat.messages[0].parts[1]: the chat has U+E002 followed by 1000 times U+E000, limit 30");
  message.set_content("both");
  CHECK(Message(ReadRequest(request, models, absl::UnixEpoch()).status()) ==
        "chat.messages[0]: expected content or parts, got both");
}

TEST_CASE("Token ids in a chat stand in the rendered message as they are") {
  const ServedModels models(
      ModelsWithTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}!"));
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("u");
  message.add_parts()->set_text(" a");
  v1::TokenIds& ids = *message.add_parts()->mutable_token_ids();
  // The template does not trim them.
  for (const char c : std::string(" \n")) ids.add_ids(c);
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(std::string(read->spec.tokens.begin(), read->spec.tokens.end()) == "<u>a \n!");
  ids.set_ids(1, 100'000);
  CHECK(Message(ReadRequest(request, models, absl::UnixEpoch()).status())
            .starts_with("chat.messages[0].parts[1].token_ids.ids[1]: expected [0, "));
}

TEST_CASE("ReadRequest renders a chat with its roles and contents") {
  const ServedModels models(ModelsWithTemplate(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"));
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
  CHECK(std::string(read->spec.tokens.begin(), read->spec.tokens.end()) == "<user>hi<bot>yes!");
  while (request.chat().messages_size() <= 4096) *request.mutable_chat()->add_messages() = request.chat().messages(0);
  CHECK(error() == "chat.messages: expected 1 to 4096, got 4097");
  request.mutable_chat()->clear_messages();
  CHECK(error() == "chat.messages: expected 1 to 4096, got 0");
}

TEST_CASE("ReadRequest refuses a chat beyond its template's limits permanently") {
  const ServedModels models(
      ModelsWithTemplate("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"));
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("hi");
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  CHECK(Message(read.status()).find("steps") != std::string::npos);
  // RESOURCE_EXHAUSTED would ask the client to retry.
  CHECK(absl::IsInvalidArgument(read.status()));
}

TEST_CASE("Substitutes count as text to tokenise") {
  v1::GenerateRequest request;
  request.mutable_segments()->add_segments()->set_text("abc");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_substitute("defgh");
  CHECK(TextBytes(request.segments()) == 8);
  request.mutable_chat()->add_messages()->add_parts()->mutable_output_of()->set_substitute("ijk");
  CHECK(TextBytes(request.chat()) == 3);
}

TEST_CASE("A request must name its model when several are served") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("a"));
  list.push_back(ByteModel("b"));
  const auto read = ReadRequest(Text("hi"), ServedModels(std::move(list)), absl::UnixEpoch());
  CHECK(absl::IsInvalidArgument(read.status()));
  CHECK(Message(read.status()) == "model: expected one of 'a', 'b', got no name");
}

TEST_CASE("A request with max_tokens 0 is prefill-only and may fill the context length") {
  v1::GenerateRequest request = Text(std::string(64, 'a'));
  request.mutable_sampling()->set_max_tokens(0);
  const auto read = ReadRequest(request, OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->prefill_only);
  request.mutable_sampling()->clear_max_tokens();
  CHECK(absl::IsInvalidArgument(ReadRequest(request, OneByteModel(), absl::UnixEpoch()).status()));
}

TEST_CASE("A PrefillOnly request may fill the whole context length") {
  v1::PrefillOnlyRequest request;
  request.mutable_segments()->add_segments()->set_text(std::string(64, 'a'));
  const auto read = ReadRequest(AsGenerate(request), OneByteModel(), absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->prefill_only);
  request.mutable_segments()->add_segments()->set_text("b");
  CHECK(absl::IsInvalidArgument(ReadRequest(AsGenerate(request), OneByteModel(), absl::UnixEpoch()).status()));
}

}  // namespace
}  // namespace baton
