#include "transport/ucx/description.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("UCX is described by its version and the transports that it found, by what they reach") {
  CHECK(DescribeUcx({"1.13.1", {"self/memory0", "tcp/lo", "posix/memory", "cma/memory"}, false}) ==
        "UCX 1.13.1: shared memory (posix, cma); tcp on lo. "
        "GPU memory that no peer maps is copied through page-locked memory of the host: this UCX does not take it");
  CHECK(DescribeUcx({"1.13.1", {"tcp/lo", "rc_mlx5/mlx5_0:1", "tcp/eth0", "ud_mlx5/mlx5_0:1"}, false}) ==
        "UCX 1.13.1: rc_mlx5 on mlx5_0:1; tcp on lo, eth0; ud_mlx5 on mlx5_0:1. "
        "GPU memory that no peer maps is copied through page-locked memory of the host: this UCX does not take it");
}

TEST_CASE("UCX with CUDA is said to spare the host's memory by cuda_ipc alone") {
  CHECK(DescribeUcx({"1.22.0", {"tcp/lo", "posix/memory", "cuda_copy/cuda", "cuda_ipc/cuda"}, true}) ==
        "UCX 1.22.0: shared memory (posix); tcp on lo; GPU memory (cuda_copy, cuda_ipc). "
        "GPU memory that no peer maps is moved by UCX: between GPUs of one host that reach each other by cuda_ipc, "
        "not through the host's memory; else through it");
  CHECK(DescribeUcx({"1.22.0", {"tcp/lo", "posix/memory", "cuda_copy/cuda", "gdr_copy/cuda"}, true}) ==
        "UCX 1.22.0: shared memory (posix); tcp on lo; GPU memory (cuda_copy, gdr_copy). "
        "GPU memory that no peer maps is copied by UCX, through the host's memory");
}

TEST_CASE("of RDMA it is not said that it reads GPU memory") {
  CHECK(DescribeUcx({"1.18.0", {"rc_mlx5/mlx5_0:1", "dc_mlx5/mlx5_0:1", "tcp/lo", "cuda_copy/cuda"}, true}) ==
        "UCX 1.18.0: dc_mlx5 on mlx5_0:1; rc_mlx5 on mlx5_0:1; tcp on lo; GPU memory (cuda_copy). "
        "GPU memory that no peer maps is copied by UCX, through the host's memory, unless dc_mlx5, rc_mlx5 reads it by "
        "itself (GPUDirect RDMA), which is not known before it is tried");
}

}  // namespace
}  // namespace baton
