// Options for connections to etcd.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rpc/tls_files.h"

namespace baton {

// The etcd servers that hold the workers' addresses.
struct EtcdOptions {
  // HOST:PORT of each server. Any one of them may answer.
  std::vector<std::string> servers{};
  // The authority that signs the servers' certificates. Also this process's own certificate, if
  // etcd requires one.
  TlsFiles tls{};
  // Time limit for the answer of one server. No flag sets it.
  std::chrono::milliseconds timeout{3000};
};

}  // namespace baton
