#include "frontend/gateway/rpc_query.h"

#include <string>

#include "catch.h"

namespace baton {
namespace {

RpcQuery MustRead(const std::string& query) {
  const absl::StatusOr<RpcQuery> read = ReadRpcQuery(query, /*may_stream=*/true);
  REQUIRE(read.ok());
  return *read;
}

TEST_CASE("A query sets the form and the deadline of an answer") {
  CHECK_FALSE(MustRead("").stream);
  CHECK(MustRead("").timeout == absl::InfiniteDuration());
  CHECK(MustRead("stream=true").stream);
  CHECK_FALSE(MustRead("stream=false").stream);
  const RpcQuery both = MustRead("timeout_ms=1500&stream=true");
  CHECK(both.stream);
  CHECK(both.timeout == absl::Milliseconds(1500));
  CHECK(ReadRpcQuery("timeout_ms=1", /*may_stream=*/false)->timeout == absl::Milliseconds(1));
}

TEST_CASE("ReadRpcQuery refuses unknown parameters by name") {
  const auto error = [](const std::string& query, bool may_stream = true) {
    const absl::StatusOr<RpcQuery> read = ReadRpcQuery(query, may_stream);
    CHECK(absl::IsInvalidArgument(read.status()));
    return std::string(read.status().message());
  };
  CHECK(error("stream=1") == "query: expected stream=true or stream=false, got 'stream=1'");
  CHECK(error("streams=true") == "query: expected stream=true, stream=false or timeout_ms=N, got 'streams=true'");
  CHECK(error("stream=true", false) == "query: expected timeout_ms=N, got 'stream=true'");
  CHECK(error("stream=true&stream=true") == "query: expected one stream, got 'stream=true&stream=true'");
  for (const char* value : {"", "0", "-1", "1.5", "31536000001", "99999999999999999999", "1s", "+5", " 5"}) {
    INFO(value);
    CHECK(error(std::string("timeout_ms=") + value) ==
          std::string("query: expected timeout_ms in [1, 31536000000], got 'timeout_ms=") + value + "'");
  }
  CHECK(error("stream") == "query: expected stream=true or stream=false, got 'stream'");
  for (const char* empty : {"&", "stream=true&", "&stream=true", "stream=true&&timeout_ms=5"}) {
    INFO(empty);
    CHECK(error(empty) == "query: expected stream=true, stream=false or timeout_ms=N, got ''");
  }
  CHECK(error("a\n\x01") == R"(query: expected stream=true, stream=false or timeout_ms=N, got 'a\n\x01')");
}

}  // namespace
}  // namespace baton
