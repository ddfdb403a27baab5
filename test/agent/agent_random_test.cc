// Random agent graphs, with values among the requests. Whatever the order in which outputs arrive,
// each prompt is equal to that of a sequential run, which ends upstream requests first. Tokens that
// were reported early are its prefix. Some announced requests fail and are submitted again, with
// another output.
#include <algorithm>
#include <random>

#include "world/agent_world.h"
#include "world/random_run.h"

namespace baton {
namespace {

struct Agent {
  NamedPrompt spec;
  const Tokenizer* tokenizer = nullptr;
  // May end with a token beyond the stop string.
  Ids made;
  // The text of `made` up to the stop string.
  std::string text;
  size_t shown = 0;     // bytes of `text` that the graph has
  size_t reported = 0;  // tokens of `made` that the graph has
  bool submitted = false, ended = false;
  // A value, without a prompt. It is a text, or the ids `made`.
  bool is_value = false, is_text = false;
  ValueTicket ticket{};
};

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    const int count = 2 + Below(7);
    for (int i = 0; i < count; ++i) agents_.push_back(Draw(i));
  }

  // Announced requests are submitted in any order. Other requests are submitted before their
  // downstream requests.
  bool Event() {
    Step();
    return std::ranges::any_of(agents_, [](const Agent& a) { return !a.ended; });
  }
  void CheckInvariants() const { world_.graph.CheckInvariants(); }
  void Settle() {
    for (const Agent& agent : agents_) {
      INFO(agent.spec.id);
      if (agent.is_value) continue;
      const Reported& reported = world_.reported.at(agent.spec.id);
      REQUIRE(reported.failure.ok());
      REQUIRE(reported.complete);
      REQUIRE(reported.tokens == Sequential(agent));
      restarted += reported.restarts;
    }
    world_.Advance(absl::Hours(1));
    const auto counts = world_.graph.counts();
    CHECK(counts.streaming + counts.announced + counts.kept + counts.kept_bytes == 0);
  }

  int failed = 0;     // attempts
  int restarted = 0;  // prompts, because of them

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  std::string Words(int most) {
    std::string text;
    for (int i = Below(most + 1); i > 0; --i) text += "abc \n"[Below(5)];
    return text;
  }

  Agent Draw(int index) {
    Agent agent;
    agent.tokenizer = Below(2) == 0 ? &ByteTokens() : &PairTokens();
    agent.spec.id = absl::StrCat("agent", index);
    agent.spec.tokenizer = agent.tokenizer;
    const int parts = 2 + Below(4);
    agent.spec.segments.resize(static_cast<size_t>(parts), Ids());
    for (PromptSegment& segment : agent.spec.segments) {
      if (index > 0 && Below(2) == 0) {
        segment = Reference{.upstream = absl::StrCat("agent", Below(index)), .announced = announce_};
      } else {
        segment = TextIds(*agent.tokenizer, "." + Words(30));
      }
    }
    agent.spec.segments.back() = TextIds(*agent.tokenizer, "!");
    agent.is_value = Below(4) == 0;
    agent.is_text = agent.is_value && Below(2) == 0;
    DrawOutput(agent);
    return agent;
  }
  void DrawOutput(Agent& agent) {
    agent.text = Words(60);
    agent.made = TextIds(*agent.tokenizer, agent.text);
    // The stop string may begin anywhere, also within a token.
    if (!agent.is_value && Below(3) == 0)
      agent.text.resize(static_cast<size_t>(Below(static_cast<int>(agent.text.size()) + 1)));
  }

  // Returns whether a prompt waits for the agent's output.
  bool IsAwaited(const Agent& agent) {
    return std::ranges::any_of(agents_, [&](const Agent& other) {
      if (other.is_value) return false;
      const bool refers = std::ranges::any_of(other.spec.segments, [&](const PromptSegment& segment) {
        const auto* reference = std::get_if<Reference>(&segment);
        return reference != nullptr && reference->upstream == agent.spec.id;
      });
      return refers && other.submitted && !world_.reported.at(other.spec.id).complete;
    });
  }
  // Ends the attempt. The next one has another output.
  void Fail(Agent& agent) {
    world_.End(agent.spec.id, absl::UnavailableError("lost"));
    ++failed;
    agent.submitted = false;
    agent.shown = agent.reported = 0;
    DrawOutput(agent);
    if (Below(2) == 0) world_.Refuse(agent.spec.id, absl::ResourceExhaustedError("full"));
  }

  void Step() {
    Agent& agent = agents_[static_cast<size_t>(Below(static_cast<int>(agents_.size())))];
    if (agent.is_value) {
      Write(agent);
    } else if (!agent.submitted) {
      const bool ready = announce_ || std::ranges::all_of(agent.spec.segments, [&](const PromptSegment& segment) {
                           const auto* reference = std::get_if<Reference>(&segment);
                           return reference == nullptr || Named(reference->upstream).submitted;
                         });
      if (!ready) return;
      REQUIRE(world_.Submit(agent.spec) == absl::OkStatus());
      agent.submitted = true;
    } else if (announce_ && !agent.ended && Below(10) == 0 && IsAwaited(agent)) {
      Fail(agent);
    } else if (!agent.ended && world_.reported.at(agent.spec.id).complete) {
      Grow(agent);
    }
  }

  Agent& Named(const RequestId& id) {
    return *std::ranges::find(agents_, id, [](const Agent& agent) { return agent.spec.id; });
  }

  // Begins the value, appends up to four letters or tokens, or ends it.
  void Write(Agent& agent) {
    if (agent.ended) return;
    if (!agent.submitted) {
      agent.ticket = *world_.Begin(agent.spec.id, agent.is_text ? nullptr : agent.tokenizer);
      agent.submitted = true;
    } else if (agent.is_text && agent.shown < agent.text.size()) {
      const std::string more = agent.text.substr(agent.shown, static_cast<size_t>(1 + Below(4)));
      REQUIRE(world_.Append(agent.ticket, more).ok());
      agent.shown += more.size();
    } else if (!agent.is_text && agent.reported < agent.made.size()) {
      const size_t end = std::min(agent.made.size(), agent.reported + 1 + static_cast<size_t>(Below(4)));
      const auto at = [&](size_t index) { return agent.made.begin() + static_cast<std::ptrdiff_t>(index); };
      REQUIRE(world_.Append(agent.ticket, Ids(at(agent.reported), at(end))).ok());
      agent.reported = end;
    } else {
      world_.End(agent.ticket);
      agent.ended = true;
    }
  }

  // Generates up to four tokens, and shows a random part of their text.
  void Grow(Agent& agent) {
    const size_t tokens = std::min(agent.made.size(), agent.reported + static_cast<size_t>(Below(5)));
    const std::span<const TokenId> fresh(agent.made.data() + agent.reported, tokens - agent.reported);
    agent.reported = tokens;
    const bool last = tokens == agent.made.size();
    const std::string so_far = Bytes(*agent.tokenizer, Ids(agent.made.begin(), agent.made.begin() + tokens));
    const size_t most = std::min(so_far.size(), agent.text.size());
    const size_t shown = last ? agent.text.size() : std::max(agent.shown, most - std::min<size_t>(most, Below(6)));
    world_.graph.Made(world_.Node(agent.spec.id), fresh, agent.text.substr(agent.shown, shown - agent.shown));
    agent.shown = shown;
    if (last) {
      world_.End(agent.spec.id);
      agent.ended = true;
    } else {
      world_.Advance(absl::ZeroDuration());
    }
  }

  Ids Sequential(const Agent& agent) {
    Ids prompt;
    for (const PromptSegment& segment : agent.spec.segments) {
      if (const auto* ids = std::get_if<Ids>(&segment)) {
        prompt.insert(prompt.end(), ids->begin(), ids->end());
        continue;
      }
      const Agent& upstream = Named(std::get<Reference>(segment).upstream);
      const bool as_ids = !upstream.is_text && upstream.tokenizer == agent.tokenizer;
      const Ids ids = as_ids ? OwnIds(upstream) : TextIds(*agent.tokenizer, upstream.text);
      prompt.insert(prompt.end(), ids.begin(), ids.end());
    }
    return prompt;
  }

  // Returns the tokens that lie wholly before the stop string, and the encoding of the remaining
  // text.
  static Ids OwnIds(const Agent& agent) {
    Ids ids;
    size_t bytes = 0;
    for (const TokenId id : agent.made) {
      if (bytes + agent.tokenizer->TokenBytes(id).size() > agent.text.size()) break;
      bytes += agent.tokenizer->TokenBytes(id).size();
      ids.push_back(id);
    }
    const Ids rest = TextIds(*agent.tokenizer, agent.text.substr(bytes));
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  }

  std::mt19937 random_;
  const bool announce_ = Below(2) == 0;
  AgentWorld world_;
  std::vector<Agent> agents_;
};

TEST_CASE("AgentGraph gives the prompts of a sequential run in random graphs") {
  int failed = 0, restarted = 0;
  const Seeds seeds = ForEachWorld<RandomGraph>(1000, [&](const RandomGraph& graph) {
    failed += graph.failed;
    restarted += graph.restarted;
  });
  if (seeds.all()) CHECK((failed > 500 && restarted > 100));
}

}  // namespace
}  // namespace baton
