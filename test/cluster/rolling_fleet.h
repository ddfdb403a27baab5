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

  // Restarts a program. Waits until the old process ends with 0 and the new process has replaced
  // it.
  void Restart(std::unique_ptr<Worker>& worker);
  void RestartRouter(size_t i);

 private:
  std::unique_ptr<Process> StartRouter(const std::string& listen, const std::string& http_listen) const;
  // Waits until each worker, or only the worker `only`, has attached `times` times.
  void AwaitAttached(Process& router, size_t times, const std::string& only = "") const;
};

}  // namespace baton
