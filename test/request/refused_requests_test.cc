#include "request/refused_requests.h"

#include "absl/strings/str_cat.h"
#include "base/root_cause.h"
#include "catch.h"
#include "request/lives.h"

namespace baton {
namespace {

RefusedRequest Refused(const std::string& id, const std::string& workflow, const std::string& tenant = "") {
  return {.id = id,
          .cache_domain = tenant,
          .tenant = tenant,
          .workflow = workflow,
          .agent = "writer",
          .status = absl::InvalidArgumentError("top_p: 2")};
}

TEST_CASE("RefusedRequests keeps names, status and time of a request") {
  RefusedRequests refused{RefusalLimits{}};
  refused.Keep(Refused("r", "w"), At(5));
  CHECK(refused.Find("other", "", At(5)).lives.empty());
  CHECK(refused.Find("w", "salt", At(5)).lives.empty());
  const auto found = refused.Find("w", "", At(5));
  REQUIRE(found.lives.size() == 1);
  const RequestLife& life = *found.lives[0];
  CHECK(life.refused);
  CHECK(life.agent == "writer");
  CHECK(life.outcome.status == absl::InvalidArgumentError("top_p: 2"));
  CHECK(life.stages.arrived == At(5));
  CHECK(SpansOf(life, At(9)).empty());
}

TEST_CASE("RefusedRequests drops the oldest of a workflow, and those that are too old") {
  RefusedRequests refused({.age = absl::Milliseconds(100), .of_workflow = 3});
  refused.Keep(Refused("before", "v"), At(0));
  for (int i = 0; i < 5; ++i) refused.Keep(Refused(absl::StrCat(i), "w"), At(i));
  const auto found = refused.Find("w", "", At(10));
  CHECK(Ids(found.lives) == "234");
  CHECK(found.omitted == 2);
  CHECK(Ids(refused.Find("v", "", At(10)).lives) == "before");
  CHECK(Ids(refused.Find("w", "", At(103)).lives) == "4");
  CHECK(refused.OfCacheDomain("", At(104)).empty());
}

TEST_CASE("RefusedRequests drops requests of the tenant that floods it with workflows") {
  RefusedRequests refused({.of_workflow = 4, .all = 6});
  refused.Keep(Refused("mine-1", "w", "mine"), At(0));
  refused.Keep(Refused("mine-2", "w", "mine"), At(0));
  for (int i = 0; i < 100; ++i) refused.Keep(Refused(absl::StrCat(i), absl::StrCat("flow-", i), "theirs"), At(i));
  CHECK(Ids(refused.OfCacheDomain("mine", At(100))) == "mine-1mine-2");
  CHECK(refused.OfCacheDomain("theirs", At(100)).size() == 4);
  for (int i = 96; i < 100; ++i) {
    CHECK(refused.Find(absl::StrCat("flow-", i), "theirs", At(100)).lives.size() == 1);
  }
}

TEST_CASE("RefusedRequests cuts a long message and keeps its root cause") {
  RefusedRequests refused{RefusalLimits{}};
  RefusedRequest request = Refused("r", "w");
  const RootCause cause{"up", "writer", absl::StatusCode::kNotFound, "no model"};
  request.status = WithRootCause(absl::AbortedError(std::string(1 << 20, 'x')), cause);
  refused.Keep(request, At(0));
  const auto found = refused.Find("w", "", At(0));
  REQUIRE(found.lives.size() == 1);
  CHECK(found.lives[0]->outcome.status.message().size() == kMaxCauseBytes);
  CHECK(RootCauseOf(found.lives[0]->outcome.status) == cause);
}

}  // namespace
}  // namespace baton
