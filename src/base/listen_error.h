// The system's reason why an address cannot be listened on, for libraries that do not return it.
#pragma once

#include <string>

namespace baton {

// Returns why this process cannot listen at `host_port`, for example "Address already in use".
// Returns an empty string if it can. Binds a socket for the test and closes it.
std::string ListenError(const std::string& host_port);

}  // namespace baton
