#include "cli/trace_layout.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"

namespace baton {
namespace {

std::string NameOf(const v1::TracedRequest& request) {
  if (!request.agent().empty()) return request.agent();
  return request.request_id().empty() ? "(no id)" : request.request_id();
}

// Upper bound on times, in microseconds (35 years).
constexpr int64_t kMaxTime = int64_t{1} << 50;

bool IsInterval(int64_t begin, int64_t end) { return 0 <= begin && begin <= end && end <= kMaxTime; }

}  // namespace

absl::Status CheckTrace(const v1::TraceResponse& trace) {
  for (int i = 0; i < trace.requests_size(); ++i) {
    const v1::TracedRequest& request = trace.requests(i);
    const auto is_span = [&](const v1::Span& span) {
      return IsInterval(span.begin_us(), span.end_us()) && request.arrived_us() <= span.begin_us() &&
             span.end_us() <= request.ended_us();
    };
    const auto is_index = [&](int32_t index) { return 0 <= index && index < trace.requests_size(); };
    if (!IsInterval(request.arrived_us(), request.ended_us()) || !std::ranges::all_of(request.spans(), is_span) ||
        !std::ranges::all_of(request.upstreams(), is_index)) {
      return absl::InvalidArgumentError(
          absl::StrCat("requests[", i, "]: the server sent impossible times or upstreams"));
    }
  }
  return absl::OkStatus();
}

std::vector<TraceLane> LanesOf(const v1::TraceResponse& trace) {
  struct Lane {
    std::vector<int> requests;
    int64_t end = 0;
  };
  struct Agent {
    int64_t first_end = 0;  // of any request of the agent
    std::vector<Lane> lanes;
  };
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, Agent> agents;
  for (int i = 0; i < trace.requests_size(); ++i) {
    const v1::TracedRequest& request = trace.requests(i);
    const std::string name = NameOf(request);
    const auto [entry, is_new] = agents.try_emplace(name, Agent{request.ended_us(), {}});
    if (is_new) names.push_back(name);
    Agent& agent = entry->second;
    agent.first_end = std::min<int64_t>(agent.first_end, request.ended_us());
    auto lane = std::ranges::find_if(agent.lanes, [&](const Lane& other) { return other.end <= request.arrived_us(); });
    if (lane == agent.lanes.end()) lane = agent.lanes.insert(lane, Lane{});
    lane->requests.push_back(i);
    lane->end = request.ended_us();
  }
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return agents.at(name).first_end; });
  std::vector<TraceLane> result;
  for (const std::string& name : names) {
    for (Lane& lane : agents.at(name).lanes) result.push_back({name, std::move(lane.requests)});
  }
  return result;
}

int64_t EndOf(const v1::TraceResponse& trace) {
  int64_t end = 1;
  for (const v1::TracedRequest& request : trace.requests()) end = std::max<int64_t>(end, request.ended_us());
  return end;
}

std::string Summarise(const v1::TraceResponse& trace) {
  const int requests = trace.requests_size();
  std::string text = absl::StrCat(requests, requests == 1 ? " request, " : " requests, ", Milliseconds(EndOf(trace)));
  const auto refused = std::ranges::count_if(trace.requests(), &v1::TracedRequest::refused);
  if (refused > 0) absl::StrAppend(&text, "; ", refused, " of them refused");
  const int omitted = trace.omitted() + trace.refused_omitted();
  if (omitted > 0) absl::StrAppend(&text, "; ", omitted, " earlier left out");
  return text;
}

const std::vector<PhaseStyle>& Phases() {
  static const std::vector<PhaseStyle> phases = {
      {v1::Span::PHASE_WAITING, "waiting", '.'},
      {v1::Span::PHASE_QUEUED, "queued", ':'},
      {v1::Span::PHASE_PREFILL, "prefill", '#'},
      {v1::Span::PHASE_HANDOFF, "hand-off", '>'},
      {v1::Span::PHASE_DECODE_QUEUE, "decode queue", ';'},
      {v1::Span::PHASE_FIRST_STEP, "first step", '+'},
      {v1::Span::PHASE_DECODE, "decode", '='},
  };
  return phases;
}

const PhaseStyle& StyleOf(v1::Span::Phase phase) {
  const auto found = std::ranges::find(Phases(), phase, &PhaseStyle::phase);
  return found == Phases().end() ? Phases().front() : *found;
}

std::string Milliseconds(int64_t us) { return absl::StrFormat("%.1f ms", static_cast<double>(us) / 1000); }

}  // namespace baton
