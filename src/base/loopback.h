// Recognition of loopback addresses.
#pragma once

#include <string>

namespace baton {

// Returns whether only this machine can reach a server that listens on `host_port`.
bool IsLoopback(const std::string& host_port);

}  // namespace baton
