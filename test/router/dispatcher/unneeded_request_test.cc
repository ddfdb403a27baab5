// Live requests whose output no other request needs.
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

}  // namespace
}  // namespace baton
