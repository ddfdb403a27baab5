// A real etcd on free ports of loopback, with a directory of its own. tools/setup fetches it.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "catch.h"
#include "node/options.h"
#include "process.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {

// Returns the path of etcd in .venv or in the system. Fails the test if there is none.
inline std::string EtcdPath() {
  std::vector<std::string> folders = {SourcePath(".venv/bin")};
  const char* path = std::getenv("PATH");
  for (const auto folder : absl::StrSplit(path == nullptr ? "" : path, ':')) folders.emplace_back(folder);
  for (const std::string& folder : folders) {
    if (access((folder + "/etcd").c_str(), X_OK) == 0) return folder + "/etcd";
  }
  FAIL("etcd is neither in .venv/bin nor in PATH: run tools/setup, which takes it out of Debian's etcd-server");
  return "";
}

class Etcd {
 public:
  // With `tls`, etcd presents these files to clients, and requires a certificate of the same
  // authority.
  explicit Etcd(TlsFiles tls = {}) : tls_(std::move(tls)) { Start(); }

  // Starts etcd. A later start keeps address and data.
  void Start() {
    const std::string scheme = tls_.empty() ? "http://" : "https://", anywhere = "http://127.0.0.1:0";
    std::vector<std::string> arguments = {"--data-dir", directory_->path(), "--listen-client-urls", scheme + address_,
                                          "--advertise-client-urls", scheme + address_, "--listen-peer-urls", anywhere,
                                          "--initial-advertise-peer-urls", anywhere, "--initial-cluster",
                                          "default=" + anywhere,
                                          // By default, leases last at least 2 s.
                                          "--heartbeat-interval", "20", "--election-timeout", "200",
                                          // With the gateway, etcd would dial its own port, which
                                          // is 0 here.
                                          "--enable-grpc-gateway=false", "--logger", "zap", "--log-outputs", "stderr"};
    if (!tls_.empty()) {
      for (const std::string& word :
           {std::string("--client-cert-auth"), std::string("--cert-file"), tls_.certificate, std::string("--key-file"),
            tls_.key, std::string("--trusted-ca-file"), tls_.authority}) {
        arguments.push_back(word);
      }
    }
    process_.emplace(EtcdPath(), arguments);
    const std::string said = process_->Await("serving client traffic");
    const std::string marker = "\"address\":\"";
    const size_t begin = said.find(marker);
    INFO(said);
    REQUIRE(begin != std::string::npos);
    address_ = said.substr(begin + marker.size(), said.find('"', begin + marker.size()) - begin - marker.size());
  }
  void Kill() { process_.reset(); }
  // REQUIRES: Kill was called.
  void LoseData() { directory_.emplace(); }

  const std::string& address() const { return address_; }

 private:
  const TlsFiles tls_;
  std::optional<TempDir> directory_{std::in_place};
  std::string address_ = "127.0.0.1:0";
  std::optional<Process> process_;
};

}  // namespace baton
