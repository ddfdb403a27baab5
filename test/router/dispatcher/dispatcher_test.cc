#include "text/tokenizer_fixture.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher completes a downstream prompt when its upstream request ends") {
  Driven d;
  REQUIRE(d.Submit(d.Request("up", "ab")).ok());
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = "up"}};
  REQUIRE(d.Submit(down).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill up#ab.1 ab", "prefill-1: open down#ab.2 "});
  d.Prefilled("up");
  CHECK(d.Take() == Lines{"decode-1: decode up#ab.1 ab"});
  d.now += absl::Seconds(1);
  d.Made(d.NameOf("up"), "x", std::nullopt);
  d.now += absl::Seconds(2);
  d.Made(d.NameOf("up"), "y", FinishReason::kStop);
  CHECK(d.Take() == Lines{"up says x after 1s, first", "up says y after 2s", "up ends OK, 2 tokens",
                          "prefill-1: close down#ab.2 cxy"});
  // The wait for the first token is measured from this time, not from the request's arrival.
  d.Prefilled("down");
  d.now += absl::Seconds(1);
  d.Made(d.NameOf("down"), "z", FinishReason::kStop);
  CHECK(d.Take() == Lines{"decode-1: decode down#ab.2 cxy", "down says z after 1s, first", "down ends OK, 1 tokens"});
}

TEST_CASE("Dispatcher reports the first kMostUpstreams upstreams and counts the rest") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.workflow = "w";
  for (int i = 0; i < 70; ++i) {
    down.prompt.segments.emplace_back(Reference{.upstream = absl::StrCat("up", i), .announced = true});
  }
  REQUIRE(d.Submit(down).ok());
  const Timeline::Lives lives = (*d).lives().Of("w", "", d.now);
  REQUIRE(lives.size() == 1);
  CHECK(lives[0]->upstreams.size() == kMostUpstreams);
  CHECK(lives[0]->upstreams.back() == "up63");
  CHECK(lives[0]->upstreams_omitted == 6);
}

TEST_CASE("Dispatcher lists the workflows of a cache domain, the latest first") {
  Driven d;
  const auto submit = [&d](const std::string& id, const std::string& workflow, const std::string& cache_domain) {
    ClientRequest request = d.Request(id, "x");
    request.workflow = workflow;
    request.spec.cache_domain = cache_domain;
    REQUIRE(d.Submit(request).ok());
    d.now += absl::Seconds(1);
  };
  const auto listed = [&d](const std::string& cache_domain, size_t most = 9) {
    std::string text;
    for (const WorkflowView& view : (*d).lives().Workflows(cache_domain, most, d.now)) {
      absl::StrAppend(&text, view.name, " ", view.requests, "/", view.live, " ",
                      absl::FormatDuration(d.now - view.latest), "; ");
    }
    return text;
  };
  CHECK(listed("t").empty());
  submit("a", "one", "t");
  submit("b", "two", "t");
  submit("c", "one", "t");
  submit("d", "other", "");
  CHECK(listed("t") == "one 2/2 2s; two 1/1 3s; ");
  CHECK(listed("t", 1) == "one 2/2 2s; ");
  CHECK(listed("") == "other 1/1 1s; ");
  (*d).EndAll(d.now);
  CHECK(listed("t") == "one 2/0 2s; two 1/0 3s; ");
  d.now += absl::Minutes(10);
  CHECK(listed("t").empty());
}

TEST_CASE("Dispatcher reports cached tokens of decoded and prefill-only requests") {
  Driven d;
  for (const bool prefill_only : {false, true}) {
    ClientRequest request = d.Request(prefill_only ? "only" : "whole", std::string(40, 'x'));
    request.workflow = request.id;
    request.prefill_only = prefill_only;
    REQUIRE(d.Submit(request).ok());
    d.Take();
    PrefillDone done;
    done.request_id = d.NameOf(request.id);
    done.decode_incarnation = Incarnation(22);
    // Whole blocks, or all tokens but the last.
    done.computed_tokens = prefill_only ? 16 : 3;
    done.cached_tokens = 12;
    done.shared_tokens = 4;
    done.held_tokens = prefill_only ? 0 : 20;
    (*d).Reported(kP, done, d.now);
    const Timeline::Lives lives = (*d).lives().Of(request.id, "", d.now);
    REQUIRE(lives.size() == 1);
    CHECK(lives[0]->outcome.cached_tokens == (prefill_only ? 16 : 36));
  }
}

TEST_CASE("Dispatcher ignores reports under the old name when a request is placed again") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = "up", .announced = true}};
  REQUIRE(d.Submit(down).ok());
  CHECK(d.Take() == Lines{"prefill-1: open down#ab.1 "});
  const RequestId old = d.NameOf("down");
  (*d).WorkerLost(kP, d.now);
  (*d).WorkerAttached(kP, BytesWorker(WorkerRole::kPrefill, kP, 12), d.now);
  CHECK(d.Take() == Lines{"prefill-1: open down#ab.2 "});
  (*d).Reported(kP, RequestFailed{old, absl::InternalError("late"), absl::ZeroDuration()}, d.now);
  CHECK(d.Take().empty());
  (*d).Reported(kP, RequestFailed{d.NameOf("down"), absl::InternalError("broken"), absl::ZeroDuration()}, d.now);
  CHECK(d.Take() == Lines{"down ends INTERNAL, 0 tokens"});
}

TEST_CASE("Dispatcher resets the stages of a request that is placed again") {
  Driven d;
  ClientRequest request = d.Request("r", "ab");
  request.workflow = "w";
  REQUIRE(d.Submit(request).ok());
  d.Take();
  d.Prefilled("r");
  d.Take();
  d.now += absl::Seconds(1);
  (*d).WorkerLost(kD, d.now);
  CHECK(d.Take().empty());
  CHECK((*d).lives().Of("w", "", d.now).at(0)->stages.placed == absl::InfiniteFuture());
  CHECK((*d).lives().Of("w", "", d.now).at(0)->stages.prefilled == absl::InfiniteFuture());
  d.now += absl::Seconds(1);
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.2 ab"});
  CHECK((*d).lives().Of("w", "", d.now).at(0)->stages.placed == d.now);
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: decode r#ab.2 ab"});
}

TEST_CASE("Dispatcher passes on the answer of a model that thinks") {
  Driven d;
  d.LetModelThink();
  REQUIRE(d.Submit(d.Request("up", "x<think>", 20)).ok());
  ClientRequest down = d.Request("down", "");
  const bool with_reasoning = GENERATE(false, true);
  down.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = "up", .with_reasoning = with_reasoning}};
  REQUIRE(d.Submit(down).ok());
  d.Take();
  d.Prefilled("up");
  d.Made(d.NameOf("up"), "hm</think>yes", FinishReason::kStop);
  d.Take();
  const std::string prompt = with_reasoning ? "chm</think>yes" : "cyes";
  CHECK(TextOf(d.appended) == prompt);
}

TEST_CASE("Dispatcher holds no worker when a complete prompt has no decode worker") {
  Driven d;
  const auto up = d.Run("up", "ab", {});
  ClientRequest down = d.Request("down", "");
  down.workflow = "w";
  down.prompt.segments = {std::vector<TokenId>{'c'},
                          Reference{.upstream = "up", .on_failure = OnFailure::kSubstitute, .substitute = {'x'}}};
  REQUIRE(d.Submit(down).ok());
  REQUIRE((*d).lives().Of("w", "", d.now).at(0)->stages.placed == d.now);
  (*d).WorkerLost(kD, d.now);
  (*d).Cancel(up, d.now);
  CHECK((*d).lives().Of("w", "", d.now).at(0)->stages.placed == absl::InfiniteFuture());
  d.Take();
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 23), d.now += absl::Seconds(1));
  CHECK(d.Take() == Lines{"prefill-1: prefill down#ab.3 cx"});
  CHECK((*d).lives().Of("w", "", d.now).at(0)->stages.placed == d.now);
}

TEST_CASE("Dispatcher sends the tenant with a prefill job") {
  Driven d(false, {}, RouterLimits{.live_requests = 3});
  ClientRequest request = d.Request("r", "ab");
  request.spec.tenant = "team";
  REQUIRE(d.Submit(request).ok());
  const auto actions = (*d).TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(std::get<PrefillJob>(std::get<WorkerCommand>(actions[0]).what).spec.tenant == "team");
  request.id = "s";
  CHECK(d.Submit(request).ok());
  request.id = "t";
  CHECK(absl::IsResourceExhausted(d.Submit(request).status()));
  request.spec.tenant = "another";
  CHECK(d.Submit(request).ok());
}

TEST_CASE("Dispatcher cancels by ticket only the request that has it") {
  Driven d;
  const auto first = d.Submit(d.Request("r", "ab"));
  REQUIRE(first.ok());
  CHECK(absl::IsAlreadyExists(d.Submit(d.Request("r", "cd")).status()));
  (*d).Cancel(*first, d.now);
  REQUIRE(d.Submit(d.Request("r", "ef")).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.1 ab", "prefill-1: cancel r#ab.1", "decode-1: cancel r#ab.1",
                          "r ends CANCELLED, 0 tokens", "prefill-1: prefill r#ab.2 ef"});
  (*d).Cancel(*first, d.now);
  CHECK(d.Take().empty());
}

TEST_CASE("Dispatcher sends arrival offsets only under shortest-job-first") {
  for (const bool shortest_first : {false, true}) {
    CAPTURE(shortest_first);
    Driven d(shortest_first);
    REQUIRE(d.Submit(d.Request("long", "ab", 40)).ok());
    REQUIRE(d.Submit(d.Request("short", "ab", 4)).ok());
    d.Take();
    REQUIRE(d.arrival_offsets.size() == 2);
    if (shortest_first) {
      CHECK(d.arrival_offsets[0] > d.arrival_offsets[1]);
      CHECK(d.arrival_offsets[1] > absl::ZeroDuration());
    } else {
      CHECK(d.arrival_offsets == std::vector(2, absl::ZeroDuration()));
    }
  }
}

TEST_CASE("Dispatcher leaves nothing behind when a request is refused") {
  Driven d;
  ClientRequest unknown = d.Request("r", "");
  unknown.prompt.segments = {Reference{.upstream = "nobody"}};
  CHECK(absl::IsNotFound(d.Submit(unknown).status()));
  ClientRequest big = d.Request("r", "", 64);
  big.prompt.segments = {std::vector<TokenId>{'a'}};
  CHECK(absl::IsInvalidArgument(d.Submit(big).status()));
  CHECK(d.Take().empty());
  REQUIRE(d.Submit(d.Request("r", "ab")).ok());
  CHECK(d.Take().size() == 1);
  (*d).EndAll(d.now);
  CHECK(d.Take() == Lines{"prefill-1: cancel r#ab.1", "decode-1: cancel r#ab.1", "r ends UNAVAILABLE, 0 tokens"});
}

TEST_CASE("Dispatcher separates requests with one name in different cache domains") {
  Driven d;
  ClientRequest ours = d.Request("r", "ab"), theirs = d.Request("r", "cd");
  theirs.spec.cache_domain = "tenant";
  REQUIRE(d.Submit(ours).ok());
  const auto ticket = d.Submit(theirs);
  REQUIRE(ticket.ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.1 ab", "prefill-1: prefill r#ab.2 cd"});
  const absl::Status twice = d.Submit(theirs).status();
  CHECK(absl::IsAlreadyExists(twice));
  CHECK(twice.message().find("tenant") == absl::string_view::npos);
  ClientRequest down = d.Request("down", "");
  down.spec.cache_domain = "third";
  down.prompt.segments = {Reference{.upstream = "r"}};
  CHECK(absl::IsNotFound(d.Submit(down).status()));
  (*d).Cancel(*ticket, d.now);
  CHECK(d.Take() == Lines{"prefill-1: cancel r#ab.2", "decode-1: cancel r#ab.2", "tenant/r ends CANCELLED, 0 tokens"});
}

TEST_CASE("Dispatcher completes a prompt at once when its upstreams have ended") {
  Driven d;
  d.Run("good", "xy", FinishReason::kStop);
  const RequestTicket failed = d.Run("failed", std::string(20, 'f'), std::nullopt);
  (*d).Cancel(failed, d.now);
  d.Take();
  const Reference substitute{
      .upstream = "failed", .on_failure = OnFailure::kSubstitute, .substitute = std::vector<TokenId>{'s'}};
  ClientRequest one = d.Request("one", "");
  one.prompt.segments = {std::vector<TokenId>{'a'}, Reference{.upstream = "good"}, std::vector<TokenId>{'c'},
                         substitute};
  REQUIRE(d.Submit(one).ok());
  ClientRequest two = d.Request("two", "");
  two.prompt.segments = {substitute, std::vector<TokenId>{'+'}, substitute};
  REQUIRE(d.Submit(two).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill one#ab.3 axycs", "prefill-1: prefill two#ab.4 s+s"});
}

TEST_CASE("Dispatcher cancels a committed hand-off when its request has ended") {
  Driven driven;
  const auto ticket = driven.Submit(driven.Request("r", "abc"));
  REQUIRE(ticket.ok());
  driven.Take();
  (*driven).Cancel(*ticket, driven.now);
  driven.Take();
  driven.Prefilled("r");
  CHECK(driven.Take() == Lines{"decode-1: cancel r#ab.1"});
}

// Starts a request of a session, with a prompt of 3 tokens, that decodes.
RequestTicket Talk(Driven& driven, const RequestId& id, const std::string& tenant = "") {
  ClientRequest request = driven.Request(id, "abc", 40);
  request.session = "s";
  request.spec.tenant = tenant;
  request.spec.cache_domain = "tenant";
  const auto ticket = driven.Submit(std::move(request));
  REQUIRE(ticket.ok());
  driven.Take();
  driven.Prefilled(id);
  driven.Take();
  return *ticket;
}

TEST_CASE("Dispatcher encodes an output for a model with another tokenizer") {
  Driven d;
  for (const auto role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    WorkerInfo info = BytesWorker(role, role == WorkerRole::kPrefill ? "prefill-2" : "decode-2", 33);
    info.model = "pairs";
    info.module_digest = {1};
    (*d).WorkerAttached(info.address, info, d.now);
  }
  ServedModel pairs = ByteModel("pairs");
  pairs.vocab = 300;
  pairs.tokenizer = LoadTokenizer(TinyTokenizer({{"a", "b"}}));  // "ab" is one token
  REQUIRE(d.Submit(d.Request("up", "p")).ok());
  ClientRequest down = d.Request("down", "");
  down.served = &pairs;
  const auto ids = [&](std::string_view text) {
    return pairs.tokenizer->Encode(text, Tokenizer::SpecialTokens::kAsText);
  };
  down.prompt.segments = {ids("ab"), Reference{.upstream = "up"}, ids("ab")};
  REQUIRE(d.Submit(down).ok());
  d.Take();
  d.Prefilled("up");
  for (const char* text : {"x", "a", "b", "a"}) d.Made(d.NameOf("up"), text, std::nullopt);
  d.Made(d.NameOf("up"), "b", FinishReason::kStop);
  REQUIRE(std::ranges::any_of(d.Take(), [](const std::string& line) { return line.starts_with("prefill-2: close"); }));
  std::vector<TokenId> expected;
  for (const char* text : {"ab", "xabab", "ab"}) {
    for (const TokenId id : ids(text)) expected.push_back(id);
  }
  CHECK(expected.size() == 5);
  CHECK(d.appended == expected);
}

TEST_CASE("Dispatcher counts blocks as cached as the prefill worker reports") {
  Driven d;
  const std::string prompt(60, 'x');  // three full blocks
  for (const auto& [computed, uncached] : std::map<int32_t, int64_t>{{0, 60}, {31, 44}, {59, 12}}) {
    INFO(computed);
    ClientRequest request = d.Request("r", prompt);
    request.spec.cache_domain = absl::StrCat("salt", computed);
    REQUIRE(d.Submit(request).ok());
    d.Take();
    PrefillDone done;
    done.request_id = d.NameOf("r");
    done.decode_incarnation = Incarnation(22);
    done.computed_tokens = computed;
    (*d).Reported(kP, done, d.now);
    CHECK(d.Uncached(request) == uncached);
    d.Made(d.NameOf("r"), "y", FinishReason::kStop);
    d.Take();
  }
}

TEST_CASE("Dispatcher fails a request when its decode worker omits log probabilities") {
  Driven d;
  ClientRequest request = d.Request("r", "abc");
  request.spec.sampling.logprobs = 0;
  REQUIRE(d.Submit(request).ok());
  d.Take();
  d.Prefilled("r");
  d.Take();
  const RequestId at_worker = d.NameOf("r");
  d.Made(at_worker, "x", std::nullopt);
  const Lines lines = d.Take();
  CHECK(std::ranges::count(lines, "decode-1: cancel " + at_worker) == 1);
  CHECK(std::ranges::count(lines, "r ends INTERNAL, 0 tokens") == 1);
  CHECK((*d).core().live_requests() == 0);
}

TEST_CASE("Dispatcher prefills a session's output by blocks in a shadow prefill") {
  Driven driven;
  Talk(driven, "r");
  driven.Made(driven.NameOf("r"), "0123456789", std::nullopt);
  CHECK(driven.Take().size() == 1);
  driven.Made(driven.NameOf("r"), "abcdefgh", std::nullopt);
  CHECK(driven.Take().back() == "prefill-1: open r~1#ab.2 abc0123456789abcdefgh");
  driven.Made(driven.NameOf("r"), "ijkl", std::nullopt);
  CHECK(driven.Take().size() == 1);
  driven.Made(driven.NameOf("r"), "0123456789ab", std::nullopt);
  CHECK(driven.Take().back() == "prefill-1: append r~1#ab.2 ijkl0123456789ab");
  driven.Made(driven.NameOf("r"), "z", FinishReason::kStop);
  const auto lines = driven.Take();
  CHECK(std::ranges::count(lines, "prefill-1: close r~1#ab.2 z") == 1);
  CHECK((*driven).core().live_requests() == 1);

  // The client may use the id again at once.
  Talk(driven, "r");
  driven.Made(driven.NameOf("r"), "0123456789abcdef", std::nullopt);
  CHECK((*driven).core().live_requests() == 3);
  driven.Prefilled("r~1");
  CHECK(driven.Take().back() == "prefill-1: open r~2#ab.4 abc0123456789abcdef");
  CHECK((*driven).core().live_requests() == 2);
}

TEST_CASE("Dispatcher counts blocks of a shadow prefill as cached at its worker") {
  Driven driven;
  Talk(driven, "r");
  driven.Made(driven.NameOf("r"), "0123456789abcdef", std::nullopt);
  driven.Made(driven.NameOf("r"), "0123456789abcdef0123456789abcde", FinishReason::kStop);
  driven.Take();
  ClientRequest next = driven.Request("next", "abc0123456789abcdef0123456789abcdef0123456789abcde and more");
  next.spec.cache_domain = "tenant";
  REQUIRE(next.spec.tokens.size() == 59);
  CHECK(driven.Uncached(next) == 59 - 16);
  driven.Prefilled("r~1");
  CHECK(driven.Uncached(next) == 59 - 48);
}

TEST_CASE("Dispatcher ends a shadow prefill with its request") {
  Driven driven;
  const RequestTicket ticket = Talk(driven, "r");
  driven.Made(driven.NameOf("r"), "0123456789abcdef", std::nullopt);
  driven.Take();
  SECTION("the request is cancelled") {
    (*driven).Cancel(ticket, driven.now);
    CHECK(std::ranges::count(driven.Take(), "prefill-1: close r~1#ab.2 ") == 1);
  }
  SECTION("the request is detached, and its shadow prefill does not keep it alive") {
    (*driven).Detach(ticket, driven.now);
    CHECK(std::ranges::count(driven.Take(), "prefill-1: close r~1#ab.2 ") == 1);
  }
  SECTION("the shadow prefill fails") {
    (*driven).Reported(kP, RequestFailed{driven.NameOf("r~1"), absl::InternalError("broken"), {}}, driven.now);
    CHECK(driven.Take().empty());
    driven.Made(driven.NameOf("r"), "0123456789abcdef0123456789abcdef", FinishReason::kLength);
    CHECK(driven.Take().size() == 2);
    CHECK((*driven).core().live_requests() == 0);
  }
  SECTION("the shadow prefill is refused, and no other worker is asked") {
    (*driven).WorkerAttached("prefill-2", BytesWorker(WorkerRole::kPrefill, "prefill-2", 12), driven.now);
    (*driven).Reported(kP, RequestFailed{driven.NameOf("r~1"), absl::ResourceExhaustedError("full"), absl::Seconds(1)},
                       driven.now);
    CHECK(driven.Take().empty());
    driven.Made(driven.NameOf("r"), "0123456789abcdef0123456789abcdef", FinishReason::kLength);
    CHECK(driven.Take().size() == 2);
    CHECK((*driven).core().live_requests() == 0);
  }
  SECTION("EndAll ends all requests") {
    (*driven).EndAll(driven.now);
    driven.Take();
    CHECK((*driven).core().live_requests() == 0);
  }
}

TEST_CASE("Dispatcher ends a shadow prefill at the session's next turn or after ten seconds") {
  const std::string tenant = GENERATE(as<std::string>(), "", "whose key it came with");
  Driven d;
  Talk(d, "r", tenant);
  d.Made(d.NameOf("r"), "0123456789abcdef", std::nullopt);
  d.Made(d.NameOf("r"), "z", FinishReason::kStop);
  d.Take();
  REQUIRE((*d).core().live_requests() == 1);
  const auto next = [&](const std::string& prompt) {
    ClientRequest request = d.Request("next", prompt);
    request.spec.tenant = tenant;
    request.spec.cache_domain = "tenant";
    request.session = "s";
    REQUIRE(d.Submit(request).ok());
    d.Take();
    d.Prefilled("next");
    return std::ranges::count(d.Take(), "prefill-1: cancel r~1#ab.2");
  };
  SECTION("the next turn contains the output") { CHECK(next("abc0123456789abcdefzand more") == 1); }
  SECTION("another branch of the session does not end the shadow prefill") {
    CHECK(next("abc0123456789abcdefand more") == 0);
  }
  SECTION("ten seconds pass without a next turn") {
    CHECK((*d).NextTick() == d.now + absl::Seconds(10));
    d.now += absl::Seconds(10);
    (*d).Tick(d.now);
    CHECK(d.Take() == Lines{"prefill-1: cancel r~1#ab.2"});
    CHECK((*d).core().live_requests() == 0);
  }
}

TEST_CASE("Dispatcher ends a held request at its deadline, by cancel or at shutdown") {
  Driven d(false, SessionLimits{.sessions = 1});
  const auto submit = [&](const RequestId& id, const std::string& session, absl::Time deadline) {
    ClientRequest request = d.Request(id, "ab");
    request.session = session;
    request.deadline = deadline;
    const auto ticket = d.Submit(std::move(request));
    REQUIRE(ticket.ok());
    return *ticket;
  };
  submit("runs", "s", absl::InfiniteFuture());
  CHECK(d.Take() == Lines{"prefill-1: prefill runs#ab.1 ab"});
  submit("late", "t", d.now + absl::Seconds(5));
  const RequestTicket cancelled = submit("cancelled", "u", absl::InfiniteFuture());
  submit("waits", "v", absl::InfiniteFuture());
  CHECK(d.Take().empty());
  CHECK(SessionsOf(*d) == SessionGate::Counts{.active = 1, .waiting = 3, .waiting_requests = 3});
  CHECK((*d).NextTick() == d.now + absl::Seconds(5));
  d.now += absl::Seconds(5);
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"late ends DEADLINE_EXCEEDED, 0 tokens"});
  (*d).Cancel(cancelled, d.now);
  CHECK(d.Take() == Lines{"cancelled ends CANCELLED, 0 tokens"});
  (*d).EndAll(d.now);
  CHECK(d.Take() == Lines{"prefill-1: cancel runs#ab.1", "decode-1: cancel runs#ab.1",
                          "runs ends UNAVAILABLE, 0 tokens", "waits ends UNAVAILABLE, 0 tokens"});
}

TEST_CASE("Dispatcher prefills a held prompt as a whole after its admission") {
  Driven d(false, SessionLimits{.sessions = 1});
  ClientRequest busy = d.Request("busy", "ab");
  busy.session = "s";
  REQUIRE(d.Submit(busy).ok());
  d.Take();
  REQUIRE(d.Submit(d.Request("up", "cd")).ok());
  ClientRequest down = d.Request("down", "");
  down.session = "t";
  down.prompt.segments = {std::vector<TokenId>{'e'}, Reference{.upstream = "up"}};
  REQUIRE(d.Submit(down).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill up#ab.2 cd"});
  d.Prefilled("up");
  d.Made(d.NameOf("up"), "xy", FinishReason::kStop);
  CHECK(d.Take() == Lines{"decode-1: decode up#ab.2 cd", "up says xy after 0, first", "up ends OK, 2 tokens"});
  d.Prefilled("busy");
  d.Made(d.NameOf("busy"), "z", FinishReason::kStop);
  d.Take();
  d.now += absl::Minutes(1);
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill down#ab.3 exy"});
}

TEST_CASE("Dispatcher counts host memory for sessions unless copies are expensive") {
  // Each of the 60 sessions has three blocks, the worker has 100 blocks, and prompts wait long.
  Driven d(false, SessionLimits{});
  PrefillDone done;
  done.computed_tokens = 1;
  done.queued = absl::Seconds(11);
  done.compute = absl::Seconds(1);
  const auto limit = [&](int64_t host_blocks, absl::Duration copied) {
    (*d).WorkerLost(kP, d.now);
    d.AttachPrefill(host_blocks);
    done.copied = copied;
    for (const char* turn : {"first", "second"}) {
      for (int s = 0; s < 60; ++s) {
        ClientRequest request = d.Request(absl::StrCat(turn, s), std::string(49, static_cast<char>('A' + s)));
        request.session = absl::StrCat("session", s);
        REQUIRE(d.Submit(std::move(request)).ok());
        d.Take();
        d.Prefilled(absl::StrCat(turn, s), done);
      }
    }
    return (*d).gate()->limit();
  };
  SECTION("the worker has no host memory") { CHECK(limit(0, absl::ZeroDuration()) == 30); }
  SECTION("host memory is large enough, and copies are cheap") { CHECK(limit(100, absl::Milliseconds(50)) == 0); }
  SECTION("host memory is too small") { CHECK(limit(60, absl::ZeroDuration()) == 30); }
  SECTION("host memory is large enough, and copies are expensive") { CHECK(limit(100, absl::Milliseconds(60)) == 30); }
}

TEST_CASE("Dispatcher leaves nothing behind when too many requests are held") {
  Driven d(false, SessionLimits{.sessions = 1, .waiting_requests = 1});
  const auto submit = [&](const RequestId& id, const std::string& session) {
    ClientRequest request = d.Request(id, "ab");
    request.session = session;
    return d.Submit(std::move(request)).status();
  };
  REQUIRE(submit("a", "a").ok());
  REQUIRE(submit("b", "b").ok());
  CHECK(absl::IsResourceExhausted(submit("c", "c")));
  CHECK(submit("c", "a").ok());  // the id is free again
  CHECK(d.Take() == Lines{"prefill-1: prefill a#ab.1 ab", "prefill-1: prefill c#ab.2 ab"});
}

}  // namespace
}  // namespace baton
