// Jobs of workers: their token buffers, and the names of jobs of requests that are hedged, moved or
// wait for kept room.
#include "catch.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

constexpr const char* kP2 = "prefill-2";
constexpr const char* kD2 = "decode-2";

// A dispatcher with two workers of each kind. Request "r" is at the first ones: the other ones
// attach later.
class HedgeWorld {
 public:
  HedgeWorld() {
    REQUIRE(d.Submit(d.Request("r", "prompt")).ok());
    d.Take();
    old_name = d.NameOf("r");
    (*d).WorkerAttached(kP2, BytesWorker(WorkerRole::kPrefill, kP2, 12), d.now);
    (*d).WorkerAttached(kD2, BytesWorker(WorkerRole::kDecode, kD2, 23), d.now);
    Report(kP, {});
  }
  // All workers report. `link` has a step that hangs.
  Lines Hang(const std::string& link) {
    Report(link, {.blocks_free = 100, .step_time = absl::Minutes(1)});
    const Lines lines = d.Take();
    name = d.NameOf("r");
    return lines;
  }
  void Done(const std::string& link, const RequestId& job, uint64_t decode) {
    PrefillDone done;
    done.request_id = job;
    done.decode_incarnation = Incarnation(decode);
    done.computed_tokens = 5;
    (*d).Reported(link, done, d.now);
  }
  void Makes(const std::string& link, const RequestId& job, const std::string& text) {
    TokenUpdate update;
    update.request_id = job;
    update.tokens.assign(text.begin(), text.end());
    update.text = text;
    (*d).Reported(link, update, d.now);
  }

  Driven d;
  RequestId old_name, name;

 private:
  void Report(const std::string& link, const WorkerLoad& load) { (*d).Reported(link, load, d.now); }
};

TEST_CASE("Dispatcher names a hedge anew and cancels the job that loses by its name") {
  HedgeWorld w;
  const Lines lines = w.Hang(kP);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "prefill-1 is hung");
  CHECK(lines[1] == absl::StrCat("prefill-2: prefill ", w.name, " prompt"));
  REQUIRE(w.name != w.old_name);
  SECTION("the former job commits first") {
    w.Done(kP, w.old_name, 22);
    const Lines after = w.d.Take();
    REQUIRE(after.size() == 3);
    CHECK(after[0] == absl::StrCat("prefill-2: cancel ", w.name));
    CHECK(after[1].ends_with(absl::StrCat("cancel ", w.name)));
    CHECK(after[2] == absl::StrCat("decode-1: decode ", w.old_name, " prompt"));
    w.Done(kP2, w.name, 23);  // too late
    CHECK(w.d.Take() == Lines{absl::StrCat("decode-2: cancel ", w.name)});
    w.Makes(kD, w.old_name, "out");
    CHECK(w.d.Take().size() == 1);
  }
  SECTION("the hedge commits first") {
    w.Done(kP2, w.name, 23);
    const Lines after = w.d.Take();
    CHECK(std::ranges::count(after, absl::StrCat("prefill-1: cancel ", w.old_name)) == 1);
    CHECK(std::ranges::count(after, absl::StrCat("decode-1: cancel ", w.old_name)) == 1);
    w.Done(kP, w.old_name, 22);  // too late
    CHECK(w.d.Take() == Lines{absl::StrCat("decode-1: cancel ", w.old_name)});
  }
  SECTION("the former job fails") {
    (*w.d).Reported(kP, RequestFailed{w.old_name, absl::InternalError("broken"), absl::ZeroDuration()}, w.d.now);
    w.d.Take();
    (*w.d).Reported(kP2, RequestFailed{w.name, absl::InternalError("broken"), absl::ZeroDuration()}, w.d.now);
    CHECK(w.d.Take().back() == "r ends INTERNAL, 0 tokens");
  }
}

TEST_CASE("Dispatcher drops later tokens of an avoided decode worker") {
  HedgeWorld w;
  w.Done(kP, w.old_name, 22);
  w.Makes(kD, w.old_name, "ab");
  w.d.Take();
  const Lines lines = w.Hang(kD);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1] == absl::StrCat("decode-1: cancel ", w.old_name));
  w.Makes(kD, w.old_name, "c");
  CHECK(w.d.Take().empty());
}

TEST_CASE("Dispatcher names a request before it asks a worker to keep room for it") {
  Driven d;
  REQUIRE(d.Submit(d.Request("r", "ab")).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.1 ab"});
  const auto refuse = [&] {
    (*d).Reported(kP, RequestFailed{d.NameOf("r"), absl::ResourceExhaustedError("full"), absl::ZeroDuration(), true},
                  d.now);
  };
  refuse();
  CHECK(d.Take().empty());
  d.now += RouterLimits().room_wait;
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.2 1 + 4"});
  (*d).Reported(kD, RoomReport{.kept = "r#ab.1"}, d.now);
  CHECK(d.Take().empty());
  (*d).Reported(kD, RoomReport{.kept = "r#ab.2"}, d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.2 ab"});
  refuse();
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.3 1 + 4"});
  (*d).Reported(kD, RoomReport{.requests = 1}, d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.3 ab"});
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: keep no room", "decode-1: decode r#ab.3 ab"});
}

TEST_CASE("Dispatcher asks for room for prompt and output when a stream goes on") {
  Driven d;
  d.Run("r", "xyz", {});
  d.Take();
  (*d).WorkerLost(kD, d.now);
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), d.now);
  d.Take();
  (*d).Reported(kP, RequestFailed{d.NameOf("r"), absl::ResourceExhaustedError("full"), absl::ZeroDuration(), true},
                d.now);
  d.now += RouterLimits().room_wait;
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.3 3 + 1"});
}

TEST_CASE("Request shares one token buffer among its jobs") {
  Driven d;
  ClientRequest request = d.Request("r", "ab");
  const TokenId* tokens = request.spec.tokens.data();
  const auto sent = [&] {
    const auto actions = (*d).TakeActions();
    REQUIRE(actions.size() == 1);
    return std::get<WorkerCommand>(actions[0]).what;
  };
  REQUIRE(d.Submit(std::move(request)).ok());
  const auto prefill = std::get<PrefillJob>(sent());
  CHECK(prefill.spec.tokens.data() == tokens);
  PrefillDone done;
  done.request_id = prefill.request_id;
  done.decode_incarnation = Incarnation(22);
  (*d).Reported(kP, done, d.now);
  CHECK(std::get<DecodeJob>(sent()).spec.tokens.data() == tokens);
}

}  // namespace
}  // namespace baton
