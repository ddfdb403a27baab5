// Where the requests of a workflow stand in a picture of it: what all of its renderings share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "inference.pb.h"

namespace baton {

// What a server sends may be anything: INVALID_ARGUMENT for times, spans or indices that no trace has.
absl::Status CheckTrace(const v1::TraceResponse& trace);

// Requests of one agent, one after the other. Agents that have several at the same time have several lanes.
struct TraceLane {
  std::string name;           // the agent's; of a request without an agent its id
  std::vector<int> requests;  // indices into the trace, by arrival
};
// By the agents' first ends, so that an agent stands above those that wait for it; lanes of one agent side by side.
std::vector<TraceLane> LanesOf(const v1::TraceResponse& trace);

int64_t EndOf(const v1::TraceResponse& trace);  // us, of the last request; at least 1

std::string Summarise(const v1::TraceResponse& trace);  // "2 requests, 1234.5 ms"

struct PhaseStyle {
  v1::Span::Phase phase;
  const char* name;  // for people
  char mark;         // in a terminal
};
const std::vector<PhaseStyle>& Phases();           // in the order of a request's life
const PhaseStyle& StyleOf(v1::Span::Phase phase);  // an unknown one: as the first
std::string Milliseconds(int64_t us);              // "1234.5 ms"

}  // namespace baton
