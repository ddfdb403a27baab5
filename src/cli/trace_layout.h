// The layout of a workflow's requests in a picture, shared by all renderings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "inference.pb.h"

namespace baton {

// Returns INVALID_ARGUMENT if times, spans or indices are impossible. REQUIRED before all other
// functions, because a server may send any values.
absl::Status CheckTrace(const v1::TraceResponse& trace);

// A row with requests of one agent, in sequence. An agent with concurrent requests has several
// lanes.
struct TraceLane {
  // Name of the agent. For a request without an agent, its id.
  std::string name;
  // Indices into the trace, by arrival.
  std::vector<int> requests;
};
// Returns the lanes, sorted by the first end of each agent. An agent therefore stands above its
// downstream agents. Lanes of one agent are adjacent.
std::vector<TraceLane> LanesOf(const v1::TraceResponse& trace);

// Returns the end of the last request in microseconds, at least 1.
int64_t EndOf(const v1::TraceResponse& trace);

// Returns a text such as "2 requests, 1234.5 ms".
std::string Summarise(const v1::TraceResponse& trace);

struct PhaseStyle {
  v1::Span::Phase phase;
  const char* name;  // for users
  char mark;         // in a terminal
};
// Returns all phases, in the order of a request's life.
const std::vector<PhaseStyle>& Phases();
// Returns the style of the first phase for an unknown phase.
const PhaseStyle& StyleOf(v1::Span::Phase phase);
// Returns a text such as "1234.5 ms".
std::string Milliseconds(int64_t us);

}  // namespace baton
