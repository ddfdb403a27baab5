// Random workflows on a simulated cluster. Each agent must give the output that it gives to its
// whole prompt alone. That must hold for all step sizes, timings, cache states and failures: agents
// are refused, cancelled and lose their workers, and some are submitted again. Some outputs are
// values, which may come late, several times or never. The test does not use references to compute
// the expected prompts. It assembles them from their segments and from the outputs that clients
// received.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
      for (const SimulatedRequest& request : requests_) Check(request);
      REQUIRE(cluster_->BlocksHeld() == 0);
    }
    // No session, slot, waiting prompt, announced request or kept output is left.
    cluster_->RunFor(AgentLimits().keep_output + kRetryWait);
    REQUIRE(cluster_->router().sessions() == SessionGate::Counts{});
    REQUIRE(cluster_->router().core().slots().counts() == RequestSlots::Counts{});
    REQUIRE(cluster_->router().graph() == AgentGraph::Counts{});
  }

 private:
  // A submission of a request or value, as its client saw it.
  struct Attempt {
    absl::Time submitted;
    absl::Status status{};
    absl::Time ended = absl::InfiniteFuture();
    Ids shown{};  // tokens of the output
    bool refused = false;
    size_t rank = SIZE_MAX;  // position among all ends
    bool over() const { return ended != absl::InfiniteFuture(); }
  };

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

  // Draws the upstream of agent `i`. The test cannot see from outside when a value ends among
  // outputs of requests, and when an unknown reference fails. So with kArrival there are neither.
  RequestId Upstream(int i, Join join) {
    return join == Join::kArrival || Below(4) > 0 ? absl::StrCat(Below(i)) : absl::StrCat("value", Below(kValues));
  }

  Reference ReferenceTo(const RequestId& upstream, Join join) {
    Reference reference{.upstream = upstream, .announced = Below(2) == 0};
    reference.on_failure = OneOf({OnFailure::kAbort, OnFailure::kPartial, OnFailure::kSubstitute});
    if (reference.on_failure == OnFailure::kSubstitute) reference.substitute = Text();
    if (join == Join::kOrder && Below(10) == 0) reference.timeout = Within(absl::Milliseconds(300));
    return reference;
  }

  // Draws agents. Their names do not contain a round.
  void DrawAgents() {
    const int count = 2 + Below(6);
    for (int i = 0; i < count; ++i) {
      SimulatedRequest& agent = agents_.emplace_back();
      agent.id = absl::StrCat(i);
      agent.model = Below(2) == 0 ? SimulatedCluster::kPaced : SimulatedCluster::kModel;
      agent.join = Below(3) == 0 ? Join::kArrival : Join::kOrder;
      agent.max_tokens = Below(15) == 0 ? kTooMany : 1 + Below(40);
      agent.session = OneOf({"", "s", "t", "u", "v"});
      agent.stop = DrawStop();
      agent.keep = Below(2) == 0;
      for (int parts = 1 + Below(5); parts > 0; --parts) {
        const bool waits = i > 0 && Below(2) == 0;
        agent.segments.push_back(waits ? PromptSegment(ReferenceTo(Upstream(i, agent.join), agent.join)) : Text());
      }
      if (Below(25) == 0 && agent.join == Join::kOrder) {
        agent.segments.emplace_back(ReferenceTo("nobody", agent.join));
      }
      // A prompt has at least one text, because all outputs may be empty. The router refuses an
      // empty prompt of complete outputs. If the outputs end a moment later, the request fails
      // instead.
      if (Below(4) > 0 || std::ranges::none_of(agent.segments, IsText)) agent.segments.push_back(Text());
    }
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
      SimulatedRequest& request = requests_.emplace_back(agent);
      request.id = Name(agent.id);
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
    std::vector<Attempt>& attempts = attempts_[part.id];
    const bool begins = attempts.empty() || attempts.back().over();
    // A value that is complete stays, and so does one whose output an unfinished prompt reads.
    if (!cluster_->Put(part).ok()) {
      REQUIRE(begins);
      return;
    }
    if (begins) attempts.push_back({.submitted = cluster_->Now()});
    for (const char letter : part.text) attempts.back().shown.push_back(letter - '0');
    if (part.last) End(attempts.back(), part.status);
    totals_.values += part.last;
  }

  static std::string LettersOf(const Ids& tokens) {
    std::string text;
    for (const TokenId token : tokens) text += static_cast<char>('0' + token);
    return text;
  }

  void End(Attempt& attempt, const absl::Status& status) {
    attempt.status = status;
    attempt.ended = cluster_->Now();
    attempt.rank = ends_++;
  }

  // Submits the request, and after some failures again, at most `more` times.
  void Submit(const SimulatedRequest& request, int more) {
    attempts_[request.id].push_back({.submitted = cluster_->Now()});
    cluster_->Submit(0, request, [this, request, more] {
      Attempt& attempt = attempts_.at(request.id).back();
      const SimulatedCluster::Ran& ran = cluster_->ran(request.id);
      End(attempt, ran.status);
      attempt.refused = ran.total == absl::ZeroDuration();
      // Prompts keep the output of the attempt before until this one has tokens.
      const bool has_former = ran.tokens.empty() && attempts_.at(request.id).size() > 1;
      attempt.shown = has_former ? (&attempt - 1)->shown : Shown(request, ran);
      totals_.refused += attempt.refused;
      // The test cannot see which attempt a prompt with kArrival waits for.
      if (more == 0 || !MayRetry(ran.status) || IsReadInAnyOrder(request.id) || Below(8) == 0) return;
      ++totals_.repeated;
      cluster_->After(Within(absl::Seconds(3)), [this, request, more] { Submit(request, more - 1); });
    });
  }

  bool IsReadInAnyOrder(const RequestId& id) const {
    return std::ranges::any_of(requests_, [&](const SimulatedRequest& reader) {
      return reader.join == Join::kArrival && std::ranges::any_of(reader.segments, [&](const PromptSegment& segment) {
               const auto* reference = std::get_if<Reference>(&segment);
               return reference != nullptr && reference->upstream == id;
             });
    });
  }

  void Play() {
    requests_.clear();
    broken_ = false;
    attempts_.clear();
    ends_ = 0;
    const auto events = DrawEvents();
    const absl::Time began = cluster_->Now();
    for (const auto& [time, event] : events) {
      cluster_->RunFor(began + time - cluster_->Now());
      event();
    }
    cluster_->RunUntilIdle();
  }

  // --- Checks ----------------------------------------------------------------

  // The last attempt of a request.
  const Attempt& LastOf(const RequestId& id) const {
    static const Attempt none;  // no request has this id
    const auto found = attempts_.find(id);
    return found == attempts_.end() ? none : found->second.back();
  }

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

  // The attempts of an upstream request whose end may have settled a reference of a prompt that was
  // submitted at this time.
  std::vector<Attempt> AttemptsFor(const Reference& reference, absl::Time submitted) const {
    const auto found = attempts_.find(reference.upstream);
    if (found == attempts_.end()) return {Attempt{}};
    const std::vector<Attempt>& all = found->second;
    std::vector<Attempt> attempts;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_last = i + 1 == all.size();
      // The next one had taken its place.
      if (!is_last && all[i + 1].submitted + kSlack < submitted) continue;
      // The prompt may wait for the next one, until a timeout.
      const bool waits = MayRetry(all[i].status) && (reference.announced || all[i].refused);
      if (!is_last && waits && reference.announced && reference.timeout == absl::InfiniteDuration()) continue;
      attempts.push_back(all[i]);
      if (all[i].ended > submitted + kSlack && !waits) break;
    }
    return attempts;
  }

  // The prompts that a request can have had, judging by the outputs that clients received.
  struct Expected {
    std::vector<Ids> prompts{};
    bool may_fail = false;  // because an upstream request failed
  };

  // The tokens that may stand for the reference. An element without value means that the prompt
  // fails.
  std::vector<std::optional<Ids>> Candidates(const Reference& reference, absl::Time submitted) const {
    std::vector<std::optional<Ids>> candidates;
    for (const Attempt& attempt : AttemptsFor(reference, submitted))
      AddCandidates(reference, submitted, attempt, candidates);
    return candidates;
  }

  static void AddCandidates(const Reference& reference, absl::Time submitted, const Attempt& output,
                            std::vector<std::optional<Ids>>& candidates) {
    const Ids& shown = output.shown;
    const auto on_failure = [&](size_t least) {
      if (reference.on_failure == OnFailure::kAbort) candidates.push_back(std::nullopt);
      if (reference.on_failure == OnFailure::kSubstitute) candidates.emplace_back(reference.substitute);
      for (size_t part = least; reference.on_failure == OnFailure::kPartial && part <= shown.size(); ++part) {
        candidates.emplace_back(Ids(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(part)));
      }
    };
    const absl::Time deadline = submitted + reference.timeout;
    // The output may have ended before the deadline.
    if (output.ended <= deadline + kSlack) {
      output.status.ok() && output.over() ? static_cast<void>(candidates.emplace_back(shown))
                                          : on_failure(shown.size());
    }
    if (output.ended > deadline - kSlack && deadline != absl::InfiniteFuture()) on_failure(0);
  }

  // The possible orders of the references' outputs in the prompt.
  std::vector<std::vector<Reference>> Orders(const SimulatedRequest& request, absl::Time submitted) const {
    std::vector<Reference> references;
    for (const PromptSegment& segment : request.segments) {
      if (const auto* reference = std::get_if<Reference>(&segment)) references.push_back(*reference);
    }
    if (request.join == Join::kOrder) return {references};
    // The outputs that are complete when the request arrives come first, in the prompt's order. The
    // test cannot see whether they were complete if they ended at about that time.
    std::set<absl::Time> arrivals = {submitted};
    for (const Reference& reference : references) {
      const absl::Time ended = LastOf(reference.upstream).ended;
      if (ended > submitted && ended <= submitted + kSlack) arrivals.insert(ended);
    }
    std::vector<std::vector<Reference>> orders;
    for (const absl::Time arrived : arrivals) {
      for (const bool refused_waits : {false, true}) {
        std::ranges::stable_sort(orders.emplace_back(references), {}, [&](const Reference& reference) {
          const Attempt& last = LastOf(reference.upstream);
          // The prompt waits for another attempt, which does not come.
          const bool waits = MayRetry(last.status) && (reference.announced || (last.refused && refused_waits));
          if (last.ended <= arrived && !waits) return std::pair(absl::InfinitePast(), size_t{0});
          return std::pair(last.ended + (waits ? kRetryWait : absl::ZeroDuration()), last.rank);
        });
      }
    }
    return orders;
  }

  Expected ExpectedOf(const SimulatedRequest& request) const {
    const absl::Time submitted = cluster_->ran(request.id).submitted;
    Expected expected;
    for (const std::vector<Reference>& order : Orders(request, submitted)) {
      std::vector<Ids> prompts = {{}};
      auto reference = order.begin();
      for (const PromptSegment& segment : request.segments) {
        std::vector<std::optional<Ids>> candidates;
        if (const auto* text = std::get_if<Ids>(&segment)) {
          candidates.emplace_back(*text);
        } else {
          candidates = Candidates(*reference++, submitted);
        }
        std::vector<Ids> longer;
        for (const std::optional<Ids>& candidate : candidates) {
          expected.may_fail |= !candidate;
          for (Ids prompt : candidate ? prompts : std::vector<Ids>()) {
            prompt.insert(prompt.end(), candidate->begin(), candidate->end());
            longer.push_back(std::move(prompt));
          }
        }
        prompts = std::move(longer);
      }
      expected.prompts.insert(expected.prompts.end(), prompts.begin(), prompts.end());
    }
    std::ranges::sort(expected.prompts);
    expected.prompts.erase(std::ranges::unique(expected.prompts).begin(), expected.prompts.end());
    return expected;
  }

  // The output of the same request for this prompt. The prompt is sent whole, without references,
  // to the idle cluster, and no KV is cached for it.
  Ids OutputAlone(const SimulatedRequest& request, const Ids& prompt) {
    SimulatedRequest alone = request;
    alone.id = absl::StrCat("alone", ++alone_);
    alone.cache_domain = alone.id;
    alone.segments = {prompt};
    const RequestId id = alone.id;
    cluster_->Submit(0, std::move(alone), nullptr);
    cluster_->RunUntilIdle();
    REQUIRE(cluster_->ran(id).status == absl::OkStatus());
    return cluster_->ran(id).tokens;
  }

  // Describes all attempts of this round, for failures.
  std::string AttemptsText() const {
    std::string text;
    for (const auto& [id, attempts] : attempts_) {
      for (const Attempt& a : attempts) {
        absl::StrAppend(&text, id, ": ", absl::FormatDuration(a.submitted - absl::UnixEpoch()), " to ",
                        absl::FormatDuration(a.ended - absl::UnixEpoch()), a.refused ? " refused " : " ",
                        a.shown.size(), " tokens ", absl::StatusCodeToString(a.status.code()), "\n");
      }
    }
    return text;
  }

  void Check(const SimulatedRequest& request) {
    CAPTURE(request.id);
    const SimulatedCluster::Ran ran = cluster_->ran(request.id);
    INFO(ran.status << "\n" << AttemptsText());
    CheckTimes(ran);
    const Expected expected = ExpectedOf(request);
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
    if (ran.total > absl::ZeroDuration()) REQUIRE(ran.total >= ran.ended - ran.submitted - kSlack);
  }

  void CheckFailure(const SimulatedRequest& request, const SimulatedCluster::Ran& ran, const Expected& expected) {
    const absl::Status& status = ran.status;
    ++totals_.failed;
    if (absl::IsCancelled(status) && Message(status).starts_with("no request needs")) {
      ++totals_.unneeded;
      REQUIRE_FALSE(request.keep);
      REQUIRE(WasUnneeded(request.id));
    } else if (absl::IsCancelled(status)) {
      REQUIRE(cancelled_.contains(request.id));
    } else {
      const bool is_full = limited_ && absl::IsResourceExhausted(status);
      const bool is_wrong = request.max_tokens == kTooMany && absl::IsInvalidArgument(status);
      REQUIRE((absl::IsAborted(status) || absl::IsUnavailable(status) || is_full || is_wrong));
      REQUIRE((expected.may_fail || is_full || is_wrong || (broken_ && absl::IsUnavailable(status))));
      if (Message(status).starts_with("output_of")) REQUIRE(IsTimely(request, ran));
    }
  }

  // Returns whether a request that failed because of an output ended when it had to: with its
  // upstream request, after the wait for another attempt, or at a timeout.
  bool IsTimely(const SimulatedRequest& request, const SimulatedCluster::Ran& ran) const {
    const auto is_near = [&](absl::Time time) { return absl::AbsDuration(ran.ended - time) <= 2 * kSlack; };
    return is_near(ran.submitted) || std::ranges::any_of(request.segments, [&](const PromptSegment& segment) {
             const auto* reference = std::get_if<Reference>(&segment);
             if (reference == nullptr) return false;
             const auto found = attempts_.find(reference->upstream);
             // The wait for an announced request begins with the first prompt that refers to it.
             if (found == attempts_.end() || is_near(ran.submitted + reference->timeout)) return true;
             return std::ranges::any_of(found->second, [&](const Attempt& attempt) {
               return is_near(attempt.ended) || is_near(attempt.ended + kRetryWait);
             });
           });
  }

  // Returns whether requests referred to the output, and none may have needed it when its request
  // ended.
  bool WasUnneeded(const RequestId& id) const {
    bool referred = false, needed = false;
    const absl::Time ended = LastOf(id).ended + kSlack;
    for (const SimulatedRequest& other : requests_) {
      for (const PromptSegment& segment : other.segments) {
        const auto* reference = std::get_if<Reference>(&segment);
        if (reference == nullptr || reference->upstream != id) continue;
        for (const Attempt& attempt : attempts_.at(other.id)) {
          if (attempt.submitted > ended) continue;
          referred = true;
          // The router may have had no such request yet.
          if (attempt.refused || attempt.submitted + 2 * kSlack > ended) continue;
          const bool times_out = attempt.submitted + reference->timeout <= ended;
          // A failed attempt needs the output until the next one comes, or for ten seconds.
          const bool waits = &attempt != &attempts_.at(other.id).back() && MayRetry(attempt.status);
          const absl::Time until = waits ? (&attempt + 1)->submitted : attempt.ended;
          needed |= until > ended && !times_out;
        }
      }
    }
    return referred && !needed;
  }

  static constexpr int kValues = 2;
  static constexpr int32_t kTooMany = 5000;  // exceeds the context length
  // How long a prompt waits for another attempt of a failed request.
  static constexpr absl::Duration kRetryWait = absl::Seconds(11);
  static constexpr char kCacheDomain[] = "one for both rounds";
  // kSlack exceeds the time of a message from a client to the router and back.
  static constexpr absl::Duration kMessage = absl::Microseconds(100);
  static constexpr double kSpread = 0.5;
  static constexpr absl::Duration kSlack = absl::Microseconds(300);

  std::mt19937 random_;
  Totals& totals_;
  std::unique_ptr<SimulatedCluster> cluster_;
  std::vector<SimulatedRequest> agents_;
  int round_ = 0;
  std::vector<SimulatedRequest> requests_;  // of this round
  std::set<RequestId> cancelled_;
  bool broken_ = false;
  bool limited_ = false;                                // few requests fit into the router
  std::map<RequestId, std::vector<Attempt>> attempts_;  // of requests and values, in order
  size_t ends_ = 0;                                     // of all attempts
  int alone_ = 0;
};

TEST_CASE("Outputs equal those of whole prompts for all timings and failures") {
  spdlog::set_level(spdlog::level::off);
  Totals totals;
  const Seeds seeds = ForEachSeed(1000, [&](uint64_t seed) { RandomWorkflow(seed, totals).Run(); });
  spdlog::set_level(spdlog::level::info);
  CAPTURE(totals.agents, totals.ended_well, totals.exactly_known, totals.failed, totals.unneeded);
  CAPTURE(totals.values, totals.refused, totals.repeated);
  if (seeds.all()) {
    CHECK(totals.ended_well > totals.agents / 2);
    CHECK(totals.exactly_known > totals.ended_well * 9 / 10);
    CHECK(totals.failed > totals.agents / 20);
    CHECK(totals.unneeded > 10);
    CHECK(totals.values > totals.agents / 10);
    CHECK(totals.refused > totals.agents / 20);
    CHECK(totals.repeated > totals.agents / 50);
    for (const StageRow& stage : kStageTable) {
      CAPTURE(stage.name);
      CHECK(totals.times.*stage.time > absl::ZeroDuration());
    }
  }
}

}  // namespace
}  // namespace baton
