// A workflow's trace as people and their tools read it. Names and errors in it are foreign: every form escapes them.
// REQUIRES for all: CheckTrace is OK (cli/trace_layout.h).
#pragma once

#include <string>

#include "inference.pb.h"

namespace baton {

// Trace events (JSON) that ui.perfetto.dev and chrome://tracing open: one thread per lane, a slice for each request
// with its phases within, an arrow from each output to the prompt that waited for it.
std::string RenderEvents(const std::string& workflow, const v1::TraceResponse& trace);

// The page of /ui with the trace inside, which loads no other file.
std::string RenderHtml(const std::string& workflow, const v1::TraceResponse& trace);

// For a terminal of 100 columns: a line of marks for each lane.
std::string RenderText(const std::string& workflow, const v1::TraceResponse& trace);

}  // namespace baton
