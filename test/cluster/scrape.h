// Reads one Prometheus metric of a running process.
#pragma once

#include <optional>
#include <string>

namespace baton {

// The value of `series`, e.g. baton_kv_blocks{role="decode",state="used"}: the sum of the lines that have these labels
// and any others. Nothing if the process does not answer or has no such line.
std::optional<double> Scrape(const std::string& host_port, const std::string& series);

}  // namespace baton
