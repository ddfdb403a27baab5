// How a process reaches etcd.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rpc/tls_files.h"

namespace baton {

// The etcd that holds the names of the workers.
struct EtcdOptions {
  std::vector<std::string> servers{};        // HOST:PORT; any one of them may answer
  TlsFiles tls{};                            // its authority, and what it is shown, if anything
  std::chrono::milliseconds patience{3000};  // for the answer of one server; no flag sets it
};

}  // namespace baton
