// Two programs of each kind, which a test restarts one after the other at the same addresses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "process.h"
#include "programs.h"

namespace baton {

struct Fleet {
  std::vector<std::unique_ptr<Worker>> prefill, decode;
  std::vector<std::unique_ptr<Process>> routers;
  std::vector<std::string> grpc, http;  // addresses of the routers

  Fleet();

  // Each waits for the old one's end with 0, and until the new one takes its place.
  void Restart(std::unique_ptr<Worker>& worker);
  void RestartRouter(size_t i);

 private:
  std::unique_ptr<Process> StartRouter(const std::string& listen, const std::string& http_listen) const;
  // Waits until each worker has attached so many times, or one of them alone.
  void AwaitAttached(Process& router, size_t times, const std::string& only = "") const;
};

}  // namespace baton
