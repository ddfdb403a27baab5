// Whether a request means this server: with DNS rebinding, a web page has its own name lead here, so that the browser
// takes the server for the page's site.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace baton {

// `host`: of the header. PERMISSION_DENIED unless it is an IP address or localhost, with any port; or empty, as of
// HTTP/1.0, which browsers do not speak.
absl::Status CheckHost(std::string_view host);

}  // namespace baton
