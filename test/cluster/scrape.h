// A reader of one Prometheus metric of a running process.
#pragma once

#include <optional>
#include <string>

namespace baton {

// Returns the value of `series`, e.g. baton_kv_blocks{role="decode",state="used"}. The value is the
// sum of the lines that have at least these labels. Returns nullopt if the process does not answer
// or has no such line.
std::optional<double> Scrape(const std::string& host_port, const std::string& series);

}  // namespace baton
