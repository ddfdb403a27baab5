// Renderings of a workflow's trace. Names and errors in a trace are foreign text, which every
// rendering escapes. REQUIRES for all functions: CheckTrace returned OK (cli/trace_layout.h).
#pragma once

#include <string>

#include "inference.pb.h"

namespace baton {

// Renders trace events (JSON) for ui.perfetto.dev and chrome://tracing. Each lane is a thread. Each
// request is a slice that contains its phases. An arrow leads from each output to the prompt that
// waited for it.
std::string RenderEvents(const std::string& workflow, const v1::TraceResponse& trace);

// Renders the page of /ui with the trace inside. The page loads no other file.
std::string RenderHtml(const std::string& workflow, const v1::TraceResponse& trace);

// Renders text for a terminal of 100 columns: a line of marks for each lane, and a table with the
// sums of each agent.
std::string RenderText(const std::string& workflow, const v1::TraceResponse& trace);

}  // namespace baton
