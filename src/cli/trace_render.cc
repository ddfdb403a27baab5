#include "cli/trace_render.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "cli/printable.h"
#include "cli/trace_layout.h"
#include "frontend/ui/page.h"
#include "nlohmann/json.hpp"
#include "rpc/proto_json.h"
#include "text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

Json Event(const char* kind, const std::string& name, int lane, int64_t at_us) {
  return {{"ph", kind}, {"name", name}, {"cat", "baton"}, {"pid", 1}, {"tid", lane}, {"ts", at_us}};
}

Json Slice(const std::string& name, int lane, int64_t begin_us, int64_t end_us) {
  Json event = Event("X", name, lane, begin_us);
  event["dur"] = end_us - begin_us;
  return event;
}

void AddRequest(const v1::TracedRequest& request, int lane, Json& events) {
  Json whole = Slice(request.request_id(), lane, request.arrived_us(), request.ended_us());
  whole["args"] = {{"prompt_tokens", request.usage().prompt_tokens()},
                   {"cached_tokens", request.usage().cached_tokens()},
                   {"completion_tokens", request.usage().completion_tokens()},
                   {"over", request.over()},
                   {"attempt", request.attempt()},
                   {"error", request.error()},
                   {"refused", request.refused()},
                   {"overlap_tokens", request.overlap_tokens()},
                   {"trace_id", request.trace_id()}};
  if (!request.waits_for().empty()) whole["args"]["waits_for"] = request.waits_for();
  events.push_back(std::move(whole));
  for (const v1::Span& span : request.spans()) {
    Json phase = Slice(StyleOf(span.phase()).name, lane, span.begin_us(), span.end_us());
    phase["args"] = {{"tokens", span.tokens()}, {"steps", span.steps()}};
    events.push_back(std::move(phase));
  }
}

// Adds an arrow. A flow event binds to the slice that is open at its time. Both ends therefore lie
// within their slices, at the end of the upstream output if possible.
void AddFlow(const v1::TracedRequest& from, int from_lane, const v1::TracedRequest& to, int to_lane, Json& events) {
  const int flow = static_cast<int>(events.size());
  const int64_t leaves = std::max(from.arrived_us(), from.ended_us() - 1);
  const int64_t arrives = std::clamp(leaves, to.arrived_us(), std::max(to.arrived_us(), to.ended_us() - 1));
  Json start = Event("s", "output_of", from_lane, std::min(leaves, arrives));
  start["id"] = flow;
  Json finish = Event("f", "output_of", to_lane, arrives);
  finish["id"] = flow;
  finish["bp"] = "e";
  events.push_back(std::move(start));
  events.push_back(std::move(finish));
}

constexpr size_t kNameColumns = 16;
constexpr size_t kBarColumns = 64;

// Returns `name` cut or padded to exactly kNameColumns characters.
std::string Column(const std::string& name) {
  const std::string printable = Printable(name);
  std::string result(FirstCharacters(printable, kNameColumns));
  return result.append(kNameColumns - static_cast<size_t>(CountCharacters(result)), ' ');
}

// Each column shows the phase with the largest share of its time.
std::string Bar(const v1::TraceResponse& trace, const TraceLane& lane) {
  const double width = static_cast<double>(EndOf(trace)) / kBarColumns;
  const std::vector<PhaseStyle>& phases = Phases();
  std::vector<std::vector<double>> shares(kBarColumns, std::vector<double>(phases.size()));
  for (const int index : lane.requests) {
    for (const v1::Span& span : trace.requests(index).spans()) {
      const auto phase = static_cast<size_t>(&StyleOf(span.phase()) - phases.data());
      const auto begin = static_cast<double>(span.begin_us()), end = static_cast<double>(span.end_us());
      for (auto i = static_cast<size_t>(begin / width); i < kBarColumns; ++i) {
        const double left = static_cast<double>(i) * width;
        if (left >= end) break;
        shares[i][phase] += std::max(0.0, std::min(end, left + width) - std::max(begin, left));
      }
    }
  }
  std::string bar;
  for (const std::vector<double>& column : shares) {
    const auto most = std::ranges::max_element(column);
    bar += *most > 0 ? phases[static_cast<size_t>(most - column.begin())].mark : ' ';
  }
  return bar;
}

// Returns a table of the sums of each agent.
std::string SumsTable(const v1::TraceResponse& trace) {
  if (trace.agents().empty()) return "";
  const std::string titles = absl::StrFormat(" %8s %7s %8s %8s %8s %8s %11s %11s", "requests", "refused", "prompt",
                                             "cached", "overlap", "output", "total ms", "waiting ms");
  std::string text = absl::StrCat("\n", Column("agent"), titles, "\n");
  for (const v1::AgentSums& sums : trace.agents()) {
    absl::StrAppend(&text, Column(sums.agent().empty() ? "(no name)" : sums.agent()),
                    absl::StrFormat(" %8d %7d %8d %8d %8d %8d %11.1f %11.1f", sums.requests(), sums.refused(),
                                    sums.prompt_tokens(), sums.cached_tokens(), sums.overlap_tokens(),
                                    sums.completion_tokens(), sums.total_ms(), sums.upstream_ms() + sums.queued_ms()),
                    "\n");
  }
  if (trace.agents_omitted() > 0) absl::StrAppend(&text, trace.agents_omitted(), " further agents left out\n");
  return text;
}

// Returns the number of the attempt, except for the first, and the error.
std::string RemarkOn(const v1::TracedRequest& request) {
  const std::string error = absl::StrCat(request.refused() ? "refused: " : "", Printable(request.error()));
  if (request.attempt() <= 1) return error;
  return absl::StrCat("attempt ", request.attempt(), error.empty() ? "" : ": ", error);
}

}  // namespace

std::string RenderHtml(const std::string& workflow, const v1::TraceResponse& trace) {
  const Json names = {{"workflow", workflow}};
  const std::string name = names.dump(-1, ' ', false, Json::error_handler_t::replace);
  return UiPageWith(StrCat(name.substr(0, name.size() - 1), ",\"trace\":", ToJson(trace), "}"));
}

std::string RenderEvents(const std::string& workflow, const v1::TraceResponse& trace) {
  Json events = Json::array();
  Json process = Event("M", "process_name", 0, 0);
  process["args"] = {{"name", workflow}};
  events.push_back(std::move(process));
  const std::vector<TraceLane> lanes = LanesOf(trace);
  std::vector<int> lane_of(static_cast<size_t>(trace.requests_size()));
  for (size_t i = 0; i < lanes.size(); ++i) {
    const int lane = static_cast<int>(i) + 1;
    Json name = Event("M", "thread_name", lane, 0), order = Event("M", "thread_sort_index", lane, 0);
    name["args"] = {{"name", lanes[i].name}};
    order["args"] = {{"sort_index", lane}};
    events.push_back(std::move(name));
    events.push_back(std::move(order));
    for (const int request : lanes[i].requests) {
      lane_of[static_cast<size_t>(request)] = lane;
      AddRequest(trace.requests(request), lane, events);
    }
  }
  for (int to = 0; to < trace.requests_size(); ++to) {
    for (const int from : trace.requests(to).upstreams()) {
      AddFlow(trace.requests(from), lane_of[static_cast<size_t>(from)], trace.requests(to),
              lane_of[static_cast<size_t>(to)], events);
    }
  }
  const Json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string RenderText(const std::string& workflow, const v1::TraceResponse& trace) {
  std::string text = absl::StrCat(Printable(workflow), ": ", Summarise(trace), "\n");
  for (const PhaseStyle& phase : Phases()) absl::StrAppend(&text, "  ", std::string(1, phase.mark), " ", phase.name);
  absl::StrAppend(&text, "\n");
  for (const TraceLane& lane : LanesOf(trace)) {
    absl::StrAppend(&text, Column(lane.name), " |", Bar(trace, lane), "|",
                    absl::StrFormat(" %12s", Milliseconds(trace.requests(lane.requests.back()).ended_us())), "\n");
    for (const int request : lane.requests) {
      const std::string remark = RemarkOn(trace.requests(request));
      if (!remark.empty()) absl::StrAppend(&text, std::string(kNameColumns, ' '), "  ", remark, "\n");
      const std::string& waits_for = trace.requests(request).waits_for();
      if (waits_for.empty()) continue;
      absl::StrAppend(&text, std::string(kNameColumns, ' '), "  waits for ", Printable(waits_for), "\n");
    }
  }
  return text + SumsTable(trace);
}

}  // namespace baton
