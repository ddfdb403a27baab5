// A reader of one value of a process's metrics.
#pragma once

#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "metrics/metrics.h"

namespace baton {

// Returns the value of `series`, or NaN if the series does not exist. `series` has the form of the
// text format, with its labels in alphabetical order.
inline double MetricValue(const Metrics& metrics, absl::string_view series) {
  double value = std::numeric_limits<double>::quiet_NaN();
  const std::string text = metrics.Text();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, series) && absl::ConsumePrefix(&line, " ") && absl::SimpleAtod(line, &value)) break;
  }
  return value;
}

}  // namespace baton
