// Random graphs of two tenants that have little memory for kept outputs. Requests end, fail, are
// refused and are submitted again. The graph never keeps more bytes than its limit, and nothing is
// left at the end.
#include <random>

#include "world/agent_world.h"
#include "world/random_run.h"

namespace baton {
namespace {

class RandomMemory {
 public:
  explicit RandomMemory(uint64_t seed) : random_(seed), limit_(2000 + Below(10000)) {}

  bool Event() {
    const std::string tenant = Below(2) == 0 ? "a\n/" : "b\n/";
    const RequestId id = absl::StrCat(tenant, Below(8));
    const AgentNode& node = world_.Node(id);
    const int what = Below(10);
    if (what == 0) {
      world_.Advance(absl::Seconds(Below(8)));
    } else if (node.output == nullptr) {
      what < 3 ? world_.Refuse(id, AnyFailure()) : Submit(id, tenant);
    } else if (node.streaming != nullptr) {
      if (what == 1) world_.End(id, AnyFailure());
    } else if (what < 7) {
      world_.Made(id, Below(3) == 0 ? " y" : std::string(static_cast<size_t>(Below(1500)), 'a') + " bab");
    } else {
      world_.End(id, Below(2) == 0 ? absl::OkStatus() : AnyFailure());
    }
    if (world_.graph.counts().kept_bytes > limit_) FAIL("too many bytes are kept");
    return ++events_ < 300;
  }
  void CheckInvariants() const { world_.graph.CheckInvariants(); }
  void Settle() {
    for (const auto& [id, reported] : world_.reported) {
      dropped +=
          absl::IsResourceExhausted(reported.failure) && reported.failure.message().find("share") != std::string::npos;
      restarted += reported.restarts;
      world_.End(id, absl::CancelledError("at the end"));
    }
    world_.Advance(absl::Hours(1));
    CHECK(world_.graph.counts() == AgentGraph::Counts{});
  }

  int dropped = 0, restarted = 0;  // prompts

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  absl::Status AnyFailure() { return Below(3) == 0 ? absl::InternalError("broken") : absl::UnavailableError("lost"); }
  void Submit(const RequestId& id, const std::string& tenant) {
    NamedPrompt spec = Spec(id, {Bytes("<")});
    spec.tokenizer = Below(2) == 0 ? &ByteTokens() : &PairTokens();
    spec.most_tokens = Below(4) == 0 ? 100 : 10000;
    for (int references = Below(5); references > 0; --references) {
      Reference reference{.upstream = absl::StrCat(tenant, Below(8)), .announced = Below(4) > 0};
      reference.on_failure = static_cast<OnFailure>(Below(3));
      if (Below(4) == 0) reference.timeout = absl::Seconds(1 + Below(10));
      spec.segments.emplace_back(reference);
    }
    (void)world_.Submit(spec);
  }

  std::mt19937 random_;
  const int64_t limit_;
  AgentWorld world_{{.kept_bytes = limit_}};
  int events_ = 0;
};

TEST_CASE("AgentGraph keeps no more bytes than its limit in random graphs") {
  int dropped = 0, restarted = 0;
  const Seeds seeds = ForEachWorld<RandomMemory>(500, [&](const RandomMemory& memory) {
    dropped += memory.dropped;
    restarted += memory.restarted;
  });
  CAPTURE(dropped, restarted);
  if (seeds.all()) CHECK((dropped > 100 && restarted > 100));
}

}  // namespace
}  // namespace baton
