// Instructions that sm_90a has beyond those of sm_80: matrix products of a warpgroup from shared
// memory, barriers in shared memory, and the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/mma.cuh"

namespace baton::cuda {

// ---- Barriers in shared memory. A phase ends when all arrivals and all expected bytes have come.

__device__ inline void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine.
__device__ inline void FenceBarrierInit() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ inline void ExpectBytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity has ended. The phase before the first counts as ended, with
// parity 1.
__device__ inline void Wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred ended; again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1; @!ended bra again; }" ::"r"(
          SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// ---- The copy engine and other users of the async proxy.

// Makes this thread's writes to shared memory visible to wgmma and the copy engine.
__device__ inline void FenceAsyncProxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies the map's box at index `last` of the fourth dimension and index 0 of the others. Its bytes
// count for `barrier`.
__device__ inline void CopyBox(void* to, const CUtensorMap* map, int32_t last, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %2, %3}], "
      "[%4];" ::"r"(SharedAddress(to)),
      "l"(map), "r"(0), "r"(last), "r"(SharedAddress(barrier))
      : "memory");
}

// ---- Named barriers of the CTA.

__device__ inline void SyncNamed(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void ArriveNamed(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- Registers, by warpgroup.

template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- wgmma: D (64 x n) += A (64 x 16) B (16 x n), asynchronously. D is in registers, with rows
// [16 w, 16 w + 16) in warp w. Each warp's rows have the layout of mma.sync.

// Describes a matrix in shared memory with the 128-byte swizzle: groups of 8 rows of 64 elements,
// 1024 bytes each.
//
// - With k contiguous (Q and K), `stride` is the bytes from 8 rows to the next 8. `leading` is not
//   used.
// - With n contiguous (V), rows are k. `stride` has the same meaning. `leading` is the bytes from
//   64 columns to the next 64.
__device__ inline uint64_t MatrixDescriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  return uint64_t{address >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 | uint64_t{1} << 62;
}
// Returns the descriptor of the matrix that starts `bytes` later.
__device__ inline uint64_t Advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

// Orders earlier accesses to registers before the wgmmas that follow.
__device__ inline void FenceWgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void CommitWgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending committed groups are running.
template <int kPending>
__device__ inline void WaitWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accesses of `d` to before this point.
template <int kElements>
__device__ inline void PinRegisters(float (&d)[kElements]) {
#pragma unroll
  for (float& x : d) asm volatile("" : "+f"(x)::"memory");
}

#define BATON_INOUT_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BATON_INOUT_16(d, i) \
  BATON_INOUT_4(d, i), BATON_INOUT_4(d, i + 4), BATON_INOUT_4(d, i + 8), BATON_INOUT_4(d, i + 12)
#define BATON_INOUT_32(d, i) BATON_INOUT_16(d, i), BATON_INOUT_16(d, i + 16)
#define BATON_INOUT_64(d, i) BATON_INOUT_32(d, i), BATON_INOUT_32(d, i + 32)

// A and B are in shared memory, both with k contiguous. D = A B without kAccumulate.
template <bool kAccumulate>
__device__ inline void WgmmaSharedShared(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{ .reg .pred accumulate; setp.ne.b32 accumulate, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, accumulate, 1, 1, 0, 0; }"
      : BATON_INOUT_64(d, 0)
      : "l"(a), "l"(b), "n"(static_cast<int>(kAccumulate)));
}

// A is in registers, as for mma.sync. B is in shared memory with n contiguous.
__device__ inline void WgmmaRegistersShared(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : BATON_INOUT_32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void WgmmaRegistersShared(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : BATON_INOUT_64(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef BATON_INOUT_4
#undef BATON_INOUT_16
#undef BATON_INOUT_32
#undef BATON_INOUT_64

}  // namespace baton::cuda
