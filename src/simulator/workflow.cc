#include "simulator/workflow.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "simulator/hash.h"

namespace baton {

std::vector<TokenId> TokensOf(const NamedTokens& named) {
  std::mt19937_64 random(Fnv1a(named.name));
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < named.length; ++i)
    tokens.push_back(static_cast<TokenId>(random() % SimulatedBackend::kVocab));
  return tokens;
}

absl::Status CheckArrivals(const std::vector<absl::Duration>& arrivals, size_t count) {
  if (arrivals.empty()) return absl::OkStatus();
  if (arrivals.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("arrivals: ", arrivals.size(), ", expected none or ", count));
  }
  if (arrivals.front() < absl::ZeroDuration() || !std::ranges::is_sorted(arrivals)) {
    return absl::InvalidArgumentError("arrivals: expected times of 0 s or later, in ascending order");
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckOrder(const Workflow& workflow) {
  std::set<std::string> named;
  for (const Agent& agent : workflow) {
    for (const auto& part : agent.parts) {
      const auto* output = std::get_if<OutputOf>(&part);
      if (output != nullptr && !named.contains(output->agent)) {
        return absl::InvalidArgumentError(
            absl::StrCat("agent '", agent.name, "' waits for '", output->agent, "', expected an earlier agent"));
      }
    }
    if (!named.insert(agent.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two agents are named '", agent.name, "'"));
    }
  }
  return absl::OkStatus();
}

class Runner {
 public:
  Runner(SimulatedCluster& cluster, const std::vector<Workflow>& workflows, RunOptions options, bool has_paced)
      : cluster_(cluster), workflows_(workflows), options_(std::move(options)), has_paced_(has_paced) {}

  // Links prefill workers with all decode workers. The warm-up steps also let the workers measure
  // the cost of steps. No later request finds KV of the warm-up.
  void WarmUp() {
    for (const int64_t tokens : {32, 512, 64, 256, 128}) {
      for (const char* model : {SimulatedCluster::kModel, SimulatedCluster::kPaced}) {
        if (model == SimulatedCluster::kPaced && !has_paced_) continue;
        const std::string name = absl::StrCat("warm ", tokens, " ", model);
        SimulatedRequest request{.id = name, .model = model, .cache_domain = name, .max_tokens = 1};
        request.segments.emplace_back(TokensOf({name, tokens}));
        cluster_.Submit(0, std::move(request), nullptr);
        cluster_.RunUntilIdle();
      }
    }
  }

  absl::StatusOr<RunResult> Run() {
    const absl::Time began = cluster_.Now();
    const size_t steps_before = cluster_.steps().size();
    started_.resize(workflows_.size());
    for (size_t w = 0; w < workflows_.size(); ++w) {
      if (!options_.arrivals.empty()) cluster_.RunFor(began + options_.arrivals[w] - cluster_.Now());
      StartReady(w);
    }
    cluster_.RunUntilIdle();
    RunResult result;
    for (size_t w = 0; w < workflows_.size(); ++w) {
      auto& agents = result.workflows.emplace_back();
      for (const Agent& agent : workflows_[w]) {
        // An upstream agent failed.
        if (!started_[w].contains(agent.name)) continue;
        const SimulatedCluster::Ran& ran = cluster_.ran(IdOf(w, agent.name));
        if (!ran.status.ok()) return ran.status;
        agents[agent.name] = {ran.submitted - began, ran.first - began, ran.ended - began, ran.tokens};
      }
    }
    result.steps.assign(cluster_.steps().begin() + static_cast<std::ptrdiff_t>(steps_before), cluster_.steps().end());
    result.blocks_held = cluster_.BlocksHeld();
    return result;
  }

 private:
  static RequestId IdOf(size_t workflow, const std::string& agent) { return absl::StrCat(workflow, " ", agent); }

  // Starts all agents that have no unfinished upstream agent.
  void StartReady(size_t w) {
    for (const Agent& agent : workflows_[w]) {
      const bool waits = !options_.overlap && std::ranges::any_of(agent.parts, [&](const auto& part) {
        const auto* output = std::get_if<OutputOf>(&part);
        return output != nullptr && !ended_.contains({w, output->agent});
      });
      if (!waits && started_[w].insert(agent.name).second) Start(w, agent);
    }
  }

  void Start(size_t w, const Agent& agent) {
    SimulatedRequest request;
    request.id = IdOf(w, agent.name);
    request.model = agent.paced && has_paced_ ? SimulatedCluster::kPaced : SimulatedCluster::kModel;
    request.cache_domain = options_.share ? "shared" : absl::StrCat(w);
    request.max_tokens = agent.output;
    request.workflow = absl::StrCat("workflow ", w);
    request.agent = agent.name;
    for (const auto& part : agent.parts) {
      if (const auto* output = std::get_if<OutputOf>(&part)) {
        request.segments.emplace_back(Reference{.upstream = IdOf(w, output->agent)});
      } else {
        request.segments.emplace_back(TokensOf(std::get<NamedTokens>(part)));
      }
    }
    cluster_.Submit(w, std::move(request), [this, w, name = agent.name] {
      ended_.insert({w, name});
      if (cluster_.ran(IdOf(w, name)).status.ok()) StartReady(w);
    });
  }

  SimulatedCluster& cluster_;
  const std::vector<Workflow>& workflows_;
  const RunOptions options_;
  const bool has_paced_;
  std::vector<std::set<std::string>> started_;  // by workflow
  std::set<std::pair<size_t, std::string>> ended_;
};

}  // namespace

absl::StatusOr<RunResult> RunWorkflows(const ClusterShape& shape, const std::vector<Workflow>& workflows,
                                       const RunOptions& options) {
  for (const Workflow& workflow : workflows) RETURN_IF_ERROR(CheckOrder(workflow));
  RETURN_IF_ERROR(CheckArrivals(options.arrivals, workflows.size()));
  ASSIGN_OR_RETURN(const std::unique_ptr<SimulatedCluster> cluster, SimulatedCluster::Create(shape));
  Runner runner(*cluster, workflows, options, shape.pace.has_value());
  runner.WarmUp();
  return runner.Run();
}

}  // namespace baton
