// Requests that the router refuses, and the prompts that wait for them.
#include <algorithm>
#include <vector>

#include "base/root_cause.h"
#include "world/dispatcher_world.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

WorkerInfo DecodeOf(const std::string& name, uint64_t incarnation, int64_t blocks) {
  WorkerInfo info = Info(WorkerRole::kDecode, name, incarnation);
  info.blocks_total = blocks;
  return info;
}

// A request for `max_tokens` after a prompt of 20 tokens.
RouteRequest AskFor(const std::string& id, int32_t max_tokens) {
  RouteRequest request = Ask(id);
  request.has_max_tokens = true;
  request.max_new_tokens = max_tokens;
  request.expected_tokens = 4;
  return request;
}

// The decode workers of the cluster hold 160 and 320 tokens. The second one holds a request for 301
// tokens, because the last token has no KV.
struct TwoSizes : Cluster {
  TwoSizes() {
    core.WorkerLost(kD, now);
    core.WorkerAttached(kD, DecodeOf(kD, 22, 10), now);
    core.WorkerAttached("large", DecodeOf("large", 23, 20), now);
  }
};

TEST_CASE("Dispatcher keeps prompts waiting when the refusal of their upstream may be retried") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  d.Take();
  (*d).Refused({.id = "up", .status = absl::ResourceExhaustedError("full"), .retry_after = absl::Seconds(1)}, d.now);
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

TEST_CASE("Dispatcher traces what it refuses, beside the requests that it accepts") {
  Driven d;
  ClientRequest request = d.Request("r", "abc");
  request.workflow = "w";
  request.agent = "writer";
  REQUIRE(d.Submit(request).ok());
  const absl::Status in_use = d.Submit(request).status();
  CHECK(absl::IsAlreadyExists(in_use));
  request.id = "unknown";
  request.prompt.segments = {Reference{.upstream = "nobody"}};
  const absl::Status unknown = d.Submit(request).status();
  CHECK(absl::IsNotFound(unknown));
  (*d).Refused({.workflow = "w", .status = absl::ResourceExhaustedError("quota")}, d.now);
  (*d).Refused({.id = "elsewhere", .status = absl::ResourceExhaustedError("quota")}, d.now);
  const auto refused = (*d).lives().RefusedOf("w", "", d.now).lives;
  REQUIRE(refused.size() == 3);
  CHECK(refused[0]->outcome.id == "r");
  CHECK(refused[0]->agent == "writer");
  CHECK(refused[0]->outcome.status == in_use);
  CHECK(refused[1]->outcome.status == unknown);
  CHECK(refused[2]->outcome.id.empty());
  const auto lives = (*d).lives().Of("w", "", d.now);
  REQUIRE(lives.size() == 1);
  CHECK_FALSE(lives[0]->stages.over());
}

TEST_CASE("Dispatcher keeps the ended requests of a workflow during a flood of refusals") {
  Driven d;
  ClientRequest request = d.Request("r", "p");
  request.workflow = "w";
  REQUIRE(d.Submit(request).ok());
  d.Take();
  d.Prefilled("r");
  d.Made(d.NameOf("r"), "x", FinishReason::kStop);
  for (int i = 0; i < 10'000; ++i) {
    (*d).Refused({.workflow = i % 2 == 0 ? "w" : absl::StrCat(i), .status = absl::UnavailableError("full")}, d.now);
  }
  CHECK((*d).lives().Of("w", "", d.now).size() == 1);
  const auto refused = (*d).lives().RefusedOf("w", "", d.now);
  CHECK(refused.lives.size() == RefusalLimits{}.of_workflow);
  CHECK((*d).lives().Workflows("", 10'000, d.now).size() <= RefusalLimits{}.all);
}

// --- a max_tokens that no decode worker can ever hold -------------------------------------------

TEST_CASE("RouterCore refuses a max_tokens that no decode worker can hold") {
  TwoSizes c;
  REQUIRE(c.core.Submit(AskFor("fits", 301), c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill fits prefill-1 large"});
  REQUIRE(c.core.Submit(AskFor("r", 302), c.now).ok());
  const std::vector<RouterAction> actions = c.core.TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(CodeAndMessage(actions[0].status) ==
        "INVALID_ARGUMENT: sampling.max_tokens: 302 after a prompt of 20 tokens, limit 301 (KV memory for 321 tokens "
        "of 'm': the largest decode worker has 20 blocks of 16 tokens and the context length 1000); send less, or "
        "leave it out to generate what fits");
}

TEST_CASE("RouterCore accepts what no worker can hold if the client did not ask for it") {
  TwoSizes c;
  RouteRequest request = AskFor("r", 302);
  SECTION("max_tokens is a default") { request.has_max_tokens = false; }
  SECTION("the request generates nothing") { request.prefill_only = true; }
  SECTION("the prompt does not fit, so a worker refuses it") { request.prompt_tokens = 321; }
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core).front().starts_with("prefill r prefill-1"));
}

TEST_CASE("RouterCore lets a request wait while a worker that can hold it may return") {
  TwoSizes c;
  const bool drained = GENERATE(true, false);
  if (drained) {
    c.core.Drain("large", true, c.now);
  } else {
    c.core.WorkerLoaded("large", {.draining = true}, c.now);
    c.core.WorkerLost("large", c.now);
  }
  REQUIRE(c.core.Submit(AskFor("r", 301), c.now).ok());
  CHECK(Take(c.core).empty());
  SECTION("it returns") {
    drained ? c.core.Drain("large", false, c.now) : c.core.WorkerAttached("large", DecodeOf("large", 24, 20), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 large"});
  }
  SECTION("it does not return") {
    c.core.Tick(c.now + absl::Seconds(30));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("a request for more is refused") {
    REQUIRE(c.core.Submit(AskFor("more", 302), c.now).ok());
    CHECK(Take(c.core) == Lines{"end more INVALID_ARGUMENT"});
  }
}

TEST_CASE("RouterCore refuses a waiting request when only a small worker attaches") {
  Cluster c;
  c.core.WorkerLost(kD, c.now);
  RouteRequest request = AskFor("r", 301);
  request.tenant = "t";
  REQUIRE(c.core.Submit(request, c.now).ok());
  request = AskFor("other", 10);
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kD, DecodeOf(kD, 24, 10), c.now);
  CHECK(Take(c.core) == Lines{"end r INVALID_ARGUMENT", "prefill other prefill-1 decode-1"});
}

TEST_CASE("RouterCore refuses max_tokens when a streaming prompt is complete and too long") {
  TwoSizes c;
  RouteRequest request = OpenRequest("r");
  request.has_max_tokens = true;
  request.max_new_tokens = 300;
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core) == Lines{"open r prefill-1 large"});
  const bool fits = GENERATE(true, false);
  c.core.Closed("r", fits ? 21 : 22, 300, c.now);
  CHECK(Take(c.core) ==
        (fits ? Lines{"close r prefill-1 large"} : Lines{"cancel r prefill-1", "end r INVALID_ARGUMENT"}));
  request.id = "hopeless";
  request.max_new_tokens = 321;
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core) == Lines{"end hopeless INVALID_ARGUMENT"});
}

TEST_CASE("RouterCore ends no output that has begun when the worker that could hold it is lost") {
  TwoSizes c;
  REQUIRE(c.core.Submit(AskFor("r", 301), c.now).ok());
  const bool begun = GENERATE(true, false);
  if (begun) {
    REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
    TokenUpdate update;
    update.tokens = {7};
    REQUIRE(c.core.TokensArrived("large", "r", update, c.now));
  }
  Take(c.core);
  c.core.WorkerLost("large", c.now);
  CHECK(Take(c.core) ==
        (begun ? Lines{"prefill r prefill-1 decode-1"} : Lines{"cancel r prefill-1", "end r INVALID_ARGUMENT"}));
}

TEST_CASE("RouterCore moves no request from a drained worker to one that cannot hold it") {
  TwoSizes c;
  REQUIRE(c.core.Submit(AskFor("r", 301), c.now).ok());
  Take(c.core);
  c.core.Drain("large", true, c.now);
  CHECK(Take(c.core).empty());
}

}  // namespace
}  // namespace baton
