// The parser of templates. It refuses every construct that Baton does not implement. A model with
// such a template thus fails when it is loaded, and not when a request uses the template.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"

namespace baton::jinja {

// Returns the syntax tree of a template. Fails with INVALID_ARGUMENT for a syntax error, and with
// UNIMPLEMENTED for a construct that Baton does not implement. The message names construct and
// line.
absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace baton::jinja
