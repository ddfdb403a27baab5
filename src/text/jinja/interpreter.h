// The interpreter of parsed chat templates, with limits on steps, text and recursion.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "text/jinja/ast.h"

namespace baton::jinja {

struct Limits {
  int64_t steps = 2'000'000;      // statements and expressions evaluated
  int64_t text_bytes = 16 << 20;  // total of the output and all intermediate strings
  int call_depth = 50;            // nested calls of macros
};

// Runs a template and returns its output. `globals` are the initial variables. An INVALID_ARGUMENT
// error names the line and has the message of raise_exception, if the template calls it. A
// RESOURCE_EXHAUSTED error names the limit.
absl::StatusOr<std::string> Run(const Body& body, const Dict& globals, absl::Time now, const Limits& limits);

}  // namespace baton::jinja
