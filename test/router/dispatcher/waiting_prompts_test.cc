// Requests that wait for outputs take no slot that their upstream requests need.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tenants/tenant_quotas.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

// Submits a request whose prompt is "c" and the outputs of announced requests.
absl::StatusOr<RequestTicket> SubmitDownstream(Driven& d, const std::string& id, const std::vector<std::string>& of,
                                               const std::string& tenant = "", int32_t most = 0) {
  ClientRequest down = d.Request(id, "");
  down.spec.tenant = tenant;
  down.most_requests = most;
  down.prompt.segments = {std::vector<TokenId>{'c'}};
  for (const std::string& up : of) down.prompt.segments.emplace_back(Reference{.upstream = up, .announced = true});
  return d.Submit(down);
}

// Submits a request with a complete prompt.
absl::StatusOr<RequestTicket> SubmitComplete(Driven& d, const std::string& id, const std::string& tenant = "",
                                             int32_t most = 0) {
  ClientRequest request = d.Request(id, "ab");
  request.spec.tenant = tenant;
  request.most_requests = most;
  return d.Submit(request);
}

void Finish(Driven& d, const std::string& id) {
  d.Take();
  d.Prefilled(id);
  d.Made(d.NameOf(id), "x", FinishReason::kStop);
}

TEST_CASE("Dispatcher runs an upstream request when its downstream requests came first") {
  Driven d(false, {}, RouterLimits{.live_requests = 4, .waiting_prompts = 5});
  for (const char* id : {"d1", "d2", "d3", "d4", "d5"}) REQUIRE(SubmitDownstream(d, id, {"up"}).ok());
  CHECK(SubmitDownstream(d, "d6", {"up"}).status().message() ==
        "overloaded: 5 requests wait for outputs or for their session, limit 5 (--max-waiting)");
  REQUIRE(SubmitComplete(d, "up").ok());
  Finish(d, "up");
  // Four of the five prompts take the slots. The fifth one is computed, and closed when one ends.
  const Lines lines = d.Take();
  CHECK(std::ranges::count_if(lines, [](const auto& line) { return absl::StrContains(line, ": close d"); }) == 4);
  CHECK(absl::StrContains(lines.back(), ": append d5#"));
  CHECK((*d).core().slots().counts() == RequestSlots::Counts{4, 1, 1, (*d).core().slots().counts().waiting_bytes});
  CHECK(absl::IsResourceExhausted(SubmitComplete(d, "late").status()));
  d.Prefilled("d2");
  d.Made(d.NameOf("d2"), "x", FinishReason::kStop);
  CHECK(d.Take().back() == absl::StrCat("prefill-1: close ", d.NameOf("d5"), " "));
  for (const char* id : {"d1", "d3", "d4", "d5"}) Finish(d, id);
  d.Take();
  CHECK((*d).core().slots().counts() == RequestSlots::Counts{});
}

TEST_CASE("Dispatcher runs a map-reduce of 3 + 1 when the tenant's quota is 3") {
  Driven d;
  const bool reducer_first = GENERATE(true, false);
  const auto submit_reducer = [&] { REQUIRE(SubmitDownstream(d, "reduce", {"m0", "m1", "m2"}, "t", 3).ok()); };
  if (reducer_first) submit_reducer();
  for (const char* id : {"m0", "m1", "m2"}) REQUIRE(SubmitComplete(d, id, "t", 3).ok());
  if (!reducer_first) submit_reducer();
  CHECK(IsQuotaRefusal(SubmitComplete(d, "m3", "t", 3).status()));
  for (const char* id : {"m0", "m1", "m2", "reduce"}) Finish(d, id);
  CHECK(d.Take().back() == "reduce ends OK, 1 tokens");
}

TEST_CASE("Dispatcher starts the request of an admitted session only when it has a slot") {
  Driven d(false, SessionLimits{.sessions = 1, .shortest_linger = {}, .longest_linger = {}},
           RouterLimits{.live_requests = 2});
  const auto submit = [&](const std::string& id, const std::string& session) {
    ClientRequest request = d.Request(id, "ab");
    request.session = session;
    REQUIRE(d.Submit(request).ok());
  };
  submit("first", "s1");
  submit("second", "s2");  // waits for its session, without a slot
  submit("other", "");
  REQUIRE(SubmitDownstream(d, "down", {"first"}).ok());
  Finish(d, "first");
  const auto begins = [&](const char* what) {
    const Lines lines = d.Take();
    return std::ranges::any_of(lines, [&](const std::string& line) { return absl::StrContains(line, what); });
  };
  CHECK(begins(": close down#"));  // in the slot of "first"
  (*d).Tick(d.now);                // admits session "s2"
  CHECK_FALSE(begins(": prefill second#"));
  Finish(d, "other");
  CHECK(begins(": prefill second#"));
}

TEST_CASE("Dispatcher holds a tenant to its quota when its requests waited for one output") {
  Driven d;
  for (int i = 0; i < 100; ++i) REQUIRE(SubmitDownstream(d, absl::StrCat("d", i), {"up"}, "t", 3).ok());
  REQUIRE(SubmitComplete(d, "up", "t", 3).ok());
  Finish(d, "up");
  d.Take();
  CHECK((*d).core().slots().counts().running == 3);
  CHECK((*d).core().slots().counts().queued == 97);
  CHECK(SubmitComplete(d, "r", "other", 3).ok());
  (*d).EndAll(d.now);
  d.Take();
  CHECK((*d).core().slots().counts() == RequestSlots::Counts{});
}

TEST_CASE("Dispatcher ends a prompt that waits for a slot by cancel and by deadline") {
  Driven d(false, {}, RouterLimits{.live_requests = 1});
  REQUIRE(SubmitDownstream(d, "a", {"up"}).ok());
  const auto b = SubmitDownstream(d, "b", {"up"});
  REQUIRE(b.ok());
  ClientRequest late = d.Request("c", "");
  late.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  late.deadline = d.now + absl::Seconds(5);
  REQUIRE(d.Submit(late).ok());
  REQUIRE(SubmitDownstream(d, "d", {"up"}).ok());
  REQUIRE(SubmitComplete(d, "up").ok());
  Finish(d, "up");
  d.Take();
  REQUIRE((*d).core().slots().counts().queued == 3);
  (*d).Cancel(*b, d.now);
  CHECK(d.Take() == Lines{"prefill-1: cancel " + d.NameOf("b"), "b ends CANCELLED, 0 tokens"});
  (*d).Tick(d.now += absl::Seconds(5));
  CHECK(d.Take() == Lines{"prefill-1: cancel " + d.NameOf("c"), "c ends DEADLINE_EXCEEDED, 0 tokens"});
  d.Prefilled("a");
  d.Made(d.NameOf("a"), "x", FinishReason::kStop);
  CHECK(d.Take().back() == absl::StrCat("prefill-1: close ", d.NameOf("d"), " "));
  Finish(d, "d");
  CHECK(d.Take().back() == "d ends OK, 1 tokens");
}

TEST_CASE("Dispatcher starts a prompt that waits for a slot at another worker when its own is lost") {
  Driven d(false, {}, RouterLimits{.live_requests = 1});
  for (const char* id : {"a", "b"}) REQUIRE(SubmitDownstream(d, id, {"up"}).ok());
  REQUIRE(SubmitComplete(d, "up").ok());
  Finish(d, "up");
  d.Take();
  (*d).WorkerLost(kP, d.now);
  d.AttachPrefill(/*host_blocks=*/0);
  const Lines again = d.Take();
  CHECK(again.back() == absl::StrCat("prefill-1: open ", d.NameOf("b"), " cx"));
  Finish(d, "a");
  CHECK(d.Take().back() == absl::StrCat("prefill-1: close ", d.NameOf("b"), " "));
  Finish(d, "b");
  CHECK(d.Take().back() == "b ends OK, 1 tokens");
}

// Returns the tokens of prompt and output of all charges since the last call, such as "2+1".
Lines TakeCharges(Driven& d) {
  d.Take();
  Lines lines;
  for (const RequestCharge& charge : std::exchange(d.charges, {})) {
    lines.push_back(absl::StrCat(charge.prompt_tokens, "+", charge.expected_tokens));
  }
  return lines;
}

TEST_CASE("Dispatcher charges a prompt when it is complete and its output when it has a slot") {
  Driven d(false, {}, RouterLimits{.live_requests = 1});
  for (const char* id : {"a", "b"}) REQUIRE(SubmitDownstream(d, id, {"up"}).ok());
  REQUIRE(SubmitComplete(d, "up").ok());
  CHECK(TakeCharges(d) == Lines{"0+0", "0+0"});
  Finish(d, "up");
  // The output of one is expected to be as short as that of "up". The other one waits for a slot.
  CHECK(TakeCharges(d) == Lines{"2+1", "2+0"});
  Finish(d, "a");
  CHECK(TakeCharges(d) == Lines{"2+1"});
}

TEST_CASE("Dispatcher charges a prompt at once when all of its outputs are complete") {
  Driven d;
  REQUIRE(SubmitComplete(d, "up").ok());
  Finish(d, "up");
  CHECK(TakeCharges(d) == Lines{});
  REQUIRE(SubmitDownstream(d, "a", {"up"}).ok());
  CHECK(TakeCharges(d) == Lines{"2+1"});
}

TEST_CASE("Dispatcher charges a streaming prompt as its tokens become known") {
  Driven d;
  REQUIRE(SubmitDownstream(d, "a", {"up"}).ok());
  REQUIRE(SubmitComplete(d, "up").ok());
  TakeCharges(d);
  d.Prefilled("up");
  d.Made(d.NameOf("up"), std::string(40, 'x'), {});
  CHECK(TakeCharges(d) == Lines{"33+0"});  // whole KV blocks, and one token
}

TEST_CASE("The bytes of a waiting prompt include its labels and its context") {
  ClientRequest request;
  Reference reference{.upstream = "up"};
  request.prompt.segments = {reference};
  const int64_t plain = WaitingBytes(request);
  reference.before = {std::vector<TokenId>(10), AgentName{}};
  reference.after = {std::vector<TokenId>(20)};
  request.prompt.segments = {reference};
  const int64_t labelled = WaitingBytes(request);
  CHECK(labelled >= plain + 120);  // four bytes for each token
  request.context.expected.resize(100);
  CHECK(WaitingBytes(request) == labelled + 400);
}

TEST_CASE("Dispatcher ends a prompt that outgrows the memory of waiting prompts") {
  Driven d;
  const auto waiting_bytes = [&] { return (*d).core().slots().counts().waiting_bytes; };
  REQUIRE(SubmitDownstream(d, "small", {"up", "up2"}).ok());
  const int64_t bytes = waiting_bytes();
  // A long name stands for the prompts of other requests. It leaves 20 bytes.
  ClientRequest other = d.Request("other", "");
  other.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = "no", .announced = true},
                           Reference{.upstream = "none", .announced = true}};
  other.workflow = std::string(static_cast<size_t>((int64_t{256} << 20) - 2 * bytes - 20), 'w');
  REQUIRE(d.Submit(other).ok());
  ClientRequest more = other;
  more.id = "more!";
  more.workflow.clear();
  CHECK(absl::StrContains(d.Submit(more).status().message(), "prompts that wait for outputs have"));
  REQUIRE(d.Submit(d.Request("up", "ab", 40)).ok());
  d.Take();
  d.Prefilled("up");
  d.Made(d.NameOf("up"), std::string(20, 'x'), std::nullopt);
  CHECK(std::ranges::count(d.Take(), "small ends RESOURCE_EXHAUSTED, 0 tokens") == 1);
  (*d).EndAll(d.now);
  d.Take();
  CHECK(waiting_bytes() == 0);
}

TEST_CASE("Dispatcher counts requests of waiting sessions in no slot until they are admitted") {
  Driven d(false, SessionLimits{.sessions = 1}, RouterLimits{.live_requests = 2});
  const auto submit = [&](const std::string& id, const std::string& session, const std::string& of) {
    ClientRequest request = d.Request(id, of.empty() ? "ab" : "");
    request.session = session;
    request.spec.tenant = "t";
    request.most_requests = 1;
    if (!of.empty()) request.prompt.segments = {Reference{.upstream = of, .announced = true}};
    return d.Submit(request);
  };
  REQUIRE(submit("down", "active", "up").ok());
  // The request of a waiting session does not take the tenant's only slot.
  REQUIRE(submit("other", "waits", "").ok());
  CHECK((*d).core().slots().counts().running == 0);
  REQUIRE(submit("up", "", "").ok());
  CHECK(IsQuotaRefusal(submit("more", "active", "").status()));
  Finish(d, "up");
  Finish(d, "down");
  (*d).Tick(d.now += absl::Minutes(2));
  Finish(d, "other");
  CHECK(d.Take().back() == "other ends OK, 1 tokens");
  CHECK((*d).core().slots().counts() == RequestSlots::Counts{});
}

}  // namespace
}  // namespace baton
