// Turns a template into its syntax tree. Whatever we do not implement is refused here, by name and line, so that a
// model with such a template fails when it loads and not when it is asked.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"

namespace baton::jinja {

absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace baton::jinja
