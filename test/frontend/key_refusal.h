// The message by which a router refuses a call without a key that it knows.
#pragma once

#include <string>

namespace baton {

inline const std::string kKeyRefusal = "expected an API key that this router knows: \"authorization: Bearer KEY\"";

}  // namespace baton
