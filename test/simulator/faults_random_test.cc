// Random clusters, requests and faults. The history of each run is judged against the run of the
// same seed without faults. A seed that fails prints the violations and the trace of its events.
// With BATON_SEED=N, the trace goes to the standard error as the events occur.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/logging.h"
#include "catch.h"
#include "seeds.h"
#include "simulator/fault_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeeds = 4000;
// Nearly all requests end this long after the last fault, since silent workers are avoided.
constexpr absl::Duration kSlow = absl::Seconds(5);

// Counts over all seeds. They ensure that faults strike and that most requests survive them.
struct FaultTotals {
  int requests = 0;
  int slow = 0;  // requests whose wait after the faults is longer than kSlow
  absl::Duration longest_wait{};
  uint64_t longest_at = 0;  // its seed
  std::map<absl::StatusCode, int> ends;
  std::map<std::string, int> faults;
};

void RunSeed(uint64_t seed, bool alone, FaultTotals& totals) {
  const FaultCase drawn = DrawFaultCase(seed);
  const History undisturbed = Play(drawn, /*disturbed=*/false, nullptr);
  const History run = Play(drawn, /*disturbed=*/true, alone ? &std::cerr : nullptr);
  for (const FaultCase::TimedFault& one : drawn.faults) ++totals.faults[std::string(RowOf(one.fault.kind).name)];
  for (const auto& [id, client] : run.requests) {
    const absl::Duration wait = WaitAfterFaults(client, run);
    ++totals.ends[client.status.code()];
    totals.slow += wait > kSlow;
    if (wait > totals.longest_wait) {
      totals.longest_wait = wait;
      totals.longest_at = seed;
    }
  }
  totals.requests += static_cast<int>(run.requests.size());
  const std::vector<std::string> violations = Violations(run, undisturbed);
  if (violations.empty()) return;
  // A run repeats exactly. Catch2 would wrap the lines of the trace.
  if (!alone) Play(drawn, /*disturbed=*/true, &std::cerr);
  FAIL(absl::StrJoin(violations, "\n"));
}

}  // namespace

TEST_CASE("Histories are right when processes, messages and disks fail", "[one_thread]") {
  spdlog::set_level(spdlog::level::off);
  FaultTotals totals;
  const bool alone = !Seeds(kSeeds).all();
  const Seeds seeds = ForEachSeed(kSeeds, [&](uint64_t seed) { RunSeed(seed, alone, totals); });
  spdlog::set_level(spdlog::level::info);
  std::ostringstream summary;
  summary << "faults: " << seeds.count() << " seeds, " << totals.requests << " requests;";
  for (const auto& [code, count] : totals.ends) summary << " " << absl::StatusCodeToString(code) << " " << count;
  for (const auto& [name, count] : totals.faults) summary << ", " << name << " " << count;
  summary << "; " << totals.slow << " waited over " << kSlow << " after the faults, the longest " << totals.longest_wait
          << " (seed " << totals.longest_at << ")";
  if (seeds.count() > kSeeds) std::cout << summary.str() << std::endl;
  INFO(summary.str());
  if (!seeds.all()) return;
  CHECK(totals.faults.size() == std::size(kFaultTable));
  CHECK(totals.ends[absl::StatusCode::kOk] > totals.requests * 8 / 10);
  CHECK(totals.slow < totals.requests / 100);
}

}  // namespace baton
