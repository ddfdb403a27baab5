// The names of the workers that the router's tests attach.
#pragma once

namespace baton {

inline constexpr const char* kP = "prefill-1";
inline constexpr const char* kD = "decode-1";

}  // namespace baton
