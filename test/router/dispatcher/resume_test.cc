// Another decode worker goes on with the output of a lost one.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "catch.h"
#include "router/dispatcher.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher resumes an output when its decode worker is lost") {
  Driven d;
  const bool has_module_weights = GENERATE(true, false);
  WorkerInfo info = BytesWorker(WorkerRole::kDecode, kD, 22);
  info.weights_digest[0] = has_module_weights ? 0 : 1;
  (*d).WorkerLost(kD, d.now);
  (*d).WorkerAttached(kD, info, d.now);
  const RequestTicket ticket = d.Run("r", "ab", {});
  d.Take();
  const RequestId lost_name = d.NameOf("r");
  d.now += absl::Seconds(1);
  (*d).WorkerLost(kD, d.now);
  CHECK(d.Take().empty());
  d.now += absl::Seconds(1);
  const bool varies = GENERATE(true, false);
  if (varies) info.numerics_id = "another";
  (*d).WorkerAttached(kD, info, d.now);
  // A prefill worker computes KV of the output only for a decoder with the module's weights and
  // with its own numerics.
  const bool with_output = has_module_weights && !varies;
  CHECK(d.Take() ==
        Lines{"decode-1 is returning", with_output ? "prefill-1: prefill r#ab.2 pab" : "prefill-1: prefill r#ab.2 p"});
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: decode r#ab.2 pab, 2 of them output"});
  d.Made(lost_name, "z", {});  // late
  CHECK(d.Take().empty());
  d.now += absl::Seconds(1);
  d.Made(d.NameOf("r"), "c", FinishReason::kStop);
  const std::vector<DispatchAction> actions = (*d).TakeActions();
  REQUIRE(actions.size() == 2);
  const auto& progress = std::get<RequestProgress>(actions[0]);
  CHECK(progress.update.text == "c");
  CHECK_FALSE(progress.first);
  CHECK(progress.wait == absl::Seconds(3));
  const auto& ended = std::get<RequestEnded>(actions[1]);
  CHECK(ended.ticket.number == ticket.number);
  CHECK(ended.outcome.status.ok());
  CHECK(ended.outcome.prompt_tokens == 1);
  CHECK(ended.outcome.completion_tokens == 3);
  CHECK(ended.outcome.cached_tokens == 0);
  CHECK(ended.outcome.resumed == 1);
  CHECK(ended.outcome.mixed_numerics == varies);
  CHECK(ended.outcome.times.decode == absl::Seconds(3));
}

TEST_CASE("Dispatcher hands off the prompt alone when no prefill worker holds the output") {
  Driven d;
  WorkerInfo small = BytesWorker(WorkerRole::kPrefill, kP, 12);
  SECTION("the pool is too small") { small.blocks_total = 1; }
  SECTION("the context length is too small") { small.context = 16; }
  (*d).WorkerLost(kP, d.now);
  (*d).WorkerAttached(kP, small, d.now);
  d.Run("r", std::string(16, 'a'), {});
  (*d).WorkerLost(kD, d.now);
  const WorkerInfo tiny{.role = WorkerRole::kPrefill, .address = "prefill-0", .model = "bytes"};
  (*d).WorkerAttached("prefill-0", tiny, d.now);
  const bool has_large = GENERATE(false, true);
  if (has_large) (*d).WorkerAttached("prefill-2", BytesWorker(WorkerRole::kPrefill, "prefill-2", 13), d.now);
  d.Take();
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), d.now);
  if (has_large) {
    CHECK(d.Take() == Lines{"prefill-2: prefill r#ab.2 p" + std::string(16, 'a')});
    return;
  }
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.2 p"});
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: decode r#ab.2 p" + std::string(16, 'a') + ", 16 of them output"});
}

TEST_CASE("Dispatcher resumes an output that outgrows its decode worker, with no token twice") {
  Driven d;
  (*d).WorkerLost(kD, d.now);
  WorkerInfo small = BytesWorker(WorkerRole::kDecode, kD, 22);
  small.blocks_total = 1;
  (*d).WorkerAttached(kD, small, d.now);
  ClientRequest chat = d.Request("r", "p", 40);
  chat.has_max_tokens = false;
  REQUIRE(d.Submit(chat).ok());
  d.Take();
  d.Prefilled("r");
  d.Made(d.NameOf("r"), std::string(15, 'a'), {});
  (*d).WorkerAttached("decode-2", BytesWorker(WorkerRole::kDecode, "decode-2", 23), d.now);
  d.Take();
  const RequestId first_name = d.NameOf("r");
  // The text has what the worker held back, which is not the text of the whole output.
  d.Made(first_name, "?", FinishReason::kLength);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.2 p" + std::string(15, 'a')});
  PrefillDone done;
  done.request_id = d.NameOf("r");
  done.decode_incarnation = Incarnation(23);
  (*d).Reported(kP, done, d.now);
  CHECK(d.Take() == Lines{"decode-2: decode r#ab.2 p" + std::string(15, 'a') + ", 15 of them output"});
  TokenUpdate last;
  last.request_id = d.NameOf("r");
  last.tokens = {'b', 'c'};
  last.text = "bc";
  last.finish = FinishReason::kStop;
  (*d).Reported("decode-2", last, d.now);
  const std::vector<DispatchAction> actions = (*d).TakeActions();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<RequestProgress>(actions[0]).update.text == "bc");
  const RequestOutcome& outcome = std::get<RequestEnded>(actions[1]).outcome;
  CHECK(outcome.status.ok());
  CHECK(outcome.finish == FinishReason::kStop);
  CHECK(outcome.prompt_tokens == 1);
  CHECK(outcome.completion_tokens == 17);
  CHECK(outcome.resumed == 1);
}

TEST_CASE("Dispatcher does not go on with an output at a worker with other weights") {
  Driven d;
  d.Run("r", "ab", {});
  d.Take();
  (*d).WorkerLost(kD, d.now);
  WorkerInfo other = BytesWorker(WorkerRole::kDecode, kD, 23);
  other.weights_digest[0] = 1;
  (*d).WorkerAttached(kD, other, d.now);
  CHECK(d.Take().empty());
  SECTION("a worker with the same weights attaches") {
    (*d).WorkerLost(kD, d.now);
    (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 24), d.now);
    CHECK(d.Take() == Lines{"decode-1 is returning", "prefill-1: prefill r#ab.2 pab"});
  }
  SECTION("no such worker attaches") {
    d.now += RouterLimits().worker_wait;
    (*d).Tick(d.now);
    CHECK(d.Take() == Lines{"r ends UNAVAILABLE, 2 tokens"});
  }
}

TEST_CASE("Dispatcher draws a seed for a request without one, and keeps it") {
  Driven d;
  ClientRequest with_seed = d.Request("seeded", "p");
  with_seed.spec.sampling.seed = 7;
  REQUIRE(d.Submit(with_seed).ok());
  REQUIRE(d.Submit(d.Request("r", "p")).ok());
  const auto seeds = [&] {
    std::vector<std::optional<uint64_t>> found;
    for (const DispatchAction& action : (*d).TakeActions()) {
      const auto* command = std::get_if<WorkerCommand>(&action);
      const auto* job = command == nullptr ? nullptr : std::get_if<PrefillJob>(&command->what);
      if (job != nullptr) found.push_back(job->spec.sampling.seed);
    }
    return found;
  };
  const auto first = seeds();
  REQUIRE(first.size() == 2);
  CHECK(first[0] == 7);
  REQUIRE(first[1].has_value());
  (*d).WorkerLost(kP, d.now);
  d.AttachPrefill(/*host_blocks=*/0);
  CHECK(seeds() == first);
}

TEST_CASE("Dispatcher counts the commands that a worker has to take up since it attached") {
  Driven d;
  d.Run("r", "ab", {});
  d.Take();
  // The decode worker reports for 2 s that it has taken up this number of commands.
  const auto report = [&](int64_t commands) {
    for (int i = 0; i < 20; ++i) (*d).Reported(kD, WorkerLoad{.commands = commands}, d.now += absl::Milliseconds(100));
    return d.Take();
  };
  CHECK(report(1).empty());
  CHECK(report(0) == Lines{"decode-1 is silent"});
  CHECK(report(1) == Lines{"decode-1 is well"});
  (*d).WorkerLost(kD, d.now);
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 23), d.now);
  CHECK(d.Take().back() == "prefill-1: prefill r#ab.2 pab");
  CHECK(report(0) == Lines{"decode-1 is well"});  // it was returning after a silence and a loss
}

}  // namespace
}  // namespace baton
