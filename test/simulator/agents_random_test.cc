// Random workflows on a simulated cluster. Each agent must give the output that it gives to its
// whole prompt alone. That must hold for all step sizes, timings, cache states and failures: agents
// are refused, cancelled and lose their workers, and some are submitted again. Some outputs are
// values, which may come late, several times or never. Some requests refer to their own output, and
// some workflows are cancelled or have limits. AgentHistory computes the expected prompts from
// their segments and from the outputs that clients received.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent_history.h"
#include "backend/simulated/shapes.h"
#include "base/logging.h"
#include "base/retry.h"
#include "base/strings.h"
#include "catch.h"
#include "seeds.h"
#include "simulator/cluster.h"
#include "world/stage_times.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

// Counts of compared agents. They ensure that the test compares something.
struct Totals {
  int agents = 0, ended_well = 0, failed = 0, unneeded = 0;
  int values = 0, refused = 0, repeated = 0;
  int cycles = 0, flows_ended = 0;  // agents refused for a cycle, and ended with their workflow
  int discarded = 0;                // agents that ended well with fewer outputs than references
  // The number of agents that ended well and can have had only one prompt.
  int exactly_known = 0;
  StageTimes times;  // of all agents
};

class RandomWorkflow {
 public:
  RandomWorkflow(uint64_t seed, Totals& totals) : random_(seed), totals_(totals) {
    cluster_ = DrawCluster();
    DrawAgents();
  }

  // The second round finds the KV of the first, unless it was evicted.
  void Run() {
    const int rounds = 1 + Below(2);
    for (round_ = 0; round_ < rounds; ++round_) {
      CAPTURE(round_);
      Play();
      // If a stream broke after a commit and before the router's reply arrived, the hand-off's
      // lease must end first. Otherwise only a cancel may be in flight, while no worker has work.
      cluster_->RunFor(broken_ ? absl::Minutes(1) : absl::Milliseconds(10));
      REQUIRE(cluster_->BlocksHeld() == 0);
      REQUIRE(cluster_->router().sessions().waiting == 0);
      for (const SimulatedRequest& request : history_.requests()) Check(request);
      REQUIRE(cluster_->BlocksHeld() == 0);
    }
    // No session, slot, waiting prompt, announced request or kept output is left.
    cluster_->RunFor(AgentLimits().keep_output + AgentHistory::kRetryWait);
    REQUIRE(cluster_->router().sessions() == SessionGate::Counts{});
    REQUIRE(cluster_->router().core().slots().counts() == RequestSlots::Counts{});
    REQUIRE(cluster_->router().graph() == AgentGraph::Counts{});
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  absl::Duration Within(absl::Duration most) { return most * std::uniform_real_distribution<double>(0, 1)(random_); }
  template <typename T>
  T OneOf(std::initializer_list<T> all) {
    return all.begin()[Below(static_cast<int>(all.size()))];
  }

  // --- Random choices ----------------------------------------------------------------

  std::unique_ptr<SimulatedCluster> DrawCluster() {
    ClusterShape shape;
    shape.model = *ModelNamed("smollm2-135m");
    shape.model.layers = 2;
    shape.model.context = 1024;
    shape.device = *DeviceNamed("a100");
    shape.device.step_overhead = Within(absl::Milliseconds(2));
    shape.step_tokens = OneOf<int64_t>({16, 32, 48, 128, 512});
    if (Below(2) == 0) shape.increment = OneOf<int64_t>({1, 16, 40, 200});
    shape.blocks = OneOf<int64_t>({64, 128, 512});  // 64 blocks are too few for all agents at once
    shape.network = {.message = kMessage, .spread = kSpread, .push = Within(absl::Milliseconds(1)), .seed = random_()};
    shape.prefill_workers = 1 + Below(2);
    shape.decode_workers = 1 + Below(2);
    shape.pace = Within(absl::Milliseconds(20));
    // Too few for all agents at once.
    limited_ = Below(4) == 0;
    if (limited_) shape.live_requests = shape.waiting_prompts = 2 + Below(3);
    if (Below(4) > 0) shape.sessions = SessionLimits{.sessions = Below(4)};
    return *SimulatedCluster::Create(shape);
  }

  // Texts of few kinds, so that prompts share prefixes.
  Ids Text() {
    std::mt19937 text(static_cast<uint32_t>(Below(3)));
    Ids ids(OneOf<size_t>({1, 7, 16, 40, 64}));
    for (TokenId& id : ids) id = static_cast<TokenId>(text() % SimulatedBackend::kVocab);
    return ids;
  }

  // Draws the upstream of agent `i` of `count`, which may make a cycle. The test cannot see from
  // outside when a value ends among outputs of requests, and when an unknown reference fails. So an
  // agent that reads outputs in any order refers to neither.
  RequestId Upstream(int i, int count, bool any_order) {
    if (!any_order && Below(4) == 0) return absl::StrCat("value", Below(kValues));
    return absl::StrCat(Below(40) == 0 ? Below(count) : Below(i));
  }

  Reference ReferenceTo(const RequestId& upstream, bool any_order) {
    Reference reference{.upstream = upstream, .announced = Below(2) == 0};
    reference.on_failure = OneOf({OnFailure::kAbort, OnFailure::kPartial, OnFailure::kSubstitute});
    if (reference.on_failure == OnFailure::kSubstitute) reference.substitute = Text();
    if (!any_order && Below(10) == 0) reference.timeout = Within(absl::Milliseconds(300));
    if (Below(3) == 0) reference.before = Label(), reference.after = Label();
    return reference;
  }

  std::vector<LabelPart> Label() {
    std::vector<LabelPart> label(OneOf<size_t>({0, 1, 2}));
    for (LabelPart& part : label) part = Below(2) == 0 ? LabelPart(AgentName()) : Text();
    return label;
  }

  // Draws agents. Their names do not contain a round.
  void DrawAgents() {
    const int count = 2 + Below(6);
    for (int i = 0; i < count; ++i) {
      SimulatedRequest& agent = agents_.emplace_back();
      agent.id = absl::StrCat(i);
      agent.model = Below(2) == 0 ? SimulatedCluster::kPaced : SimulatedCluster::kModel;
      agent.join = Below(3) == 0 ? Join::kArrival : Join::kOrder;
      const bool takes_first = i > 0 && Below(4) == 0;
      const bool any_order = agent.join == Join::kArrival || takes_first;
      agent.max_tokens = Below(15) == 0 ? kTooMany : 1 + Below(40);
      agent.session = OneOf({"", "s", "t", "u", "v"});
      agent.stop = DrawStop();
      agent.keep = Below(2) == 0;
      for (int parts = 1 + Below(5); parts > 0; --parts) {
        const bool waits = i > 0 && Below(2) == 0;
        agent.segments.push_back(waits ? PromptSegment(ReferenceTo(Upstream(i, count, any_order), any_order)) : Text());
      }
      if (Below(25) == 0 && !any_order) agent.segments.emplace_back(ReferenceTo("nobody", any_order));
      // A prompt has at least one text, because all outputs may be empty. The router refuses an
      // empty prompt of complete outputs. If the outputs end a moment later, the request fails
      // instead.
      if (Below(4) > 0 || std::ranges::none_of(agent.segments, IsText)) agent.segments.push_back(Text());
      const auto references = static_cast<int32_t>(agent.segments.size()) - CountTexts(agent);
      if (takes_first && references > 0) agent.first = 1 + Below(references);
      if (Below(2) == 0) agent.workflow = kFlow;
      if (Below(30) == 0) agent.workflow_limits.deadline = Within(absl::Milliseconds(300));
      if (Below(30) == 0) agent.workflow_limits.max_tokens = 1 + Below(60);
    }
  }

  static int32_t CountTexts(const SimulatedRequest& agent) {
    return static_cast<int32_t>(std::ranges::count_if(agent.segments, IsText));
  }
  static bool IsText(const PromptSegment& segment) { return std::holds_alternative<Ids>(segment); }

  // Draws no stop string, one of one letter, or 40 of two letters. With 40, one of them occurs now
  // and then, split over two tokens.
  std::vector<std::string> DrawStop() {
    std::vector<std::string> stop(OneOf<size_t>({0, 0, 1, 40}));
    for (std::string& text : stop) {
      for (size_t i = stop.size() == 1 ? 1 : 2; i > 0; --i) text += static_cast<char>('0' + Below(64));
    }
    return stop;
  }

  // --- Run ----------------------------------------------------------------

  RequestId Name(const RequestId& agent) const { return absl::StrCat("round", round_, "-", agent); }

  using Events = std::multimap<absl::Duration, std::function<void()>>;
  // The submissions, values, cancellations and failures of a round, by time.
  Events DrawEvents() {
    Events events;
    const absl::Duration spread = absl::Milliseconds(OneOf({0, 20, 300}));
    std::map<RequestId, absl::Duration> times;
    for (int i = 0; i < kValues; ++i) DrawValue(Name(absl::StrCat("value", i)), Within(spread), events);
    for (const SimulatedRequest& agent : agents_) {
      const absl::Duration time = times[agent.id] = Within(spread);
      SimulatedRequest& request = history_.Add(agent);
      request.id = Name(agent.id);
      if (!request.workflow.empty()) request.workflow = Name(request.workflow);
      request.cache_domain = kCacheDomain;
      for (PromptSegment& segment : request.segments) {
        if (auto* reference = std::get_if<Reference>(&segment)) {
          const auto upstream = times.find(reference->upstream);
          reference->announced |= upstream == times.end() || upstream->second >= time;
          reference->upstream = Name(reference->upstream);
        }
      }
      events.emplace(time, [this, request] { Submit(request, /*more=*/3); });
      if (Below(8) > 0) continue;
      cancelled_.insert(request.id);
      events.emplace(time + Within(absl::Milliseconds(200)), [this, id = request.id] { cluster_->Cancel(id); });
    }
    if (Below(20) == 0) {
      const WorkflowKey flow{kCacheDomain, Name(kFlow)};
      events.emplace(Within(absl::Milliseconds(200)), [this, flow] {
        flow_cancelled_ = cluster_->Now();
        cluster_->CancelWorkflow(flow);
      });
    }
    if (Below(10) == 0) {
      broken_ = true;
      const absl::Duration time = Within(absl::Milliseconds(200));
      if (Below(3) == 0) {
        events.emplace(time, [this] { cluster_->Kill("prefill0"); });
        events.emplace(time + Within(absl::Milliseconds(100)), [this] { cluster_->Restart("prefill0"); });
      } else {
        const WorkerAddress worker = OneOf({"prefill0", "decode0", "paced"});
        events.emplace(time, [this, worker] { cluster_->BreakStream(worker); });
      }
    }
    return events;
  }

  // Draws a value of two parts, or none. It may fail, and may then be written again.
  void DrawValue(const RequestId& id, absl::Duration time, Events& events) {
    for (int attempts = Below(3); attempts > 0; --attempts) {
      const std::string text = LettersOf(Text());
      const size_t middle = text.size() / 2;
      const absl::Status end = OneOf({absl::OkStatus(), absl::AbortedError("broken"), absl::UnavailableError("lost")});
      events.emplace(time, [this, id, part = text.substr(0, middle)] { Put({.id = id, .text = part, .last = false}); });
      time += Within(absl::Milliseconds(200));
      events.emplace(time, [this, id, end, part = text.substr(middle)] {
        Put({.id = id, .text = part, .last = true, .status = end});
      });
      time += Within(absl::Milliseconds(200));
    }
  }

  void Put(SimulatedPart part) {
    part.cache_domain = kCacheDomain;
    std::vector<Attempt>& attempts = history_.AttemptsOf(part.id);
    const bool begins = attempts.empty() || attempts.back().over();
    // A value that is complete stays, and so does one whose output an unfinished prompt reads.
    if (!cluster_->Put(part).ok()) {
      REQUIRE(begins);
      return;
    }
    if (begins) attempts.push_back({.submitted = cluster_->Now()});
    for (const char letter : part.text) attempts.back().shown.push_back(letter - '0');
    if (part.last) history_.End(attempts.back(), part.status, cluster_->Now());
    totals_.values += part.last;
  }

  static std::string LettersOf(const Ids& tokens) {
    std::string text;
    for (const TokenId token : tokens) text += static_cast<char>('0' + token);
    return text;
  }

  // Submits the request, and after some failures again, at most `more` times.
  void Submit(const SimulatedRequest& request, int more) {
    history_.AttemptsOf(request.id).push_back({.submitted = cluster_->Now()});
    cluster_->Submit(0, request, [this, request, more] {
      const std::vector<Attempt>& attempts = history_.AttemptsOf(request.id);
      Attempt& attempt = history_.AttemptsOf(request.id).back();
      const SimulatedCluster::Ran& ran = cluster_->ran(request.id);
      history_.End(attempt, ran.status, cluster_->Now());
      attempt.refused = ran.total == absl::ZeroDuration();
      // Prompts keep the output of the attempt before until this one has tokens.
      const bool has_former = ran.tokens.empty() && attempts.size() > 1;
      attempt.shown = has_former ? attempts[attempts.size() - 2].shown : Shown(request, ran);
      totals_.refused += attempt.refused;
      if (more == 0 || !MayRetry(ran.status) || history_.IsReadInAnyOrder(request.id) || Below(8) == 0) return;
      ++totals_.repeated;
      cluster_->After(Within(absl::Seconds(3)), [this, request, more] { Submit(request, more - 1); });
    });
  }

  void Play() {
    history_ = AgentHistory();
    flow_cancelled_ = absl::InfiniteFuture();
    broken_ = false;
    const auto events = DrawEvents();
    const absl::Time began = cluster_->Now();
    for (const auto& [time, event] : events) {
      cluster_->RunFor(began + time - cluster_->Now());
      event();
    }
    cluster_->RunUntilIdle();
  }

  // --- Checks ----------------------------------------------------------------

  // The tokens before a stop string. If the request did not end well, the possible beginning of a
  // stop string at the end is left out too.
  static Ids Shown(const SimulatedRequest& request, const SimulatedCluster::Ran& ran) {
    const std::string text = LettersOf(ran.tokens);
    size_t end = text.size();
    for (const std::string& stop : request.stop) {
      end = std::min(end, text.find(stop));
      const bool may_begin = stop.size() == 2 && !text.empty() && text.back() == stop[0];
      if (may_begin && !ran.status.ok()) end = std::min(end, text.size() - 1);
    }
    return {ran.tokens.begin(), ran.tokens.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  // The output of the same request for this prompt. The prompt is sent whole, without references,
  // to the idle cluster, and no KV is cached for it.
  Ids OutputAlone(const SimulatedRequest& request, const Ids& prompt) {
    SimulatedRequest alone = request;
    alone.id = absl::StrCat("alone", ++alone_);
    alone.cache_domain = alone.id;
    alone.segments = {prompt};
    alone.first = 0;
    alone.workflow.clear();
    alone.workflow_limits = {};
    const RequestId id = alone.id;
    cluster_->Submit(0, std::move(alone), nullptr);
    cluster_->RunUntilIdle();
    REQUIRE(cluster_->ran(id).status == absl::OkStatus());
    return cluster_->ran(id).tokens;
  }

  void Check(const SimulatedRequest& request) {
    CAPTURE(request.id);
    const SimulatedCluster::Ran ran = cluster_->ran(request.id);
    INFO(ran.status << "\n" << history_.Text());
    CheckTimes(ran);
    // No request outlives a cancellation of its workflow.
    const bool was_live =
        flow_cancelled_ < absl::InfiniteFuture() && ran.submitted + AgentHistory::kSlack < flow_cancelled_;
    if (!request.workflow.empty() && was_live) REQUIRE(ran.ended <= flow_cancelled_ + AgentHistory::kSlack);
    const ExpectedPrompts expected = history_.PromptsOf(request, ran.submitted);
    ++totals_.agents;
    if (!ran.status.ok()) CheckFailure(request, ran, expected);
    if (!ran.status.ok() && ran.tokens.empty()) return;
    CAPTURE(expected.prompts.size(), ran.tokens);
    const bool is_right = std::ranges::any_of(expected.prompts, [&](const Ids& prompt) {
      if (prompt.empty()) return false;
      Ids output = OutputAlone(request, prompt);
      // Only the part that the client received.
      if (!ran.status.ok()) output.resize(std::min(output.size(), ran.tokens.size()));
      return output == ran.tokens;
    });
    REQUIRE(is_right);
    totals_.ended_well += ran.status.ok();
    totals_.exactly_known += ran.status.ok() && expected.prompts.size() == 1;
    const auto references = static_cast<int32_t>(request.segments.size()) - CountTexts(request);
    totals_.discarded += ran.status.ok() && request.first > 0 && request.first < references;
  }

  void CheckTimes(const SimulatedCluster::Ran& ran) {
    for (const StageRow& stage : kStageTable) {
      CAPTURE(stage.name);
      REQUIRE(ran.times.*stage.time >= absl::ZeroDuration());
      totals_.times.*stage.time += ran.times.*stage.time;
    }
    REQUIRE(Sum(ran.times) == ran.total);
    REQUIRE(ran.total <= ran.ended - ran.submitted);
    // A refused request has no stages. In all other cases, two messages and no stage are left.
    if (ran.total > absl::ZeroDuration()) REQUIRE(ran.total >= ran.ended - ran.submitted - AgentHistory::kSlack);
  }

  void CheckFailure(const SimulatedRequest& request, const SimulatedCluster::Ran& ran,
                    const ExpectedPrompts& expected) {
    const absl::Status& status = ran.status;
    const std::string message(Message(status));
    const bool is_of_output = absl::StrContains(message, "output_of");
    ++totals_.failed;
    if (absl::IsCancelled(status) && message.starts_with("no request needs")) {
      ++totals_.unneeded;
      REQUIRE_FALSE(request.keep);
      REQUIRE(history_.WasUnneeded(request.id));
    } else if (absl::StrContains(message, "workflow") && !is_of_output) {
      ++totals_.flows_ended;
      REQUIRE_FALSE(request.workflow.empty());
      REQUIRE((absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) || absl::IsFailedPrecondition(status)));
    } else if (absl::IsInvalidArgument(status) && request.max_tokens != kTooMany) {
      ++totals_.cycles;
      REQUIRE(history_.IsInCycle(request.id));
    } else if (absl::IsCancelled(status)) {
      REQUIRE(cancelled_.contains(request.id));
    } else {
      const bool is_full = limited_ && absl::IsResourceExhausted(status);
      const bool is_wrong = request.max_tokens == kTooMany && absl::IsInvalidArgument(status);
      REQUIRE((absl::IsAborted(status) || absl::IsUnavailable(status) || is_full || is_wrong));
      REQUIRE((expected.may_fail || is_full || is_wrong || (broken_ && absl::IsUnavailable(status))));
      if (is_of_output) REQUIRE(history_.IsTimely(request, ran.submitted, ran.ended));
    }
  }

  static constexpr int kValues = 2;
  static constexpr int32_t kTooMany = 5000;  // exceeds the context length
  static constexpr char kCacheDomain[] = "one for both rounds";
  static constexpr char kFlow[] = "flow";
  // See AgentHistory::kSlack.
  static constexpr absl::Duration kMessage = absl::Microseconds(100);
  static constexpr double kSpread = 0.5;

  std::mt19937 random_;
  Totals& totals_;
  std::unique_ptr<SimulatedCluster> cluster_;
  std::vector<SimulatedRequest> agents_;
  int round_ = 0;
  AgentHistory history_;  // of this round
  std::set<RequestId> cancelled_;
  absl::Time flow_cancelled_;
  bool broken_ = false;
  bool limited_ = false;  // few requests fit into the router
  int alone_ = 0;
};

TEST_CASE("Outputs equal those of whole prompts for all timings and failures") {
  spdlog::set_level(spdlog::level::off);
  Totals totals;
  const Seeds seeds = ForEachSeed(1000, [&](uint64_t seed) { RandomWorkflow(seed, totals).Run(); });
  spdlog::set_level(spdlog::level::info);
  CAPTURE(totals.agents, totals.ended_well, totals.exactly_known, totals.failed, totals.unneeded);
  CAPTURE(totals.values, totals.refused, totals.repeated, totals.cycles, totals.flows_ended, totals.discarded);
  if (seeds.all()) {
    CHECK(totals.ended_well > totals.agents / 2);
    CHECK(totals.exactly_known > totals.ended_well * 9 / 10);
    CHECK(totals.failed > totals.agents / 20);
    CHECK(totals.unneeded > 10);
    CHECK(totals.values > totals.agents / 10);
    CHECK(totals.refused > totals.agents / 20);
    CHECK(totals.repeated > totals.agents / 50);
    CHECK(totals.cycles > 10);
    CHECK(totals.flows_ended > 10);
    CHECK(totals.discarded > totals.agents / 50);
    for (const StageRow& stage : kStageTable) {
      CAPTURE(stage.name);
      CHECK(totals.times.*stage.time > absl::ZeroDuration());
    }
  }
}

}  // namespace
}  // namespace baton
