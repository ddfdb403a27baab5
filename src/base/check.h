// Checks of invariants of Baton's own code, in every build type. Use absl::Status for errors that a
// user, a file or a peer can cause.
#pragma once

#include <string_view>

namespace baton {

// Prints file, line, condition and message to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace baton

#define BATON_CHECK(condition, message)                                \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::baton::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
