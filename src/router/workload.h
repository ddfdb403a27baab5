// The queue order under shortest-job-first: requests are ordered by the expected remaining work of
// their workflow.
//
// I/O-free: events and the time come in. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/lru_map.h"
#include "base/named_value.h"

namespace baton {

// The order of requests with equal priority: a value of --schedule.
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
     "the workflow with the least expected remaining work first; no request is overtaken by one of the same tenant and "
     "priority that arrived more than a minute later"},
};
inline absl::StatusOr<Schedule> ScheduleNamed(std::string_view name) {
  return ValueNamed("schedule", name, kSchedules);
}

struct Request;

struct WorkloadOptions {
  absl::Duration bound = absl::Seconds(30);  // see Workload
  // Assumed costs of tokens. Only the order of their sums matters, and which sums reach `bound`.
  absl::Duration per_prompt_token = absl::Microseconds(500);
  absl::Duration per_output_token = absl::Milliseconds(25);
  // How long a named workflow is kept after its last request ended.
  absl::Duration keep = absl::Minutes(2);
  // Upper bound on such workflows. The oldest is dropped first.
  size_t idle_workflows = size_t{1} << 12;
  // Upper bound on agents with known later work. The agent seen least recently is dropped first.
  size_t agents = size_t{1} << 16;
};

// Estimates the remaining work of each workflow and derives the queue order of requests from it.
//
// A client names a workflow, within its cache domain. A request without a workflow name belongs to
// the workflow of its first live upstream request, or is a workflow of its own.
//
// Workers run requests of equal priority in queue order. A request's position in this order is the
// time
//
//   arrival of the workflow + min(bound, remaining work of the workflow)
//
// where the arrival of the workflow counts as at most `bound` before the request's own. Short
// workflows thus overtake long ones, and nearly finished workflows overtake new ones. Time alone
// does not change the order.
//
// A position lies within `bound` of the request's arrival. A request is therefore never overtaken
// by a request of its tenant and priority that arrived more than 2 * bound later. This also holds
// if clients state wrong lengths.
//
// The remaining work is the work of the live requests and the work expected after them. The
// expected work is the mean work that followed the latest agent in earlier workflows of the cache
// domain.
class Workload {
 public:
  explicit Workload(WorkloadOptions options) : options_(options), later_(options.agents) {}

  // The tokens that a request has to compute.
  struct Lengths {
    int64_t prompt = 0;  // prompt tokens that are known so far
    int64_t output = 0;  // expected tokens
  };
  // Adds a request. `upstream` is its first live upstream request, or null. REQUIRES: the request
  // is not live here.
  void Arrived(Request& request, const Lengths& lengths, const Request* upstream, absl::Time now);
  // The next three functions do nothing for a request that is not live here.
  void Prefilled(Request& request);
  void Made(Request& request, int64_t tokens);
  void Ended(Request& request, absl::Time now);
  // Drops idle workflows, and learns from them the work that followed each agent.
  void Tick(absl::Time now);
  absl::Time NextTick() const { return idle_.empty() ? absl::InfiniteFuture() : idle_.begin()->first; }

  // Returns the request's arrival offset: its position in the queue order, relative to `now`. Uses
  // the remaining work as known now. Zero if the request is not live here. Each level of priority
  // moves the position 2 * bound earlier. Priority thus outweighs length even at workers that weigh
  // priority against age.
  absl::Duration ArrivalOffset(const Request& request, absl::Time now) const;

  size_t workflows() const { return workflows_.size(); }
  void CheckInvariants() const;

 private:
  using AgentKey = std::tuple<std::string, std::string, std::string>;  // cache domain, model, agent
  // Cache domain and name. Without a name, the third element is the id of the workflow's first
  // request.
  using WorkflowKey = std::tuple<std::string, std::string, std::string>;
  struct Workflow {
    absl::Time arrived;
    int64_t requests = 0;  // live requests
    absl::Duration left;   // remaining work of live requests
    // Work of all requests so far, as expected at their arrival.
    absl::Duration total;
    absl::Duration later;  // expected work of later requests
    // Agents, with `total` when the first request of each had arrived.
    std::vector<std::pair<AgentKey, absl::Duration>> seen;
    // InfiniteFuture unless the workflow is idle.
    absl::Time expires = absl::InfiniteFuture();
  };
  using Workflows = absl::node_hash_map<WorkflowKey, Workflow>;

 public:
  // Workload's part of a request.
  struct Part {
    Workflows::value_type* workflow = nullptr;  // null: the request is not live here
    absl::Time arrived{};
    absl::Duration prompt{}, output{};  // remaining work
  };

 private:
  static AgentKey AgentOf(const Request& request);
  static WorkflowKey WorkflowOf(const Request& request, const Request* upstream);
  void ExpectLater(Workflow& workflow, const AgentKey& agent, absl::Duration work);
  void Forget(const WorkflowKey& key);

  const WorkloadOptions options_;
  // An entry has a stable address while it has live requests.
  Workflows workflows_;
  int64_t requests_ = 0;
  std::set<std::pair<absl::Time, WorkflowKey>> idle_;  // by expiry
  // Mean work that arrived in a workflow after the agent's first request.
  LruMap<AgentKey, absl::Duration> later_;
};

}  // namespace baton
