#pragma once

namespace baton {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace baton
