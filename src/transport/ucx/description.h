// Which UCX this is, and how it moves bytes, in words for logs and `--check`.
#pragma once

#include <string>
#include <vector>

namespace baton {

struct UcxFound {
  std::string version;  // at run time
  // "tcp/lo", "posix/memory", "cuda_ipc/cuda", "rc_mlx5/mlx5_0:1", ...
  std::vector<std::string> transports;
  bool reaches_cuda = false;  // it takes memory of CUDA devices
};

// What was found out and no more: that an RDMA card reads GPU memory by itself UCX finds out when it registers some.
std::string DescribeUcx(const UcxFound& found);

}  // namespace baton
