// Runs agent workflows in simulated clusters: one run per line of standard input, its result as one line of standard
// output, JSON both. bench/agents --simulated writes the runs and reads the results; every figure is simulated.
//
//   {"model": "qwen2.5-7b", "device": "a100", "overlap": true, "share": true,
//    "tokens_per_s": 50,     of agents with "paced": true; unset: all run at the device's speed
//    "step_tokens": 512, "increment": 64, "seed": 1,     optional
//    "schedule": "sjf",                                  as the router's --schedule; "fcfs" where unset
//    "arrivals": [0, 1.5],                               seconds, one for each workflow; unset: all at once
//    "workflows": [[{"name": "A", "output": 64, "paced": true, "parts": [{"ids": "name", "length": 64}]},
//                   {"name": "B", "output": 1, "parts": [{"output_of": "A"}]}]]}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/simulated/shapes.h"
#include "base/status.h"
#include "base/strings.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

using Json = nlohmann::json;

Agent ReadAgent(const Json& json) {
  Agent agent{.name = json.at("name"), .output = json.at("output"), .paced = json.value("paced", false)};
  for (const Json& part : json.at("parts")) {
    if (part.contains("output_of")) {
      agent.parts.push_back(OutputOf{part["output_of"]});
    } else {
      agent.parts.push_back(NamedTokens{part.at("ids"), part.at("length")});
    }
  }
  return agent;
}

absl::StatusOr<ClusterShape> ReadShape(const Json& json) {
  ClusterShape shape;
  ASSIGN_OR_RETURN(shape.model, ModelNamed(json.at("model").get<std::string>()));
  ASSIGN_OR_RETURN(shape.device, DeviceNamed(json.at("device").get<std::string>()));
  if (json.contains("tokens_per_s")) shape.pace = absl::Seconds(1 / json["tokens_per_s"].get<double>());
  if (json.contains("increment")) shape.increment = json["increment"].get<int64_t>();
  const std::string schedule = json.value("schedule", "fcfs");
  if (schedule == "sjf") {
    shape.shortest_first.emplace();
  } else if (schedule != "fcfs") {
    return absl::InvalidArgumentError("schedule: expected fcfs or sjf, got '" + schedule + "'");
  }
  shape.step_tokens = json.value("step_tokens", shape.step_tokens);
  shape.network.seed = json.value("seed", shape.network.seed);
  return shape;
}

Json ToJson(const RunResult& result) {
  Json workflows = Json::array(), steps = Json::array();
  for (const auto& agents : result.workflows) {
    Json& workflow = workflows.emplace_back(Json::object());
    for (const auto& [name, ran] : agents) {
      workflow[name] = {{"started", absl::ToDoubleSeconds(ran.submitted)},
                        {"first", absl::ToDoubleSeconds(ran.first)},
                        {"ended", absl::ToDoubleSeconds(ran.ended)},
                        {"tokens", ran.tokens}};
    }
  }
  for (const StepRecord& step : result.steps) {
    if (step.worker.starts_with("prefill")) {
      steps.push_back({{"start", absl::ToDoubleSeconds(step.start - absl::UnixEpoch())},
                       {"s", absl::ToDoubleSeconds(step.time)},
                       {"tokens", step.tokens}});
    }
  }
  return {{"simulated", true},
          {"workflows", std::move(workflows)},
          {"prefill_steps", std::move(steps)},
          {"blocks_held", result.blocks_held}};
}

absl::StatusOr<Json> Run(const Json& json) {
  ASSIGN_OR_RETURN(const ClusterShape shape, ReadShape(json));
  std::vector<Workflow> workflows;
  for (const Json& agents : json.at("workflows")) {
    Workflow& workflow = workflows.emplace_back();
    for (const Json& agent : agents) workflow.push_back(ReadAgent(agent));
  }
  RunOptions options{.overlap = json.at("overlap"), .share = json.value("share", true)};
  for (const double seconds : json.value("arrivals", std::vector<double>())) {
    options.arrivals.push_back(absl::Seconds(seconds));
  }
  ASSIGN_OR_RETURN(const RunResult result, RunWorkflows(shape, workflows, options));
  return ToJson(result);
}

absl::StatusOr<Json> RunLine(const std::string& line) {
  try {
    return Run(Json::parse(line));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

int Main() {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const absl::StatusOr<Json> result = RunLine(line);
    if (!result.ok()) {
      std::cerr << "line " << number << ": " << Message(result.status()) << "\n";
      return 1;
    }
    std::cout << result->dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main() { return baton::Main(); }
