// Requests whose output no other request needs, and requests that are submitted again.
#include <algorithm>
#include <vector>

#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher cancels a request when no request needs its output") {
  Driven d;
  ClientRequest request = d.Request("up", "ab");
  request.keep = GENERATE(false, true);
  REQUIRE(d.Submit(request).ok());
  ClientRequest downstream = d.Request("down", "");
  downstream.prompt.segments = {Reference{.upstream = "up"}};
  const auto down = d.Submit(downstream);
  d.Take();
  d.Prefilled("up");
  d.Made(d.NameOf("up"), "y", std::nullopt);
  (*d).Cancel(*down, d.now);
  const Lines lines = d.Take();
  CHECK(std::ranges::count(lines, "up ends CANCELLED, 1 tokens") == (request.keep ? 0 : 1));
  CHECK(std::ranges::count(lines, "decode-1: cancel up#ab.1") == (request.keep ? 0 : 1));
}

TEST_CASE("Dispatcher does not cancel a prefill-only request that no request needs") {
  Driven d;
  ClientRequest request = d.Request("up", "ab");
  request.prefill_only = true;
  REQUIRE(d.Submit(request).ok());
  ClientRequest downstream = d.Request("down", "");
  downstream.prompt.segments = {Reference{.upstream = "up"}};
  const auto down = d.Submit(downstream);
  (*d).Cancel(*down, d.now);
  CHECK((*d).core().live_requests() == 1);
}

TEST_CASE("Dispatcher cancels no upstream of a request that it refuses") {
  Driven d(/*shortest_first=*/false, {}, {.live_requests = 1, .waiting_prompts = 1});
  REQUIRE(d.Submit(d.Request("up", "ab")).ok());
  ClientRequest downstream = d.Request("down", "");
  downstream.prompt.segments = {Reference{.upstream = "never", .announced = true}};
  REQUIRE(d.Submit(downstream).ok());
  ClientRequest refused = d.Request("refused", "");
  refused.prompt.segments = {Reference{.upstream = "up"}};
  CHECK(absl::IsResourceExhausted(d.Submit(refused).status()));
  CHECK((*d).core().live_requests() == 2);
}

TEST_CASE("Dispatcher cancels a detached request when no request waits for its output") {
  Driven d;
  ClientRequest kept = d.Request("up", "ab");
  kept.keep = true;
  const auto up = d.Submit(kept);
  REQUIRE(up.ok());
  std::vector<RequestTicket> downstreams;
  for (const char* id : {"one", "two"}) {
    ClientRequest downstream = d.Request(id, "");
    downstream.prompt.segments = {Reference{.upstream = "up"}};
    downstreams.push_back(*d.Submit(downstream));
  }
  d.Take();
  (*d).Detach(*up, d.now);
  (*d).Cancel(downstreams[0], d.now);
  CHECK((*d).core().live_requests() == 2);
  (*d).Cancel(downstreams[1], d.now);
  CHECK((*d).core().live_requests() == 0);
  const Lines lines = d.Take();
  CHECK(std::ranges::count(lines, "prefill-1: cancel up#ab.1") == 1);
}

// Runs a request of the workflow "w" until it has generated `text`.
void Generate(Driven& d, const RequestId& id, const std::string& text, std::optional<FinishReason> finish) {
  ClientRequest request = d.Request(id, "ab", 40);
  request.workflow = "w";
  REQUIRE(d.Submit(request).ok());
  d.Take();
  d.Prefilled(id);
  d.Made(d.NameOf(id), text, finish);
}

TEST_CASE("Dispatcher gives a waiting prompt the output of the attempt that succeeds") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.workflow = "w";
  down.prompt.segments = {std::vector<TokenId>{'<'}, Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  Generate(d, "up", "0123456789abcdefghij", std::nullopt);
  CHECK(std::ranges::count(d.Take(), "prefill-1: append down#ab.1 <0123456789abcdef") == 1);
  (*d).Reported(kD, RequestFailed{d.NameOf("up"), absl::UnavailableError("broken"), {}, false}, d.now);
  Lines lines = d.Take();
  CHECK(std::ranges::count(lines, "up ends UNAVAILABLE, 20 tokens") == 1);
  CHECK((*d).core().live_requests() == 1);

  d.now += absl::Seconds(5);
  Generate(d, "up", "xyz", FinishReason::kStop);
  lines = d.Take();
  CHECK(std::ranges::count(lines, "prefill-1: close down#ab.1 <xyz") == 1);
  std::vector<int32_t> attempts;
  for (const auto& life : (*d).lives().Of("w", "", d.now)) {
    if (life->outcome.id == "up") attempts.push_back(life->outcome.attempt);
    if (life->outcome.id == "down") CHECK(life->upstream_attempts == std::vector<int32_t>{2});
  }
  CHECK(attempts == std::vector<int32_t>{1, 2});
}

TEST_CASE("Dispatcher ends a waiting prompt when no further attempt comes") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  Generate(d, "up", "y", std::nullopt);
  (*d).Reported(kD, RequestFailed{d.NameOf("up"), absl::UnavailableError("broken"), {}, false}, d.now);
  // The client received a retry delay of 1 s.
  d.now += absl::Seconds(1) + AgentLimits().wait_retry - absl::Nanoseconds(1);
  (*d).Tick(d.now);
  CHECK((*d).core().live_requests() == 1);
  d.now += absl::Nanoseconds(1);
  (*d).Tick(d.now);
  CHECK(std::ranges::count(d.Take(), "down ends ABORTED, 0 tokens") == 1);
}

}  // namespace
}  // namespace baton
