#include "base/loopback.h"

namespace baton {

bool IsLoopback(const std::string& host_port) {
  const std::string host = host_port.substr(0, host_port.rfind(':'));
  const bool numeric = host.find_first_not_of("0123456789.") == std::string::npos;
  return host.empty() || host == "localhost" || host == "[::1]" || (numeric && host.starts_with("127."));
}

}  // namespace baton
