// Replays intervals between reports that tools/record_reports recorded on a busy machine.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"
#include "router/worker_watch.h"
#include "source_path.h"

namespace baton {
namespace {

// Returns the intervals of each worker.
std::map<std::string, std::vector<absl::Duration>> Read(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.is_open());
  std::map<std::string, std::vector<absl::Duration>> workers;
  std::string line, name;
  while (std::getline(file, line)) {
    if (line.starts_with("#")) continue;
    if (line.find('-') != std::string::npos) {
      name = line;
      continue;
    }
    std::istringstream numbers(line);
    for (int ms = 0; numbers >> ms;) workers[name].push_back(absl::Milliseconds(ms));
  }
  return workers;
}

TEST_CASE("WorkerWatch avoids no worker when it replays reports of a busy machine") {
  const auto workers = Read(SourcePath("test/router/data/report_intervals.txt"));
  REQUIRE(workers.size() >= 2);
  std::multimap<absl::Time, std::string> reports;
  absl::Duration longest, recorded;
  for (const auto& [name, intervals] : workers) {
    absl::Time at = absl::UnixEpoch();
    reports.emplace(at, name);
    for (const absl::Duration interval : intervals) {
      reports.emplace(at += interval, name);
      longest = std::max(longest, interval);
    }
    recorded = std::max(recorded, at - absl::UnixEpoch());
  }
  CHECK(recorded >= absl::Minutes(9));
  INFO("longest interval " << longest);
  WorkerWatch watch({});
  for (const auto& [at, name] : reports) {
    while (watch.NextTick() < at) watch.Tick(watch.NextTick());
    watch.Reported(name, {}, at);
    for (const WorkerWatch::Change& change : watch.TakeChanges()) FAIL_CHECK(change.worker << ": " << change.reason);
  }
}

}  // namespace
}  // namespace baton
