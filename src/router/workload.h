// In what order requests run under shortest-job-first: by the work that is expected to be left of their workflow.
// I/O-free: events and the time come in. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/named_value.h"
#include "router/lru_map.h"

namespace baton {

// The order among requests of equal priority: a value of --schedule.
enum class Schedule {
  kFirstCome,
  kShortestFirst,  // by Workload
};
struct ScheduleRow : NamedValue<Schedule> {
  std::string_view help;
};
inline constexpr ScheduleRow kSchedules[] = {
    {{"fcfs", Schedule::kFirstCome}, "first come first served"},
    {{"sjf", Schedule::kShortestFirst},
     "the workflow with the least expected work left first, where nobody is overtaken by what came more than a minute "
     "later"},
};
inline absl::StatusOr<Schedule> ScheduleNamed(std::string_view name) {
  return ValueNamed("schedule", name, kSchedules);
}

struct Request;

struct WorkloadOptions {
  absl::Duration bound = absl::Seconds(30);  // see Workload
  // What tokens are taken to cost. Only the order of sums of them matters, and which reach `bound`.
  absl::Duration per_prompt_token = absl::Microseconds(500);
  absl::Duration per_output_token = absl::Milliseconds(25);
  absl::Duration keep = absl::Minutes(2);   // a named workflow, after its last request ended
  size_t idle_workflows = size_t{1} << 12;  // kept so, at most; the oldest go first
  size_t agents = size_t{1} << 16;          // of which lengths are known, at most; those not seen for longest go first
};

// Named by its client, within a tenant. A request that names none is part of the workflow of the first upstream that it
// waits for, else a workflow of its own.
//
// Workers run the requests of equal priority in the order of their turns. A request's turn is
//
//   min(bound, work left of its workflow) after its workflow came (but that no more than `bound` before itself).
//
// So short workflows overtake long ones, and those that are nearly done those that begin; none has to be sorted again
// because time passes. Ageing: a turn lies within `bound` of the request's arrival, so nobody is overtaken by a request
// of its priority that arrived more than 2 * bound after it. Nobody starves, whatever clients say of their lengths.
//
// The work left is what the live requests of the workflow still have to compute, and what is expected to follow them:
// by what followed, in earlier workflows of the tenant, an agent of the name of the one that came last. An output has
// the length that its client expects, else the one that outputs of this agent had, else max_tokens.
class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options_(options), agents_(options.agents) {}

  // Tokens that a request has to compute.
  struct Lengths {
    int64_t prompt = 0;      // of those that are known
    int64_t max_output = 0;  // 0: it generates none
  };
  // `upstream`: the first live request that it waits for; null: none. REQUIRES: not live here.
  void Arrived(Request& request, const Lengths& lengths, const Request* upstream, absl::Time now);
  // These do nothing for a request that is not live here.
  void Prefilled(Request& request);
  void Made(Request& request, int64_t tokens);
  // `complete`: its length is one to learn from.
  void Ended(Request& request, bool complete, absl::Time now);
  void Tick(absl::Time now);  // forgets idle workflows; learns what follows whom
  absl::Time NextTick() const { return idle_.empty() ? absl::InfiniteFuture() : idle_.begin()->first; }

  // How much later than now a request's turn is, as the work that is left says now; zero if it is not live. A level of
  // priority makes it 2 * bound earlier, so that priority goes before length even where workers weigh it against age.
  absl::Duration Handicap(const Request& request, absl::Time now) const;

  size_t workflows() const { return workflows_.size(); }
  void CheckInvariants() const;

 private:
  using AgentKey = std::tuple<std::string, std::string, std::string>;     // tenant, model, agent
  using WorkflowKey = std::tuple<std::string, std::string, std::string>;  // tenant, name; without a name its first id
  struct Agent {
    std::optional<double> tokens;         // of its outputs, a mean
    std::optional<absl::Duration> later;  // work that came to its workflows after it, a mean
  };
  struct Workflow {
    absl::Time came;
    int64_t requests = 0;                                   // live
    absl::Duration left;                                    // of these
    absl::Duration total;                                   // of all requests so far, as expected when each came
    absl::Duration later;                                   // expected of requests to come
    std::vector<std::pair<AgentKey, absl::Duration>> seen;  // agents, with `total` when the first of each had come
    absl::Time expires = absl::InfiniteFuture();            // idle
  };
  using Workflows = absl::node_hash_map<WorkflowKey, Workflow>;

 public:
  // What it keeps of a request.
  struct Part {
    Workflows::value_type* workflow = nullptr;  // null: the request is not live here
    absl::Time came{};
    absl::Duration prompt{}, output{};  // left to compute
    int64_t made = 0;
  };

 private:
  static AgentKey AgentOf(const Request& request);
  static WorkflowKey WorkflowOf(const Request& request, const Request* upstream);
  int64_t ExpectedTokens(const Request& request, int64_t max_output) const;
  void ExpectLater(Workflow& workflow, const AgentKey& agent, absl::Duration work);
  void Forget(const WorkflowKey& key);

  const WorkloadOptions options_;
  Workflows workflows_;  // an entry stays where it is while requests are live
  int64_t requests_ = 0;
  std::set<std::pair<absl::Time, WorkflowKey>> idle_;  // by when they expire
  LruMap<AgentKey, Agent> agents_;
};

}  // namespace baton
