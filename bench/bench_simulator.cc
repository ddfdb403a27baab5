// Runs agent workflows, or sessions, in simulated clusters.
//
// A line of standard input is a run, and a line of standard output is its result. Both are JSON.
// The programs bench/agents and bench/sessions write the runs and read the results with
// --simulated. All figures are simulated.
//
//   {"model": "qwen2.5-7b", "device": "a100", "overlap": true, "share": true,
//    "tokens_per_s": 50,     rate of agents with "paced": true; default: the device's speed
//    "step_tokens": 512, "increment": 64, "streaming_step_ms": 25, "seed": 1,   optional
//    "schedule": "sjf",      the router's --schedule; default "fcfs"
//    "arrivals": [0, 1.5],   seconds, one for each workflow; default: all at time 0
//    "workflows": [[{"name": "A", "output": 64, "paced": true,
//                    "parts": [{"ids": "name", "length": 64}]},
//                   {"name": "B", "output": 1, "parts": [{"output_of": "A"}]}]]}
//
//   {"model": "qwen3-14b", "device": "a100",
//    "groups": [{"module": "base", "prefill_workers": 4, "decoders": ["planner", "writer"]}],
//    "routing": "least-loaded", "shadow_prefill": true,      optional
//    "concurrent": 8,        optional; see SessionOptions
//    "max_sessions": 100,    the router's --max-sessions; 0: auto; default: off
//    "host_gb": 128,         the prefill workers' --kv-host-mb in 1e9 bytes; default: none
//    "sessions": [[{"model": "planner", "added": [{"ids": "name", "length": 64}], "output": 40}]]}
//
// The second form also takes step_tokens, increment, seed, schedule and arrivals.
//
//   {"model": "llama-3.1-8b", "device": "h200",
//    "blocks": 300,          of each worker; default: the device's
//    "prompt": 200, "warm_up": 5,       see CallersLoad
//    "callers": [{"agent": "judge", "outputs": [20, 31]}]}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/simulated/shapes.h"
#include "base/status.h"
#include "base/strings.h"
#include "simulator/callers.h"
#include "simulator/session.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

using Json = nlohmann::json;

NamedTokens ReadTokens(const Json& json) { return {json.at("ids"), json.at("length")}; }

Agent ReadAgent(const Json& json) {
  Agent agent{.name = json.at("name"), .output = json.at("output"), .paced = json.value("paced", false)};
  for (const Json& part : json.at("parts")) {
    if (part.contains("output_of")) {
      agent.parts.push_back(OutputOf{part["output_of"]});
    } else {
      agent.parts.push_back(ReadTokens(part));
    }
  }
  return agent;
}

Session ReadSession(const Json& json) {
  Session session;
  for (const Json& turn : json) {
    Turn& read = session.emplace_back();
    read.model = turn.at("model");
    read.output = turn.at("output");
    read.pause = absl::Seconds(turn.value("pause", 0.0));
    for (const Json& added : turn.at("added")) read.added.push_back(ReadTokens(added));
  }
  return session;
}

absl::StatusOr<ClusterShape> ReadShape(const Json& json) {
  ClusterShape shape;
  shape.load_reports = false;
  ASSIGN_OR_RETURN(shape.model, ModelNamed(json.at("model").get<std::string>()));
  ASSIGN_OR_RETURN(shape.device, DeviceNamed(json.at("device").get<std::string>()));
  if (json.contains("tokens_per_s")) shape.pace = absl::Seconds(1 / json["tokens_per_s"].get<double>());
  if (json.contains("increment")) shape.increment = json["increment"].get<int64_t>();
  if (json.contains("streaming_step_ms"))
    shape.streaming_step = absl::Milliseconds(json["streaming_step_ms"].get<double>());
  ASSIGN_OR_RETURN(const Schedule schedule, ScheduleNamed(json.value("schedule", "fcfs")));
  if (schedule == Schedule::kShortestFirst) shape.shortest_first.emplace();
  for (const Json& group : json.value("groups", Json::array())) {
    shape.groups.push_back({group.at("module"), group.at("prefill_workers"), group.at("decoders")});
  }
  ASSIGN_OR_RETURN(shape.routing, RoutingNamed(json.value("routing", "pinned")));
  if (json.contains("max_sessions")) shape.sessions = SessionLimits{.sessions = json["max_sessions"].get<int32_t>()};
  shape.host_blocks =
      static_cast<int64_t>(json.value("host_gb", 0.0) * 1e9) / SimulatedKvLayout(shape.model).BlockBytes();
  if (json.contains("blocks")) shape.blocks = json["blocks"].get<int64_t>();
  shape.shadow_prefill = json.value("shadow_prefill", true);
  shape.step_tokens = json.value("step_tokens", shape.step_tokens);
  shape.max_batch = json.value("max_batch", shape.max_batch);
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

// Leaves out tokens, and sums up steps, because these runs are long.
Json ToJson(const SessionsResult& result) {
  Json sessions = Json::array();
  for (const std::vector<TurnRan>& turns : result.sessions) {
    Json& session = sessions.emplace_back(Json::array());
    for (const TurnRan& turn : turns) {
      session.push_back({{"started", absl::ToDoubleSeconds(turn.submitted)},
                         {"first", absl::ToDoubleSeconds(turn.first)},
                         {"ended", absl::ToDoubleSeconds(turn.ended)},
                         {"prompt_tokens", turn.prompt_tokens},
                         {"cached_tokens", turn.cached_tokens},
                         {"output_tokens", turn.tokens.size()}});
    }
  }
  int64_t prefill_tokens = 0;
  absl::Duration prefill_time, decode_time, copy_time;
  for (const StepRecord& step : result.steps) {
    const bool is_prefill = step.worker.starts_with("prefill");
    if (is_prefill) prefill_tokens += step.tokens;
    (is_prefill ? prefill_time : decode_time) += step.time;
    copy_time += step.copied;
  }
  return {{"simulated", true},
          {"sessions", std::move(sessions)},
          {"prefill_tokens", prefill_tokens},
          {"prefill_s", absl::ToDoubleSeconds(prefill_time)},
          {"copy_s", absl::ToDoubleSeconds(copy_time)},
          {"host_tokens", result.host_tokens},
          {"decode_s", absl::ToDoubleSeconds(decode_time)},
          {"bytes_pushed", result.bytes_pushed},
          {"refused", result.refused},
          {"blocks_held", result.blocks_held}};
}

std::vector<absl::Duration> ReadArrivals(const Json& json) {
  std::vector<absl::Duration> arrivals;
  for (const double seconds : json.value("arrivals", std::vector<double>())) arrivals.push_back(absl::Seconds(seconds));
  return arrivals;
}

absl::StatusOr<Json> RunSessions(const Json& json, const ClusterShape& shape) {
  std::vector<Session> sessions;
  for (const Json& session : json.at("sessions")) sessions.push_back(ReadSession(session));
  const SessionOptions options{.arrivals = ReadArrivals(json), .concurrent = json.value("concurrent", 0)};
  ASSIGN_OR_RETURN(const SessionsResult result, RunSessions(shape, sessions, options));
  return ToJson(result);
}

Json ToJson(const CallersResult& result) {
  return {{"tokens_per_s", result.tokens_per_s}, {"preemptions", result.preemptions}, {"refused", result.refused}};
}

absl::StatusOr<Json> RunCallers(const Json& json, const ClusterShape& shape) {
  CallersLoad load{.prompt = json.at("prompt"), .warm_up = json.value("warm_up", 0)};
  for (const Json& caller : json.at("callers")) {
    load.callers.push_back({caller.value("agent", ""), caller.at("outputs").get<std::vector<int32_t>>()});
  }
  ASSIGN_OR_RETURN(const CallersCompared compared, CompareLimits(shape, load));
  return Json{{"right", ToJson(compared.right)},
              {"none", ToJson(compared.none)},
              {"same_tokens", compared.right.tokens == compared.none.tokens}};
}

absl::StatusOr<Json> Run(const Json& json) {
  ASSIGN_OR_RETURN(const ClusterShape shape, ReadShape(json));
  if (json.contains("callers")) return RunCallers(json, shape);
  if (json.contains("sessions")) return RunSessions(json, shape);
  std::vector<Workflow> workflows;
  for (const Json& agents : json.at("workflows")) {
    Workflow& workflow = workflows.emplace_back();
    for (const Json& agent : agents) workflow.push_back(ReadAgent(agent));
  }
  const RunOptions options{
      .overlap = json.at("overlap"), .share = json.value("share", true), .arrivals = ReadArrivals(json)};
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
