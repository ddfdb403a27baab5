// A description of the UCX library and its transports, for logs and `--check`.
#pragma once

#include <string>
#include <vector>

namespace baton {

struct UcxFound {
  std::string version;  // of the library that is loaded
  // "tcp/lo", "posix/memory", "cuda_ipc/cuda", "rc_mlx5/mlx5_0:1", ...
  std::vector<std::string> transports;
  bool reaches_cuda = false;  // UCX can read and write memory of CUDA devices
};

// Returns the description. It cannot state whether an RDMA card reads GPU memory directly, because
// UCX finds out only when it registers such memory.
std::string DescribeUcx(const UcxFound& found);

}  // namespace baton
