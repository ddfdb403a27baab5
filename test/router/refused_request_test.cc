// Requests that the router refuses, and the prompts that wait for them.
#include <algorithm>

#include "base/root_cause.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher keeps prompts waiting when the refusal of their upstream may be retried") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  d.Take();
  (*d).Refused("up", "", absl::ResourceExhaustedError("full"), absl::Seconds(1), d.now);
  CHECK(d.Take().empty());
  ClientRequest other = d.Request("other", "");
  other.spec.cache_domain = "tenant";
  other.prompt.segments = {std::vector<TokenId>{'o'}, Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(other).ok());
  CHECK(d.Take() == Lines{"prefill-1: open other#ab.2 "});
  REQUIRE(d.Submit(d.Request("up", "abc")).ok());
  d.Take();
  d.Prefilled("up");
  d.Made(d.NameOf("up"), "x", FinishReason::kStop);
  const Lines lines = d.Take();
  CHECK(lines.back() == "prefill-1: close down#ab.1 x");
}

TEST_CASE("Dispatcher fails prompts at once when their upstream request is refused") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  ClientRequest further = d.Request("further", "");
  further.prompt.segments = {Reference{.upstream = "down"}};
  REQUIRE(d.Submit(further).ok());
  d.Run("before", "0123456789", FinishReason::kStop);
  d.Take();
  ClientRequest up = d.Request("up", "", 60);  // the context has 64 tokens
  up.prompt.segments = {Reference{.upstream = "before"}};
  up.agent = "writer";
  const absl::Status refused = d.Submit(up).status();
  CHECK(absl::IsInvalidArgument(refused));
  const Lines lines = d.Take();
  CHECK(std::ranges::count_if(lines, [](const std::string& line) { return line.find("ends ABORTED") != line.npos; }) ==
        2);
  up.prompt.segments = {Reference{.upstream = "further"}};
  up.id = "late";
  CHECK(RootCauseOf(d.Submit(up).status()) ==
        RootCause{"up", "writer", refused.code(), std::string(refused.message())});
}

}  // namespace
}  // namespace baton
