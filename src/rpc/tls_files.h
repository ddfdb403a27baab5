// Where a process finds its certificate, and the one that signs its peers' certificates.
#pragma once

#include <string>

namespace baton {

// PEM files. They are read again every ten seconds, so that certificates can be renewed while a process runs.
struct TlsFiles {
  std::string certificate{};  // chain, the process's own first
  std::string key{};
  std::string authority{};  // those who may have signed the other side's certificate; empty: the other side shows none

  bool empty() const { return certificate.empty() && key.empty() && authority.empty(); }
};

}  // namespace baton
