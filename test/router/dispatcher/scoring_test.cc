// Requests that want log probabilities of their prompts. Only a decode worker gets them.
#include "catch.h"
#include "world/dispatcher_world.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

RouteRequest ToScore(const std::string& id) {
  RouteRequest request = Ask(id);
  request.scores = true;
  return request;
}

// A decode worker that answers with the prompt's weights.
WorkerInfo Decoder(const std::string& name, uint64_t incarnation) {
  return Info(WorkerRole::kDecode, name, incarnation);
}

TEST_CASE("RouterCore sends a request that scores its prompt to a decode worker alone") {
  Cluster c;
  REQUIRE(c.core.Submit(ToScore("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"score r decode-1"});
  SECTION("it decodes and ends") {
    CHECK(c.core.TokensArrived(kD, "r", false));
    CHECK(c.core.TokensArrived(kD, "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
  SECTION("the prefill worker is lost") {
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core).empty());
  }
  SECTION("the client cancels it") {
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r CANCELLED"});
  }
  SECTION("the worker cannot score prompts") {
    c.core.Failed(kD, "r", {absl::UnimplementedError("a decoder")}, c.now);
    CHECK(Take(c.core) == Lines{"end r INVALID_ARGUMENT"});
  }
}

TEST_CASE("RouterCore starts a prompt again elsewhere when its scoring worker is lost or drained") {
  Cluster c;
  REQUIRE(c.core.Submit(ToScore("r"), c.now).ok());
  Take(c.core);
  SECTION("another decode worker is attached") {
    c.core.WorkerAttached("decode-2", Decoder("decode-2", 23), c.now);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"score r decode-2"});
    CHECK_FALSE(c.core.TokensArrived(kD, "r", false));
    CHECK(c.core.TokensArrived("decode-2", "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
  SECTION("no other decode worker is attached") {
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core).empty());
    c.core.WorkerAttached(kD, Decoder(kD, 24), c.now);
    CHECK(Take(c.core) == Lines{"score r decode-1"});
  }
  SECTION("three workers are lost that ran it") {
    for (uint64_t restart = 0; restart < 3; ++restart) {
      c.core.StepStarted("r");
      c.core.WorkerLost(kD, c.now);
      c.core.WorkerAttached(kD, Decoder(kD, 30 + restart), c.now);
    }
    CHECK(Take(c.core) == Lines{"score r decode-1", "score r decode-1", "end r INTERNAL"});
  }
  SECTION("an operator drains the worker") {
    c.core.WorkerAttached("decode-2", Decoder("decode-2", 23), c.now);
    c.core.Drain(kD, true, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "score r decode-2"});
  }
  SECTION("the worker is lost after the first token") {
    CHECK(c.core.TokensArrived(kD, "r", false));
    c.core.WorkerAttached("decode-2", Decoder("decode-2", 23), c.now);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"score r decode-2"});
  }
}

TEST_CASE("RouterCore lets a prompt to score wait for room of decode workers") {
  Cluster c;
  REQUIRE(c.core.Submit(ToScore("r"), c.now).ok());
  Take(c.core);
  c.core.Failed(kD, "r", NoRoom(), c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  SECTION("the worker reports room") {
    c.core.OnRoom(kD, 1, c.now);
    CHECK(Take(c.core) == Lines{"score r decode-1"});
  }
  SECTION("the worker keeps room for it") {
    c.now += absl::Seconds(2);
    c.core.Tick(c.now);
    CHECK(Take(c.core) == Lines{"keep r decode-1"});
    c.core.OnKeptRoom(kD, "r", c.now);
    CHECK(Take(c.core) == Lines{"score r decode-1"});
    CHECK(c.core.TokensArrived(kD, "r", true));
    CHECK(Take(c.core) == Lines{"keep none decode-1", "end r OK"});
  }
  SECTION("another worker attaches") {
    c.core.WorkerAttached("decode-2", Decoder("decode-2", 23), c.now);
    CHECK(Take(c.core) == Lines{"score r decode-2"});
  }
  SECTION("its wait ends") {
    c.core.Tick(c.now + absl::Seconds(31));
    const Lines lines = Take(c.core);
    REQUIRE(!lines.empty());
    CHECK(lines.back() == "end r RESOURCE_EXHAUSTED");
  }
}

// Returns log probabilities of a prompt of that text.
PromptLogprobs Logprobs(const std::string& prompt) {
  return {{prompt.begin(), prompt.end()}, std::vector<TokenLogprobs>(prompt.size() - 1)};
}

ClientRequest Scoring(const Driven& d, const std::string& prompt, int32_t max_tokens = 4) {
  ClientRequest request = d.Request("r", prompt, max_tokens);
  request.spec.sampling.prompt_logprobs = 1;
  return request;
}

TEST_CASE("Dispatcher passes on the log probabilities of a prompt with the first tokens") {
  Driven d;
  REQUIRE(d.Submit(Scoring(d, "prompt")).ok());
  const Lines sent = d.Take();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].starts_with("decode-1: decode r#"));
  d.now += absl::Seconds(1);
  d.Made(d.NameOf("r"), "", {}, absl::Milliseconds(200));
  d.scored = Logprobs("prompt");
  d.Made(d.NameOf("r"), "a", {});
  d.Made(d.NameOf("r"), "b", FinishReason::kStop);
  CHECK(d.Take() == Lines{"r says a after 1s, first", "r says b after 0", "r ends OK, 2 tokens"});
}

TEST_CASE("Dispatcher ends a scored request without output when it wants none") {
  Driven d;
  REQUIRE(d.Submit(Scoring(d, "prompt", 0)).ok());
  d.Take();
  d.scored = Logprobs("prompt");
  d.Made(d.NameOf("r"), "", FinishReason::kLength);
  CHECK(d.Take() == Lines{"r says  after 0, first", "r ends OK, 0 tokens"});
}

TEST_CASE("Dispatcher fails a request when log probabilities of its prompt lack") {
  Driven d;
  REQUIRE(d.Submit(Scoring(d, "prompt")).ok());
  d.Take();
  SECTION("there are none") {}
  SECTION("they are too few") { d.scored = Logprobs("promp"); }
  SECTION("a token has none") {
    d.scored = Logprobs("prompt");
    d.scored->logprobs.pop_back();
  }
  d.Made(d.NameOf("r"), "a", {});
  const Lines lines = d.Take();
  REQUIRE(!lines.empty());
  CHECK(lines.back() == "r ends INTERNAL, 0 tokens");
}

TEST_CASE("Dispatcher resumes a scored request with its output at another decode worker") {
  Driven d;
  REQUIRE(d.Submit(Scoring(d, "prompt")).ok());
  d.Take();
  d.scored = Logprobs("prompt");
  d.Made(d.NameOf("r"), "ab", {});
  d.Take();
  (*d).WorkerAttached("decode-2", BytesWorker(WorkerRole::kDecode, "decode-2", 23), d.now);
  (*d).WorkerLost(kD, d.now);
  const Lines lines = d.Take();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("decode-2: decode r#"));
  CHECK(lines[0].ends_with(" promptab, 2 of them output"));
}

}  // namespace
}  // namespace baton
