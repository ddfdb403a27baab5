// Reads one Prometheus metric of a running process.
#pragma once

#include <optional>
#include <string>

namespace baton {

// The value of the line that starts with `series`, e.g. baton_kv_blocks{role="decode",state="used"}; nothing if the
// process does not answer or has no such line.
std::optional<double> Scrape(const std::string& host_port, const std::string& series);

}  // namespace baton
