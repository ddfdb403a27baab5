#include "router/internal_request.h"

#include <algorithm>

#include "request/priority.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

// Returns the prompt "<before><output of the call><after>".
ClientRequest HintedPrompt(const Driven& d, const std::string& before, const std::string& after = "") {
  ClientRequest prompt = d.Request("", "");
  prompt.prompt.segments.emplace_back(std::vector<TokenId>(before.begin(), before.end()));
  prompt.prompt.segments.emplace_back(Reference{.upstream = "call"});
  if (!after.empty()) prompt.prompt.segments.emplace_back(std::vector<TokenId>(after.begin(), after.end()));
  return prompt;
}

// Starts a call that decodes.
RequestTicket Decoding(Driven& d, const std::string& session = "", const std::string& cache_domain = "t") {
  ClientRequest request = d.Request("call", "ab", /*max_tokens=*/40);
  request.spec.cache_domain = cache_domain;
  request.session = session;
  const auto ticket = d.Submit(request);
  REQUIRE(ticket.ok());
  d.Take();
  d.Prefilled("call");
  d.Take();
  return *ticket;
}

int64_t CountStarts(const Lines& lines, std::string_view start) {
  return std::ranges::count_if(lines, [&](const std::string& line) { return line.starts_with(start); });
}

constexpr const char* kFixed = "0123456789abcdef";

TEST_CASE("Dispatcher prefills a hint whose longer upstream was replaced by a short text") {
  Driven d;
  ClientRequest longer = d.Request("longer", "p", /*max_tokens=*/40);
  longer.spec.cache_domain = "t";
  const auto replaced = d.Submit(longer);
  REQUIRE(replaced.ok());
  d.Take();
  d.Prefilled("longer");
  d.Made(d.NameOf("longer"), absl::StrCat(kFixed, kFixed, "+"), std::nullopt);
  const RequestTicket call = Decoding(d);

  ClientRequest prompt = d.Request("", "");
  prompt.prompt.segments = {Reference{.upstream = "longer", .on_failure = OnFailure::kSubstitute, .substitute = {'-'}},
                            Reference{.upstream = "call"}};
  REQUIRE((*d).AddPrefillHint(call, prompt, d.now).ok());
  CHECK(d.Take().back() == absl::StrCat("prefill-1: open call~3#ab.3 ", kFixed, kFixed, "+"));
  (*d).Cancel(*replaced, d.now);
  d.Made(d.NameOf("call"), "c", FinishReason::kStop);
  CHECK(d.Take().back() == "prefill-1: close call~3#ab.3 -c");
  d.Prefilled("call~3");
  CHECK(d.Take() == Lines{"a prefill hint ends OK"});
}

TEST_CASE("Dispatcher refuses a prefill hint without a reference to its call") {
  Driven d;
  const RequestTicket call = Decoding(d);
  CHECK(absl::IsInvalidArgument((*d).AddPrefillHint(call, d.Request("", kFixed), d.now)));
  CHECK(d.Take().empty());
  CHECK((*d).core().live_requests() == 1);
}

TEST_CASE("Dispatcher runs a prefill hint while its call decodes, for the next request") {
  Driven d;
  const RequestTicket call = Decoding(d);
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed, "!"), d.now).ok());
  CHECK(d.Take() == Lines{"prefill-1: open call~2#ab.2 "});
  d.Made(d.NameOf("call"), "ghijklmnopqrstuv+", std::nullopt);
  CHECK(d.Take().back() == "prefill-1: append call~2#ab.2 0123456789abcdefghijklmnopqrstuv+");
  d.Made(d.NameOf("call"), "w", FinishReason::kStop);
  CHECK(d.Take() == Lines{"t/call says w after 0", "t/call ends OK, 18 tokens", "prefill-1: close call~2#ab.2 w!"});

  ClientRequest next = d.Request("next", absl::StrCat(kFixed, "ghijklmnopqrstuv+w!?"));
  next.spec.cache_domain = "t";
  const auto uncached = [&] { return d.Uncached(next); };
  CHECK(uncached() == 36);
  d.Prefilled("call~2");
  CHECK(d.Take() == Lines{"a prefill hint ends OK"});
  CHECK(uncached() == 36 - 32);
  next.spec.cache_domain = "another";
  CHECK(uncached() == 36);
  CHECK((*d).core().live_requests() == 0);
  // Only the call's output is kept, not the prefill hint's.
  CHECK((*d).graph().counts().kept == 1);
}

TEST_CASE("Dispatcher gives a prefill hint the tenant and session of its call") {
  Driven d;
  ClientRequest request = d.Request("call", "ab");
  request.spec.cache_domain = "t";
  request.spec.tenant = "tenant";
  request.session = "s";
  request.workflow = "w";
  request.deadline = d.now + absl::Seconds(5);
  Request call;
  call.id = "t/call";
  call.asked = request;
  ClientRequest prompt = HintedPrompt(d, "x");
  prompt.spec.cache_domain = "stolen";
  const ClientRequest hint = PrefillHintOf(call, prompt, 7);
  CHECK(hint.id == "call~7");
  CHECK(hint.spec.cache_domain == "t");
  CHECK(hint.spec.tenant == "tenant");
  CHECK(hint.session == "s");
  CHECK(hint.workflow == "w");
  CHECK(hint.deadline == request.deadline);
  CHECK(hint.spec.priority == kLowPriority);
  CHECK(hint.prefill_only);
}

TEST_CASE("Dispatcher ends prefill hints when their call fails") {
  Driven d;
  const RequestTicket call = Decoding(d);
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, "z"), d.now).ok());
  d.Take();
  SECTION("the call is cancelled") { (*d).Cancel(call, d.now); }
  SECTION("the call is detached, and its prefill hints do not keep it alive") { (*d).Detach(call, d.now); }
  SECTION("the decode worker fails the call") {
    (*d).Reported(kD, RequestFailed{d.NameOf("call"), absl::InternalError("broken"), {}}, d.now);
  }
  const Lines lines = d.Take();
  CHECK(std::ranges::count(lines, "prefill-1: cancel call~2#ab.2") == 1);
  CHECK(std::ranges::count(lines, "prefill-1: cancel call~3#ab.3") == 1);
  CHECK(CountStarts(lines, "a prefill hint ends ") == 2);
  CHECK((*d).core().live_requests() == 0);
}

TEST_CASE("Dispatcher keeps a detached call for downstream requests, not for prefill hints") {
  Driven d;
  const RequestTicket call = Decoding(d);
  ClientRequest downstream = d.Request("reader", "");
  downstream.spec.cache_domain = "t";
  downstream.prompt.segments = {Reference{.upstream = "call"}};
  const auto reading = d.Submit(downstream);
  REQUIRE(reading.ok());
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
  (*d).Detach(call, d.now);
  CHECK((*d).core().live_requests() == 3);
  (*d).Cancel(*reading, d.now);
  CHECK((*d).core().live_requests() == 0);
}

TEST_CASE("Dispatcher runs a call as without prefill hints whatever happens to them") {
  Driven d;
  const RequestTicket call = Decoding(d);
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
  d.Take();
  SECTION("a worker fails the prefill hint") {
    (*d).Reported(kP, RequestFailed{d.NameOf("call~2"), absl::InternalError("broken"), {}}, d.now);
    CHECK(std::ranges::count(d.Take(), "a prefill hint ends INTERNAL") == 1);
  }
  SECTION("a worker has no room for the prefill hint, and no other worker is asked") {
    (*d).WorkerAttached("prefill-2", BytesWorker(WorkerRole::kPrefill, "prefill-2", 12), d.now);
    (*d).Reported(kP, RequestFailed{d.NameOf("call~2"), absl::ResourceExhaustedError("full"), absl::Seconds(1)}, d.now);
    const Lines lines = d.Take();
    CHECK(std::ranges::count(lines, "a prefill hint ends RESOURCE_EXHAUSTED") == 1);
    CHECK(CountStarts(lines, "prefill-2") == 0);
  }
  SECTION("the prefill hint exceeds the context length") {
    REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, std::string(60, 'x')), d.now).ok());
    d.Made(d.NameOf("call"), "0123456789", std::nullopt);
    CHECK(std::ranges::count(d.Take(), "a prefill hint ends INVALID_ARGUMENT") == 1);
  }
  d.Made(d.NameOf("call"), "x", FinishReason::kStop);
  CHECK(CountStarts(d.Take(), "t/call ends OK") == 1);
}

TEST_CASE("Dispatcher ends a prefill hint ten seconds after its call") {
  Driven d;
  const RequestTicket call = Decoding(d);
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
  d.Made(d.NameOf("call"), "x", FinishReason::kStop);
  d.Take();
  CHECK((*d).NextTick() == d.now + absl::Seconds(10));
  d.now += absl::Seconds(10);
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"prefill-1: cancel call~2#ab.2", "a prefill hint ends DEADLINE_EXCEEDED"});
}

TEST_CASE("Dispatcher refuses a prefill hint when its call ended or waits, or at a limit") {
  const auto refused = [](Driven& d, const RequestTicket& call) {
    const int32_t live = (*d).core().live_requests();
    const absl::Status status = (*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now);
    CHECK((*d).core().live_requests() == live);
    return status;
  };
  SECTION("the call has ended, and another call has its name now") {
    Driven d;
    const RequestTicket call = Decoding(d);
    d.Made(d.NameOf("call"), "x", FinishReason::kStop);
    Decoding(d);
    CHECK(absl::IsNotFound(refused(d, call)));
  }
  SECTION("the call's session waits for a slot") {
    Driven d(false, SessionLimits{.sessions = 1});
    Decoding(d, "s");
    ClientRequest request = d.Request("waits", "ab");
    request.session = "t";
    const auto ticket = d.Submit(request);
    REQUIRE(ticket.ok());
    CHECK(absl::IsResourceExhausted(refused(d, *ticket)));
  }
  SECTION("the call waits for a worker") {
    Driven d;
    (*d).WorkerLost(kP, d.now);
    const auto ticket = d.Submit(d.Request("waits", "ab"));
    REQUIRE(ticket.ok());
    CHECK(absl::IsResourceExhausted(refused(d, *ticket)));
  }
  SECTION("the call's tenant has 64 prefill hints") {
    Driven d;
    const RequestTicket call = Decoding(d);
    for (int i = 0; i < 64; ++i) REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
    CHECK(absl::IsResourceExhausted(refused(d, call)));
    d.Take();
    d.Made(d.NameOf("call"), "x", FinishReason::kStop);
    d.Take();
    d.Prefilled("call~2");
    d.Take();
    const RequestTicket anothers = Decoding(d, "", "u");
    CHECK((*d).AddPrefillHint(anothers, HintedPrompt(d, kFixed), d.now).ok());
    const RequestTicket next = Decoding(d);  // one of the 64 prefill hints has ended
    CHECK((*d).AddPrefillHint(next, HintedPrompt(d, kFixed), d.now).ok());
    CHECK(absl::IsResourceExhausted(refused(d, next)));
  }
  SECTION("no worker serves the prefill hint's model") {
    Driven d;
    const RequestTicket call = Decoding(d);
    ServedModel other = ByteModel("other");
    ClientRequest prompt = HintedPrompt(d, kFixed);
    prompt.served = &other;
    CHECK(absl::IsUnavailable((*d).AddPrefillHint(call, prompt, d.now)));
    CHECK((*d).core().live_requests() == 1);
  }
  SECTION("half of the router's request slots are used") {
    Driven d(false, {}, RouterLimits{.live_requests = 4});
    const RequestTicket call = Decoding(d);
    REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
    CHECK(absl::IsResourceExhausted(refused(d, call)));
  }
}

TEST_CASE("Dispatcher admits prefill hints with their active session") {
  Driven d(false, SessionLimits{.sessions = 1});
  const RequestTicket call = Decoding(d, "s");
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, kFixed), d.now).ok());
  CHECK(d.Take() == Lines{"prefill-1: open call~2#ab.2 "});
  d.Made(d.NameOf("call"), "x", FinishReason::kStop);
  d.Take();
  d.Prefilled("call~2");
  CHECK(d.Take() == Lines{"a prefill hint ends OK"});
  CHECK((*d).core().live_requests() == 0);
}

TEST_CASE("SessionGate ignores prefill hints in its statistics") {
  Driven d(false, SessionLimits{});
  const RequestTicket call = Decoding(d, "s");
  REQUIRE((*d).gate()->Latest(1).at(0).blocks == 0);
  REQUIRE((*d).AddPrefillHint(call, HintedPrompt(d, std::string(40, 'x')), d.now).ok());
  CHECK((*d).core().registry().workers().at(kP).prompt_tokens == 0);
  d.Made(d.NameOf("call"), "x", FinishReason::kStop);
  CHECK((*d).core().registry().workers().at(kP).prompt_tokens == 0);
  d.Take();
  d.Prefilled("call~2");
  CHECK(d.Take() == Lines{"a prefill hint ends OK"});
  CHECK((*d).gate()->Latest(1).at(0).blocks == 0);
}

TEST_CASE("Dispatcher includes prefill hints in the timeline of a workflow") {
  Driven d;
  ClientRequest request = d.Request("call", "ab");
  request.workflow = "w";
  const auto call = d.Submit(request);
  REQUIRE(call.ok());
  REQUIRE((*d).AddPrefillHint(*call, HintedPrompt(d, kFixed), d.now).ok());
  const Timeline::Lives lives = (*d).lives().Of("w", "", d.now);
  REQUIRE(lives.size() == 2);
  const auto hint = std::ranges::find_if(lives, [](const auto& life) { return life->outcome.prefill_only; });
  REQUIRE(hint != lives.end());
  CHECK((*hint)->outcome.id == "call~2");
  CHECK((*hint)->upstreams == std::vector<RequestId>{"call"});
}

}  // namespace
}  // namespace baton
