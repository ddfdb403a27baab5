#include "rpc/proto_json.h"

#include <string>
#include <utility>

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
        "cache_salt: expected once, got a second value as 'cacheSalt'");
  CHECK(RefusalOf(R"({"sessionId":"b","session_id":"a"})") ==
        "session_id: expected once, got a second value as 'session_id'");
  CHECK(RefusalOf(R"({"sampling":{"topK":1,"top_k":2}})") ==
        "sampling.top_k: expected once, got a second value as 'top_k'");
  CHECK(RefusalOf(R"({"segments":{"segments":[{"text":"a"},{"output_of":{"request_id":"r","requestId":"s"}}]}})") ==
        "segments.segments[1].output_of.request_id: expected once, got a second value as 'requestId'");
}

TEST_CASE("ParseRpc refuses a duplicate member, an unknown field and invalid JSON") {
  CHECK(absl::StrContains(RefusalOf(R"({"cache_salt":"b","cache_salt":"a"})"), "cache_salt"));
  CHECK(RefusalOf(R"({"cache_salt":)").starts_with("cache_salt: expected JSON, byte 15: "));
  CHECK(RefusalOf("{").starts_with("body: expected JSON, byte 2: "));
  CHECK(absl::StrContains(RefusalOf(R"({"nonsense":1})"), "nonsense"));
}

TEST_CASE("ParseRpc names the field that has a value of another type") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"sampling":{"topK":1.5}})", "sampling.top_k: expected int32, got 1.5"},
      {R"({"sampling":{"topK":{"a":1}}})", "sampling.top_k: expected no object, got an object"},
      {R"({"sampling":{"topK":[1]}})", "sampling.topK: expected one value, got a list"},
      {R"({"sampling":{"stop":[1]}})", "sampling.stop[0]: expected string, got 1"},
      {R"({"sampling":{"stop":[{"a":1}]}})", "sampling.stop: expected no object, got an object"},
      {R"({"sampling":{"ignore_eos":": x for type y"}})", "sampling.ignore_eos: expected bool, got \": x for type y\""},
      {R"({"sampling":5})", "sampling: expected baton.v1.Sampling, got 5"},
      {R"({"sampling":{"topq":1}})", "sampling.topq: is not supported"},
      {R"({"segments":{"segments":[{"text":"a"},{"text":{"a":1}}]}})",
       "segments.segments[1].text: expected no object, got an object"},
      {R"({"segments":{"segments":[{"token_ids":{"ids":[1,"x"]}}]}})",
       "segments.segments[0].token_ids.ids[1]: expected int32, got \"x\""},
      {R"({"model":3})", "model: expected string, got 3"},
      {R"({"model":{"a":1}})", "model: expected no object, got an object"},
      {R"({"join":"LATE"})", "join: expected baton.v1.Join, got \"LATE\""},
      {R"({"nonsense":1})", "nonsense: is not supported"},
      {R"({"non: sense":1})", "non: sense: is not supported"},
      {"[1]", "body: Root element must be a message."},
  };
  for (const auto& [body, error] : cases) CHECK(RefusalOf(body) == error);
}

}  // namespace
}  // namespace baton
