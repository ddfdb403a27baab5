// Part groups and the number of outputs that a prompt uses, in requests of clients.
#include <limits>

#include "base/strings.h"
#include "catch.h"
#include "frontend/request_reader.h"
#include "model/byte_model.h"

namespace baton {
namespace {

using TokenList = std::vector<TokenId>;

void AddOutput(v1::Group& group, const std::string& id) { group.add_parts()->mutable_output_of()->set_request_id(id); }

// Fills a group with the parts "[", the agent's name, the output and "]".
void Fill(v1::Group& group) {
  group.add_parts()->set_text("[");
  group.add_parts()->mutable_agent_name();
  AddOutput(group, "up");
  group.add_parts()->set_text("]");
}

v1::GenerateRequest WithGroup() {
  v1::GenerateRequest request;
  Fill(*request.mutable_segments()->add_segments()->mutable_group());
  return request;
}

std::string ErrorIn(const v1::GenerateRequest& request, const ServedModels& models = OneByteModel()) {
  const auto result = ReadRequest(request, models, absl::UnixEpoch());
  CHECK(absl::IsInvalidArgument(result.status()));
  return std::string(Message(result.status()));
}

std::string GroupError(const v1::Group& group) {
  v1::GenerateRequest request;
  *request.mutable_segments()->add_segments()->mutable_group() = group;
  return ErrorIn(request);
}

void CheckGroup(const Reference& reference) {
  CHECK(reference.upstream == "up");
  REQUIRE(reference.before.size() == 2);
  CHECK(std::get<TokenList>(reference.before[0]) == TokenList{'['});
  CHECK(std::holds_alternative<AgentName>(reference.before[1]));
  REQUIRE(reference.after.size() == 1);
  CHECK(std::get<TokenList>(reference.after[0]) == TokenList{']'});
}

TEST_CASE("ReadRequest reads a part group as a reference with parts around it") {
  std::vector<ServedModel> list;
  list.push_back(ByteModel("a", {200, 201}));
  list[0].chat_template = *ChatTemplate::Parse("<{{ messages[0].content | trim }}>", "", "");
  const ServedModels models(std::move(list));
  v1::GenerateRequest request = WithGroup();
  request.set_first(1);
  const auto read = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(read.ok());
  CHECK(read->prompt.first == 1);
  // The tokenizer's prefix does not belong to the group.
  REQUIRE(read->prompt.segments.size() == 2);
  CHECK(std::get<TokenList>(read->prompt.segments[0]) == TokenList{200, 201});
  CheckGroup(std::get<Reference>(read->prompt.segments[1]));

  request.clear_segments();
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.add_parts()->set_text("a");
  Fill(*message.add_parts()->mutable_group());
  const auto chat = ReadRequest(request, models, absl::UnixEpoch());
  REQUIRE(chat.ok());
  REQUIRE(chat->prompt.segments.size() == 3);
  CHECK(std::get<TokenList>(chat->prompt.segments[0]) == TokenList{'<', 'a'});
  CheckGroup(std::get<Reference>(chat->prompt.segments[1]));
}

TEST_CASE("ReadRequest refuses a bad part group by field") {
  v1::Group group;
  CHECK(GroupError(group) == "segments.segments[0].group.parts: expected one output_of in the group, got none");
  group.add_parts()->set_text("a");
  CHECK(GroupError(group) == "segments.segments[0].group.parts: expected one output_of in the group, got none");
  AddOutput(group, "up");
  SECTION("two outputs") {
    AddOutput(group, "up2");
    CHECK(GroupError(group) ==
          "segments.segments[0].group.parts[2]: expected one output_of in the group, got a second one");
  }
  SECTION("a group in a group, however deep") {
    v1::Group* inner = &group;
    for (int depth = 0; depth < 40; ++depth) inner = inner->add_parts()->mutable_group();
    CHECK(GroupError(group) == "segments.segments[0].group.parts[2]: a group must not contain a group");
  }
  SECTION("a part of no kind") {
    group.add_parts();
    CHECK(GroupError(group) ==
          "segments.segments[0].group.parts[2]: expected text, token_ids, output_of or agent_name, got none");
  }
  SECTION("too many parts") {
    for (int i = 0; i < 63; ++i) group.add_parts()->set_text("a");
    CHECK(GroupError(group) == "segments.segments[0].group.parts: 65 parts, limit 64");
  }
  SECTION("parts that no prompt can contain") {
    for (int i = 0; i < 40; ++i) group.add_parts()->set_text("0123456789");
    CHECK(GroupError(group).starts_with("segments.segments: at least "));
    group.mutable_parts(0)->mutable_token_ids()->add_ids(-1);
    CHECK(GroupError(group).starts_with("segments.segments[0].group.parts[0].token_ids.ids[0]: expected [0, "));
  }
  SECTION("a bad reference") {
    group.mutable_parts(1)->mutable_output_of()->set_timeout_ms(std::numeric_limits<int64_t>::min());
    CHECK(GroupError(group).starts_with("segments.segments[0].group.parts[1].output_of.timeout_ms: expected >= 0"));
  }
}

TEST_CASE("ReadRequest refuses agent_name outside a part group") {
  v1::GenerateRequest request = WithGroup();
  request.mutable_segments()->add_segments()->mutable_agent_name();
  CHECK(ErrorIn(request) == "segments.segments[1]: agent_name is for parts of a group");
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  list[0].chat_template = *ChatTemplate::Parse("{{ messages[0].content }}", "", "");
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.add_parts()->mutable_agent_name();
  CHECK(ErrorIn(request, ServedModels(list)) ==
        "chat.messages[0].parts[0]: expected text, token_ids, output_of or group");
  message.mutable_parts(0)->mutable_group();
  CHECK(ErrorIn(request, ServedModels(list)) ==
        "chat.messages[0].parts[0].group.parts: expected one output_of in the group, got none");
}

TEST_CASE("ReadRequest refuses `first` below 0 or above the number of outputs") {
  v1::GenerateRequest request = WithGroup();
  for (const int32_t first : {-1, 2, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    request.set_first(first);
    CHECK(ErrorIn(request) == StrCat("first: expected [0, 1], up to the number of output_of, got ", first));
  }
  request.mutable_segments()->mutable_segments(0)->set_text("a");
  request.set_first(1);
  CHECK(ErrorIn(request) == "first: expected [0, 0], up to the number of output_of, got 1");
}

TEST_CASE("The texts of part groups count as text to tokenise") {
  v1::GenerateRequest request = WithGroup();
  CHECK(TextBytes(request.segments()) == 2);
  v1::Group& inner = *request.mutable_segments()->mutable_segments(0)->mutable_group()->add_parts()->mutable_group();
  inner.add_parts()->set_text("nested");
  CHECK(TextBytes(request.segments()) == 8);
}

}  // namespace
}  // namespace baton
