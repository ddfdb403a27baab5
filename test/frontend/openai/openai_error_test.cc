#include "frontend/openai/openai_error.h"

#include "base/root_cause.h"
#include "catch.h"

namespace baton {
namespace {

TEST_CASE("An error has OpenAI's format and names the field") {
  CHECK(ErrorBody(absl::InvalidArgumentError("prompt[1]: expected \"text\"")) ==
        R"({"error":{"message":"prompt[1]: expected \"text\"","type":"invalid_request_error","param":"prompt[1]",)"
        R"("code":"invalid_argument"}})");
  CHECK(ErrorBody(absl::NotFoundError("model: unknown: 'x'")) ==
        R"({"error":{"message":"model: unknown: 'x'","type":"invalid_request_error","param":"model",)"
        R"("code":"model_not_found"}})");
  CHECK(ErrorBody(absl::InvalidArgumentError("sampling.top_p: expected a number in [0, 1], got 2")) ==
        R"({"error":{"message":"sampling.top_p: expected a number in [0, 1], got 2","type":"invalid_request_error",)"
        R"("param":"sampling.top_p","code":"invalid_argument"}})");
  CHECK(ErrorBody(absl::ResourceExhaustedError("overloaded: 256 long prompts wait")) ==
        R"({"error":{"message":"overloaded: 256 long prompts wait","type":"rate_limit_error","param":null,)"
        R"("code":"rate_limit_exceeded"}})");
  CHECK(ErrorBody(absl::UnauthenticatedError("no key")) ==
        R"({"error":{"message":"no key","type":"authentication_error","param":null,"code":"invalid_api_key"}})");
  CHECK(ErrorBody(absl::InternalError("it \xff broke\n")) ==
        "{\"error\":{\"message\":\"it \uFFFD broke\\n\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"internal\"}}");
}

TEST_CASE("An error names the request that caused it") {
  const absl::Status status =
      AsRootCause(absl::InvalidArgumentError("top_p: expected [0, 1], got \xff"), "up", "the \"writer\"");
  CHECK(ErrorBody(WithRootCause(absl::AbortedError("output_of 'up'"), *RootCauseOf(status))) ==
        R"({"error":{"message":"output_of 'up'","type":"invalid_request_error","param":null,"code":"aborted",)"
        R"("root":{"request_id":"up","agent":"the \"writer\"","code":"invalid_argument",)"
        "\"message\":\"top_p: expected [0, 1], got \uFFFD\"}}}");
}

TEST_CASE("A prompt beyond the context length gets OpenAI's message") {
  CHECK(ErrorBody(
            absl::InvalidArgumentError("prompt: 64 tokens, limit 63 (context length 64 of 'bytes', less one token)")) ==
        R"({"error":{"message":"This model's maximum context length is 64 tokens. prompt: 64 tokens, limit 63 )"
        R"x((context length 64 of 'bytes', less one token)","type":"invalid_request_error","param":"prompt",)x"
        R"("code":"context_length_exceeded"}})");
  for (const char* message :
       {"sampling.max_tokens: 8 after a prompt of 61 tokens, limit 3 (context length 64 of 'bytes')",
        "max_completion_tokens: 8 after a prompt of 61 tokens, limit 3 (context length 64 of 'bytes')",
        "tokens: expected at most 64, got 65 (context length 64 of 'bytes')",
        "max_tokens: 9 after a prompt of 61 tokens, limit 3 (KV memory for 64 tokens of 'bytes': the largest)",
        "prompt[12]: 70 tokens, limit 63 (context length 64 of 'bytes', less one token to generate)",
        "messages: 70 tokens, limit 63 (context length 64 of 'bytes', less one token to generate)",
        "prompt: with the outputs it refers to it has at least 65 tokens, limit 63 (context length 64 of 'bytes', less "
        "one token to generate)"}) {
    const std::string body = ErrorBody(absl::InvalidArgumentError(message));
    CHECK(body.find("maximum context length is 64 tokens") != std::string::npos);
    CHECK(body.find("\"code\":\"context_length_exceeded\"") != std::string::npos);
  }
  for (const absl::Status& other :
       {absl::InvalidArgumentError("prompt: expected segments or chat, got none"),
        absl::InvalidArgumentError("prompt: the prompt has 70 tokens, limit 60 (the smaller of two)"),
        absl::InvalidArgumentError("messages[0].role: 9 tokens, limit 3 (context length 64 of 'bytes')"),
        absl::InvalidArgumentError("stop: 9 tokens, limit 3 (context length 64 of 'bytes')"),
        absl::ResourceExhaustedError("prompt: 64 tokens, limit 63")}) {
    CHECK(ErrorBody(other).find("maximum context") == std::string::npos);
    CHECK(ErrorBody(other).find("context_length_exceeded") == std::string::npos);
  }
}

TEST_CASE("Every status code has its HTTP status") {
  const std::pair<absl::StatusCode, int> codes[] = {
      {absl::StatusCode::kInvalidArgument, 400},  {absl::StatusCode::kFailedPrecondition, 400},
      {absl::StatusCode::kOutOfRange, 400},       {absl::StatusCode::kUnimplemented, 400},
      {absl::StatusCode::kUnauthenticated, 401},  {absl::StatusCode::kPermissionDenied, 403},
      {absl::StatusCode::kNotFound, 404},         {absl::StatusCode::kAlreadyExists, 409},
      {absl::StatusCode::kAborted, 409},          {absl::StatusCode::kResourceExhausted, 429},
      {absl::StatusCode::kCancelled, 499},        {absl::StatusCode::kUnavailable, 503},
      {absl::StatusCode::kDeadlineExceeded, 504}, {absl::StatusCode::kInternal, 500},
      {absl::StatusCode::kUnknown, 500},          {absl::StatusCode::kDataLoss, 500}};
  for (const auto& [code, http] : codes) CHECK(HttpStatusOf(absl::Status(code, "")) == http);
}

}  // namespace
}  // namespace baton
