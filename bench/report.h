// Helpers for the reports of programs that measure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace baton {

inline double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Writes a report to `path`, or nothing if `path` is empty. Returns the program's exit code.
template <typename Json>
int WriteReport(const Json& report, const std::string& path) {
  if (path.empty()) return 0;
  std::ofstream file(path);
  file << report.dump(2) << "\n";
  if (file.flush()) return 0;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return 1;
}

}  // namespace baton
