// Random graphs whose requests end, fail and are cancelled at any time. A live request is reported
// as unneeded exactly when prompts of clients referred to its output, and none needs it now. Those
// of failed requests that may be submitted again count.
#include <algorithm>
#include <random>
#include <set>

#include "world/agent_world.h"
#include "world/random_run.h"

namespace baton {
namespace {

class RandomNeeds {
 public:
  explicit RandomNeeds(uint64_t seed) : random_(seed) {}

  bool Event() {
    const RequestId id = absl::StrCat("r", Below(12));
    const int what = Below(10);
    AgentNode& node = world_.Node(id);
    if (node.output == nullptr) {
      Submit(id);
    } else if (what < 6 && node.streaming == nullptr) {
      world_.Made(id, Below(2) == 0 ? "y" : "a long output of a request");
    } else if (what < 8 && node.streaming == nullptr) {
      const absl::Status failures[] = {absl::InternalError("broken"), absl::UnavailableError("lost")};
      world_.End(id, Below(3) == 0 ? failures[Below(2)] : absl::OkStatus());
    } else if (what == 8) {
      // A request whose prompt waits may fail too.
      world_.End(id, Below(2) == 0 ? absl::CancelledError("by the client") : absl::UnavailableError("lost"));
    } else {
      world_.Advance(absl::Seconds(Below(3)));
    }
    Check();
    return ++events_ < 150;
  }
  void CheckInvariants() const { world_.graph.CheckInvariants(); }
  void Settle() {
    world_.Advance(absl::Hours(1));
    for (int i = 0; i < 12; ++i) world_.End(absl::StrCat("r", i), absl::CancelledError("at the end"));
    world_.Advance(absl::Hours(1));
    CHECK(world_.graph.counts() == AgentGraph::Counts{});
  }

  int unneeded = 0, kept = 0;

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  void Submit(const RequestId& id) {
    NamedPrompt spec = Spec(id, {Bytes("<")});
    int references = 0;
    for (; references < Below(4); ++references) {
      Reference reference{.upstream = absl::StrCat("r", Below(12)), .announced = Below(2) == 0};
      reference.on_failure = static_cast<OnFailure>(Below(3));
      if (Below(4) == 0) reference.timeout = absl::Seconds(1 + Below(4));
      spec.segments.emplace_back(reference);
    }
    if (references > 0 && Below(2) == 0) spec.first = 1 + Below(references);
    AgentNode& node = world_.Node(id);
    node.is_internal = Below(4) == 0;
    node.keep = Below(3) == 0;
    world_.reported.erase(id);
    const bool is_awaited = IsAwaited(id);
    const absl::Status submitted = world_.Submit(spec);
    referred_.erase(id);
    // A failed request that may be submitted again may need it too.
    if (submitted.ok() && (is_awaited || AgentGraph::IsNeeded(node))) referred_.insert(id);
    // A prompt that an upstream made fail counts too.
    const bool counts = submitted.ok() || absl::IsAborted(submitted) || absl::IsUnavailable(submitted);
    if (node.is_internal || !counts) return;
    for (const PromptSegment& segment : spec.segments) {
      const auto* reference = std::get_if<Reference>(&segment);
      if (reference != nullptr) referred_.insert(reference->upstream);
    }
  }

  // Returns whether the prompt of a client's request waits for the output.
  bool IsAwaited(const RequestId& id) {
    for (int i = 0; i < 12; ++i) {
      const AgentNode& node = world_.Node(absl::StrCat("r", i));
      if (node.streaming == nullptr) continue;
      for (size_t k = 0; k < node.streaming->needs.size(); ++k) {
        if (node.streaming->needs[k] && node.streaming->prompt.reference(k).upstream == id) return true;
      }
    }
    return false;
  }

  void Check() {
    for (int i = 0; i < 12; ++i) {
      const RequestId id = absl::StrCat("r", i);
      AgentNode& node = world_.Node(id);
      const bool is_unneeded = referred_.contains(id) && !AgentGraph::IsNeeded(node);
      if (node.output != nullptr) {
        CHECK((node.keep || !is_unneeded));
        kept += is_unneeded;
        continue;
      }
      const auto found = world_.reported.find(id);
      if (found != world_.reported.end() && found->second.failure == absl::CancelledError("unneeded")) {
        CHECK((referred_.contains(id) && !node.keep));
        ++unneeded;
        found->second.failure = absl::OkStatus();
      }
      referred_.erase(id);
    }
  }

  std::mt19937 random_;
  int events_ = 0;
  AgentWorld world_;
  // Requests to whose outputs prompts of clients referred while they were live or announced.
  std::set<RequestId> referred_;
};

TEST_CASE("AgentGraph reports exactly the unneeded outputs in random graphs") {
  int unneeded = 0, kept = 0;
  const Seeds seeds = ForEachWorld<RandomNeeds>(1000, [&](const RandomNeeds& needs) {
    unneeded += needs.unneeded;
    kept += needs.kept;
  });
  if (seeds.all()) CHECK((unneeded > 1000 && kept > 1000));
}

}  // namespace
}  // namespace baton
