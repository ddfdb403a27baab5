#include "router/assignments.h"

#include "request/priority.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

struct Desk {
  WorkerRegistry registry{absl::Seconds(30)};
  Assignments assignments{registry};
  Request a, b;

  Desk() {
    registry.Attach(kP, Info(WorkerRole::kPrefill, kP));
    registry.Attach(kD, Info(WorkerRole::kDecode, kD));
    for (Request* record : {&b, &a}) {
      Fill(*record, {.id = record == &a ? "a" : "b", .keys = std::vector<BlockKey>(2), .prompt_tokens = 40});
    }
  }
  const AttachedWorker& At(const WorkerAddress& link) { return registry.At(link); }
};

TEST_CASE("Assignments counts the tokens that a worker still has to prefill") {
  Desk d;
  d.assignments.ToPrefill(d.a, d.At(kP));
  CHECK(d.At(kP).prompt_tokens == 40);
  CHECK(d.At(kP).prefix_memory->under_way() == 2);
  d.a.asked.spec.tokens = PromptOf(60);
  d.assignments.NotePromptTokens(d.a);
  CHECK(d.At(kP).prompt_tokens == 60);
  d.assignments.CheckInvariants({&d.a, &d.b});
  d.assignments.LeavePrefill(d.a);
  d.assignments.LeavePrefill(d.a);
  CHECK(d.At(kP).prompt_tokens == 0);
  CHECK(d.At(kP).prefix_memory->under_way() == 0);
  CHECK(d.At(kP).requests.empty());
}

TEST_CASE("Assignments does not count the tokens of low-priority prompts") {
  Desk d;
  d.a.asked.spec.priority = kLowPriority;
  d.assignments.ToPrefill(d.a, d.At(kP));
  d.a.asked.spec.tokens = PromptOf(60);
  d.assignments.NotePromptTokens(d.a);
  CHECK(d.At(kP).prompt_tokens == 0);
  CHECK(d.At(kP).requests.size() == 1);
}

TEST_CASE("Assignments expects a streaming prompt at a decode worker until its prefill ends") {
  Desk d;
  d.registry.Attach("decode-2", Info(WorkerRole::kDecode, "decode-2"));
  d.assignments.ToPrefill(d.a, d.At(kP));
  d.assignments.Expect(d.a, &d.At(kD));
  d.assignments.Expect(d.a, &d.At("decode-2"));
  CHECK(d.At(kD).expected.empty());
  CHECK(d.At("decode-2").expected.contains(&d.a));
  d.assignments.LeavePrefill(d.a);
  CHECK(d.At("decode-2").expected.empty());
  CHECK(d.a.placement.expected_at.empty());
}

TEST_CASE("Assignments takes all requests from a worker and returns them by id") {
  Desk d;
  for (Request* record : {&d.b, &d.a}) {
    d.assignments.ToPrefill(*record, d.At(kP));
    d.assignments.ToDecode(*record, d.At(kD));
  }
  CHECK(d.assignments.LeaveWorker(d.At(kD)) == std::vector<Request*>{&d.a, &d.b});
  CHECK(d.a.placement.decode.empty());
  CHECK(d.a.placement.prefill == kP);
  CHECK(d.At(kD).requests.empty());
  d.assignments.CheckInvariants({&d.a, &d.b});
}

}  // namespace
}  // namespace baton
