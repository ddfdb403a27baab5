// Macros for absl::Status, the type of operating errors. A message states the event, its location,
// the expected value and the actual value.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// Returns the status from the current function unless it is OK.
#define RETURN_IF_ERROR(expression)              \
  do {                                           \
    absl::Status baton_status = (expression);    \
    if (!baton_status.ok()) return baton_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()) assigns the value of F() to x, or returns the error of F().
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_IMPL(BATON_CONCAT(baton_result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).status();    \
  target = *std::move(result)
