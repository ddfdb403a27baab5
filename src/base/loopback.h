// Addresses that only this machine reaches.
#pragma once

#include <string>

namespace baton {

// Returns whether a server that listens on `host_port` can be reached from this machine alone.
bool IsLoopback(const std::string& host_port);

}  // namespace baton
