// Random prompts with part groups, `first` and both joins. Whatever the order in which outputs
// arrive, fail and time out, a prompt equals the one that is assembled at the end from the same
// outcomes. Tokens that were reported early are its prefix.
#include <algorithm>
#include <optional>
#include <random>

#include "world/agent_world.h"
#include "world/random_run.h"

namespace baton {
namespace {

// How the prompt's reference was settled.
struct Outcome {
  size_t reference = 0;
  absl::Status status{};
  std::string text{};   // of the output so far
  std::string agent{};  // the name as of now
};

class RandomJoin {
 public:
  explicit RandomJoin(uint64_t seed) : random_(seed) {
    const int outputs = 1 + Below(5);
    for (int i = 0; i < outputs; ++i) {
      upstreams_.push_back({.id = absl::StrCat("up", i)});
      if (Below(2) == 0) upstreams_.back().agent = absl::StrCat("agent", Below(3));
      if (Below(4) > 0) Submit(upstreams_.back());
    }
    prompt_.id = "down";
    prompt_.join = Below(2) == 0 ? Join::kOrder : Join::kArrival;
    for (int i = 1 + Below(6); i > 0; --i) {
      if (Below(3) == 0) prompt_.segments.emplace_back(Bytes(Words(20)));
      prompt_.segments.emplace_back(DrawReference());
    }
    prompt_.segments.emplace_back(Bytes("!"));
    for (const PromptSegment& segment : prompt_.segments) {
      if (const auto* reference = std::get_if<Reference>(&segment)) references_.push_back(*reference);
    }
    if (Below(3) > 0) prompt_.first = 1 + Below(static_cast<int>(references_.size()));
  }

  bool Event() {
    if (Below(6) == 0) SubmitPrompt();
    Upstream& upstream = upstreams_[static_cast<size_t>(Below(static_cast<int>(upstreams_.size())))];
    const int event = Below(10);
    if (event == 0) {
      Advance(absl::Seconds(1 + Below(4)));
    } else if (!upstream.submitted && !upstream.refused) {
      if (Below(3) == 0) {
        upstream.agent = "writer";  // the name of AgentWorld::Refuse
        upstream.refused = true;
        world_.Refuse(upstream.id, absl::InvalidArgumentError("why"));
        Settle(upstream.id, absl::InvalidArgumentError("why"), "");
      } else {
        Submit(upstream);
      }
    } else if (upstream.submitted && !upstream.ended) {
      event < 8 ? Write(upstream) : End(upstream, event == 8 ? absl::OkStatus() : absl::InternalError("broken"));
    }
    Check();
    return !submitted_ || world_.reported.at("down").complete == !world_.reported.at("down").failure.ok();
  }
  void CheckInvariants() const { world_.graph.CheckInvariants(); }
  void Settle() const {
    const Reported& reported = world_.reported.at("down");
    for (const auto& [restarts, tokens] : early_) {
      if (restarts == reported.restarts && reported.complete) REQUIRE(reported.tokens.size() >= tokens.size());
      if (restarts != reported.restarts || !reported.complete) continue;
      REQUIRE(std::ranges::equal(tokens, std::span(reported.tokens).first(tokens.size())));
    }
    const bool substitutes =
        std::ranges::any_of(references_, [](const Reference& r) { return r.on_failure == OnFailure::kSubstitute; });
    if (!substitutes) CHECK(reported.restarts == 0);
  }

 private:
  struct Upstream {
    RequestId id{};
    std::string agent{}, text{};
    bool submitted = false, ended = false, refused = false;
    absl::Status status{};
    // The graph learns the agent from a submission, which may be refused.
    std::string name() const { return agent.empty() || !(submitted || refused) ? id : agent; }
  };

  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  std::string Words(int most) {
    std::string text;
    for (int i = Below(most + 1); i > 0; --i) text += "abc \n"[Below(5)];
    return text;
  }
  std::vector<LabelPart> Label() {
    std::vector<LabelPart> label;
    for (int i = Below(4); i > 0; --i) label.push_back(Below(2) == 0 ? LabelPart(AgentName()) : Bytes("." + Words(9)));
    return label;
  }
  Reference DrawReference() {
    Reference reference{.upstream = upstreams_[static_cast<size_t>(Below(static_cast<int>(upstreams_.size())))].id,
                        .announced = true};
    constexpr OnFailure kAll[] = {OnFailure::kAbort, OnFailure::kPartial, OnFailure::kSubstitute};
    reference.on_failure = kAll[Below(3)];
    if (reference.on_failure == OnFailure::kSubstitute) reference.substitute = Bytes(Words(5));
    if (Below(3) == 0) reference.timeout = absl::Seconds(1 + Below(30));
    if (Below(3) > 0) reference.before = Label(), reference.after = Label();
    return reference;
  }

  Upstream& Find(const RequestId& id) { return *std::ranges::find(upstreams_, id, &Upstream::id); }

  // --- events, and the outcomes that they have ------------------------------------------------

  void Submit(Upstream& upstream) {
    upstream.submitted = true;
    if (!upstream.agent.empty()) world_.Name(upstream.id, upstream.agent);
    REQUIRE(world_.Submit(Spec(upstream.id, {Bytes("x")})).ok());
  }
  void Write(Upstream& upstream) {
    const std::string more = Words(30);
    upstream.text += more;
    world_.Made(upstream.id, more);
  }
  void End(Upstream& upstream, const absl::Status& status) {
    upstream.ended = true;
    upstream.status = status;
    world_.End(upstream.id, status);
    Settle(upstream.id, status, upstream.text);
  }
  void SubmitPrompt() {
    if (std::exchange(submitted_, true)) return;
    submitted_at_ = world_.now;
    for (size_t i = 0; i < references_.size(); ++i) {
      const Upstream& upstream = Find(references_[i].upstream);
      if (upstream.ended) outcomes_.push_back({i, upstream.status, upstream.text, upstream.name()});
      if (upstream.refused) outcomes_.push_back({i, absl::InvalidArgumentError("why"), "", upstream.name()});
    }
    const absl::Status status = world_.Submit(prompt_);
    if (!status.ok()) world_.reported["down"].failure = status;
  }
  void Settle(const RequestId& upstream, const absl::Status& status, const std::string& text) {
    for (size_t i = 0; submitted_ && i < references_.size(); ++i) {
      if (references_[i].upstream == upstream) outcomes_.push_back({i, status, text, Find(upstream).name()});
    }
  }
  void Advance(absl::Duration time) {
    std::vector<std::pair<absl::Time, size_t>> passed;
    for (size_t i = 0; submitted_ && i < references_.size(); ++i) {
      const absl::Time deadline = submitted_at_ + references_[i].timeout;
      if (deadline > world_.now && deadline <= world_.now + time) passed.emplace_back(deadline, i);
    }
    std::ranges::sort(passed);
    for (const auto& [deadline, i] : passed) {
      const Upstream& upstream = Find(references_[i].upstream);
      outcomes_.push_back({i, absl::DeadlineExceededError("late"), upstream.text, upstream.name()});
    }
    world_.Advance(time);
  }

  // --- the sequential prompt ------------------------------------------------------------------

  // Returns the prompt once it is known. An empty prompt means that it fails.
  std::optional<Ids> Sequential() {
    const size_t uses = prompt_.first == 0 ? references_.size() : static_cast<size_t>(prompt_.first);
    std::map<size_t, Ids> outputs;
    std::vector<size_t> used;
    for (const Outcome& outcome : outcomes_) {
      const Reference& reference = references_[outcome.reference];
      if (used.size() == uses || outputs.contains(outcome.reference)) continue;
      Ids& output = outputs[outcome.reference];
      if (outcome.status.ok() || reference.on_failure == OnFailure::kPartial) {
        output = Bytes(outcome.text);
      } else if (reference.on_failure == OnFailure::kSubstitute) {
        output = reference.substitute;
      } else if (references_.size() - (outputs.size() - used.size()) < uses) {
        return Ids();
      } else {
        continue;
      }
      used.push_back(outcome.reference);
    }
    if (used.size() < uses) return std::nullopt;
    return Assemble(outputs, used);
  }

  Ids Assemble(const std::map<size_t, Ids>& outputs, const std::vector<size_t>& used) {
    Ids prompt;
    size_t position = 0;
    for (const PromptSegment& segment : prompt_.segments) {
      if (const auto* text = std::get_if<Ids>(&segment)) {
        prompt.insert(prompt.end(), text->begin(), text->end());
        continue;
      }
      const size_t at = position++;
      std::optional<size_t> source;
      if (prompt_.join == Join::kArrival && at < used.size()) source = used[at];
      if (prompt_.join == Join::kOrder && std::ranges::find(used, at) != used.end()) source = at;
      if (!source || outputs.at(*source).empty()) continue;
      AddLabel(std::get<Reference>(segment).before, *source, prompt);
      prompt.insert(prompt.end(), outputs.at(*source).begin(), outputs.at(*source).end());
      AddLabel(std::get<Reference>(segment).after, *source, prompt);
    }
    return prompt;
  }
  void AddLabel(const std::vector<LabelPart>& label, size_t source, Ids& prompt) {
    const auto outcome = std::ranges::find(outcomes_, source, &Outcome::reference);
    for (const LabelPart& part : label) {
      const auto* text = std::get_if<Ids>(&part);
      const Ids ids = text != nullptr ? *text : Bytes(outcome->agent);
      prompt.insert(prompt.end(), ids.begin(), ids.end());
    }
  }

  void Check() {
    if (!submitted_) return;
    const Reported& reported = world_.reported["down"];
    early_.emplace_back(reported.restarts, reported.tokens);
    const std::optional<Ids> expected = Sequential();
    REQUIRE(reported.complete == (expected && !expected->empty()));
    REQUIRE(reported.failure.ok() == (!expected || !expected->empty()));
    if (reported.complete) REQUIRE(reported.tokens == *expected);
  }

  std::mt19937 random_;
  AgentWorld world_{AgentLimits{.keep_output = absl::Hours(9), .wait_announced = absl::Hours(9)}};
  std::vector<Upstream> upstreams_;
  NamedPrompt prompt_;
  std::vector<Reference> references_;  // of the prompt
  bool submitted_ = false;
  absl::Time submitted_at_;
  std::vector<Outcome> outcomes_;
  // The tokens that were reported at a time, and the restarts before.
  std::vector<std::pair<int, Ids>> early_;
};

TEST_CASE("A prompt with part groups equals the one assembled from the same outcomes") {
  ForEachWorld<RandomJoin>(2000, [](const RandomJoin&) {});
}

}  // namespace
}  // namespace baton
