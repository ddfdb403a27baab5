// The check of the "host" header against DNS rebinding. In that attack, a web page lets its own
// host name resolve to this server. The browser then treats the server as the page's site.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace baton {

// Checks a name of --host-name. Returns INVALID_ARGUMENT unless it is a host name without a port.
absl::Status CheckHostName(std::string_view name);

// Checks the value of the "host" header. Returns PERMISSION_DENIED unless the value is an IP
// address, localhost or one of `names`, with any port, or empty. The value may be empty in
// HTTP/1.0, which browsers do not use. A dot at the end of a name is ignored.
absl::Status CheckHost(std::string_view host, const std::vector<std::string>& names);

}  // namespace baton
