// Paths of a process's certificate, its key and its certificate authorities.
#pragma once

#include <string>

namespace baton {

// PEM files. gRPC reads them again every ten seconds, so that certificates can be renewed while a
// process runs.
struct TlsFiles {
  // The certificate chain, beginning with the process's own certificate.
  std::string certificate{};
  std::string key{};
  // The authorities that may sign peers' certificates. If it is empty, peers need no certificate.
  std::string authority{};

  bool empty() const { return certificate.empty() && key.empty() && authority.empty(); }
};

}  // namespace baton
