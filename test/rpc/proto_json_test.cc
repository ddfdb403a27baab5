#include "rpc/proto_json.h"

#include "absl/strings/match.h"
#include "catch.h"
#include "inference.pb.h"

namespace baton {
namespace {

std::string RefusalOf(const std::string& body) {
  v1::GenerateRequest request;
  const absl::Status status = ParseRpc(body, request);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("ParseRpc reads a field under its proto name and its JSON name") {
  for (const char* body :
       {R"({"cache_salt":"a","sampling":{"top_k":3}})", R"({"cacheSalt":"a","sampling":{"topK":3}})"}) {
    v1::GenerateRequest request;
    REQUIRE(ParseRpc(body, request).ok());
    CHECK(request.cache_salt() == "a");
    CHECK(request.sampling().top_k() == 3);
  }
}

TEST_CASE("ParseRpc refuses a field that is given under both names") {
  CHECK(RefusalOf(R"({"cache_salt":"b","cacheSalt":"a"})") ==
        "body.cache_salt: expected once, got a second value as 'cacheSalt'");
  CHECK(RefusalOf(R"({"sessionId":"b","session_id":"a"})") ==
        "body.session_id: expected once, got a second value as 'session_id'");
  CHECK(RefusalOf(R"({"sampling":{"topK":1,"top_k":2}})") ==
        "body.sampling.top_k: expected once, got a second value as 'top_k'");
  CHECK(RefusalOf(R"({"segments":{"segments":[{"text":"a"},{"output_of":{"request_id":"r","requestId":"s"}}]}})") ==
        "body.segments.segments[1].output_of.request_id: expected once, got a second value as 'requestId'");
}

TEST_CASE("ParseRpc refuses a duplicate member, an unknown field and invalid JSON") {
  CHECK(absl::StrContains(RefusalOf(R"({"cache_salt":"b","cache_salt":"a"})"), "cache_salt"));
  CHECK(absl::StrContains(RefusalOf(R"({"cache_salt":)"), "body"));
  CHECK(absl::StrContains(RefusalOf(R"({"nonsense":1})"), "nonsense"));
}

}  // namespace
}  // namespace baton
