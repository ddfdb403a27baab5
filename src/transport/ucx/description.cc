#include "transport/ucx/description.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

// The names of transports, by the kind of memory or network that they use.
struct Groups {
  std::vector<std::string> shared_memory, gpu;
  std::map<std::string, std::vector<std::string>> network;  // transport -> its devices
};

Groups GroupsOf(const std::vector<std::string>& transports) {
  Groups groups;
  for (const std::string& transport : transports) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(transport, absl::MaxSplits('/', 1));
    const auto& [name, device] = parts;
    if (name == "self") continue;  // It connects a process with itself.
    if (absl::StartsWith(name, "cuda_") || name == "gdr_copy") {
      groups.gpu.push_back(name);
    } else if (device == "memory") {
      groups.shared_memory.push_back(name);
    } else {
      groups.network[name].push_back(device);
    }
  }
  return groups;
}

// Returns the end of a sentence about GPU memory. It ignores gdr_copy, with which the CPU reads GPU
// memory, and cuda_copy, which copies between GPU and host.
std::string DescribeGpuMemory(const Groups& groups, bool reaches_cuda) {
  if (!reaches_cuda) return "is copied through page-locked host memory, because this UCX cannot access it";
  std::string words = "is copied by UCX through host memory";
  if (std::ranges::find(groups.gpu, "cuda_ipc") != groups.gpu.end()) {
    words =
        "is moved by UCX: by cuda_ipc between GPUs of one host that have access to each other, and otherwise through "
        "host memory";
  }
  std::vector<std::string> rdma;
  for (const auto& [name, devices] : groups.network) {
    if (name != "tcp") rdma.push_back(name);
  }
  if (rdma.empty()) return words;
  return absl::StrCat(words, ", unless ", absl::StrJoin(rdma, ", "),
                      " reads it directly (GPUDirect RDMA), which only a transfer can show");
}

}  // namespace

std::string DescribeUcx(const UcxFound& found) {
  const Groups groups = GroupsOf(found.transports);
  std::vector<std::string> ways;
  const auto add = [&ways](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) ways.push_back(absl::StrCat(what, " (", absl::StrJoin(names, ", "), ")"));
  };
  add("shared memory", groups.shared_memory);
  for (const auto& [name, devices] : groups.network) {
    ways.push_back(absl::StrCat(name, " on ", absl::StrJoin(devices, ", ")));
  }
  add("GPU memory", groups.gpu);
  return absl::StrCat("UCX ", found.version, ": ", absl::StrJoin(ways, "; "), ". GPU memory that no peer maps ",
                      DescribeGpuMemory(groups, found.reaches_cuda));
}

}  // namespace baton
