// Runs a parsed chat template within limits of steps, output and recursion.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/jinja/ast.h"

namespace baton::jinja {

struct Limits {
  int64_t steps = 2'000'000;      // statements and expressions evaluated
  int64_t text_bytes = 16 << 20;  // made in all: output and every string on the way
  int call_depth = 50;            // of macros
};

// `globals` are the variables that the template starts with. INVALID_ARGUMENT names the line and carries what
// raise_exception said; RESOURCE_EXHAUSTED names the limit.
absl::StatusOr<std::string> Run(const Body& body, const Dict& globals, absl::Time now, const Limits& limits);

}  // namespace baton::jinja
