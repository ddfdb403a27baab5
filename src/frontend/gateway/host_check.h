// The check of the "host" header against DNS rebinding. In that attack, a web page lets its own
// host name resolve to this server. The browser then treats the server as the page's site.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Checks the value of the "host" header. Returns PERMISSION_DENIED unless the value is an IP
// address or localhost, with any port, or empty. The value may be empty in HTTP/1.0, which browsers
// do not use.
absl::Status CheckHost(std::string_view host);

}  // namespace baton
