#include "frontend/trace_convert.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/root_cause.h"
#include "catch.h"

namespace baton {
namespace {

RequestLife LifeAt(const std::string& id, int64_t ms) {
  RequestLife life;
  life.outcome.id = id;
  life.stages.arrived = life.stages.ended = absl::UnixEpoch() + absl::Milliseconds(ms);
  return life;
}

void Add(Router::Trace& trace, RequestLife life) {
  trace.lives.push_back(std::make_shared<const RequestLife>(std::move(life)));
}

TEST_CASE("A trace names the request that ran as upstream when its id was refused later") {
  Router::Trace trace;
  Add(trace, LifeAt("up", 0));
  RequestLife refused = LifeAt("up", 1);
  refused.refused = true;
  refused.outcome.status = absl::AlreadyExistsError("in use");
  Add(trace, refused);
  RequestLife down = LifeAt("down", 2);
  down.upstreams = {"up"};
  down.upstream_attempts = {0};
  Add(trace, down);
  const v1::TraceResponse response = ToProto(trace);
  REQUIRE(response.requests_size() == 3);
  CHECK(response.requests(1).refused());
  CHECK(response.requests(1).error() == "ALREADY_EXISTS: in use");
  REQUIRE(response.requests(2).upstreams_size() == 1);
  CHECK(response.requests(2).upstreams(0) == 0);
}

TEST_CASE("A trace has the root cause of a failure with a message that is cut") {
  Router::Trace trace;
  RequestLife failed = LifeAt("r", 0);
  const RootCause cause{"up", "writer", absl::StatusCode::kNotFound, std::string(1000, 'x')};
  failed.outcome.status = WithRootCause(absl::AbortedError("up failed"), cause);
  Add(trace, failed);
  const v1::RootCause root = ToProto(trace).requests(0).root();
  CHECK(root.request_id() == "up");
  CHECK(root.agent() == "writer");
  CHECK(root.code() == 5);
  CHECK(root.message() == std::string(256, 'x') + "…");
}

TEST_CASE("A trace has the sums of at most 512 agents, and the number of the others") {
  Router::Trace trace;
  for (int i = 0; i < 600; ++i) trace.agents.push_back({.agent = absl::StrCat(i), .overlap_tokens = i});
  const v1::TraceResponse response = ToProto(trace);
  REQUIRE(response.agents_size() == 512);
  CHECK(response.agents(511).agent() == "511");
  CHECK(response.agents(511).overlap_tokens() == 511);
  CHECK(response.agents_omitted() == 88);
}

}  // namespace
}  // namespace baton
