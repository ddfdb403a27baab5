#include "frontend/grpc/message_check.h"

#include "base/strings.h"
#include "catch.h"
#include "inference.pb.h"

namespace baton {
namespace {

// A serialised request with `bad`, four bytes, as the text of a segment. The bytes replace a valid
// text, because protobuf refuses to serialise text that is not UTF-8.
std::string WithText(const std::string& bad, int segment) {
  v1::GenerateRequest request;
  for (int i = 0; i < 3; ++i) request.mutable_segments()->add_segments()->set_text("@@@@");
  std::string bytes = request.SerializeAsString();
  size_t at = 0;
  for (int i = 0; i <= segment; ++i) at = bytes.find("@@@@", at) + 4;
  return bytes.replace(at - 4, 4, bad);
}

TEST_CASE("ExplainParseError names the field of a string that is not UTF-8") {
  const std::string bytes = WithText("a\xff\xfe!", 1);
  v1::GenerateRequest request;
  REQUIRE_FALSE(request.ParseFromString(bytes));
  CHECK(Message(ExplainParseError(bytes, request)) == "segments.segments[1].text: is not valid UTF-8");
}

TEST_CASE("ExplainParseError reports a broken encoding") {
  v1::GenerateRequest request;
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string("\x12\x7f"), std::string("\x0b\x0b")}) {
    REQUIRE_FALSE(request.ParseFromString(bytes));
    const absl::Status status = ExplainParseError(bytes, request);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Message(status) == "the message is no valid encoding of baton.v1.GenerateRequest");
  }
}

}  // namespace
}  // namespace baton
