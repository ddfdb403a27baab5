// The message with which a router refuses a call without a known key.
#pragma once

#include <string>

namespace baton {

inline const std::string kKeyRefusal = "expected an API key that this router knows: \"authorization: Bearer KEY\"";

}  // namespace baton
