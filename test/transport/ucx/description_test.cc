#include "transport/ucx/description.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("DescribeUcx names the version and the transports by reach") {
  CHECK(DescribeUcx({"1.13.1", {"self/memory0", "tcp/lo", "posix/memory", "cma/memory"}, false}) ==
        "UCX 1.13.1: shared memory (posix, cma); tcp on lo. "
        "GPU memory that no peer maps is copied through page-locked host memory, because this UCX cannot access it");
  CHECK(DescribeUcx({"1.13.1", {"tcp/lo", "rc_mlx5/mlx5_0:1", "tcp/eth0", "ud_mlx5/mlx5_0:1"}, false}) ==
        "UCX 1.13.1: rc_mlx5 on mlx5_0:1; tcp on lo, eth0; ud_mlx5 on mlx5_0:1. "
        "GPU memory that no peer maps is copied through page-locked host memory, because this UCX cannot access it");
}

TEST_CASE("DescribeUcx names cuda_ipc as the only path around host memory") {
  CHECK(DescribeUcx({"1.22.0", {"tcp/lo", "posix/memory", "cuda_copy/cuda", "cuda_ipc/cuda"}, true}) ==
        "UCX 1.22.0: shared memory (posix); tcp on lo; GPU memory (cuda_copy, cuda_ipc). "
        "GPU memory that no peer maps is moved by UCX: by cuda_ipc between GPUs of one host that have access to "
        "each other, and otherwise through host memory");
  CHECK(DescribeUcx({"1.22.0", {"tcp/lo", "posix/memory", "cuda_copy/cuda", "gdr_copy/cuda"}, true}) ==
        "UCX 1.22.0: shared memory (posix); tcp on lo; GPU memory (cuda_copy, gdr_copy). "
        "GPU memory that no peer maps is copied by UCX through host memory");
}

TEST_CASE("DescribeUcx does not claim that RDMA reads GPU memory") {
  CHECK(DescribeUcx({"1.18.0", {"rc_mlx5/mlx5_0:1", "dc_mlx5/mlx5_0:1", "tcp/lo", "cuda_copy/cuda"}, true}) ==
        "UCX 1.18.0: dc_mlx5 on mlx5_0:1; rc_mlx5 on mlx5_0:1; tcp on lo; GPU memory (cuda_copy). "
        "GPU memory that no peer maps is copied by UCX through host memory, unless dc_mlx5, rc_mlx5 reads it directly "
        "(GPUDirect RDMA), which only a transfer can show");
}

}  // namespace
}  // namespace baton
