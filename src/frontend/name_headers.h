// Names of sessions, agents and workflows in the headers of an HTTP call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "inference.pb.h"

namespace baton {

// Agent harnesses send these headers, and no fields of Baton. A request's own fields come first.
struct HeaderNames {
  // From the first header with a usable value. Empty if there is none.
  std::string session_id, agent, workflow;
  // Headers with a value that the field may not have. They do not fail the call, because a harness
  // cannot change them.
  std::vector<std::string_view> ignored;

  // Sets the fields that `request` leaves empty.
  void ApplyTo(v1::GenerateRequest& request) const;
};

// The headers that ReadNameHeaders reads, in the order of preference for each field.
std::vector<std::string_view> NameHeaders();
// `value_of` returns the value of a header, or an empty text. A usable value is UTF-8 without
// control characters, and not longer than the field may be.
HeaderNames ReadNameHeaders(absl::FunctionRef<std::string_view(std::string_view header)> value_of);

}  // namespace baton
