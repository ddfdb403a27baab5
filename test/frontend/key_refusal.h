// The message with which a router refuses a call without a known key.
#pragma once

#include <string>

namespace baton {

inline const std::string kKeyRefusal =
    "expected an API key of this router: \"authorization: Bearer KEY\", or over HTTP \"x-api-key: KEY\"";

}  // namespace baton
