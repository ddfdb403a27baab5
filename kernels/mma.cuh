// The tensor core and copy instructions of sm_80 and later, and the layout of their tiles in shared
// memory.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace baton::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Returns the bytes from the start of a tile to a 16-byte chunk of a row. A tile of bf16 in shared
// memory has kRows rows of 64 columns, and then the same rows of the next 64 columns. The row's
// number permutes the eight chunks of a row.
//
// This layout is the "128-byte swizzle" of sm_90, whose tiles begin at multiples of 1024 bytes. It
// has no bank conflicts for ldmatrix.
template <int kRows>
__device__ constexpr uint32_t SwizzledChunk(int row, int chunk) {
  return (chunk / 8 * kRows + row) * 128 + ((chunk ^ row) & 7) * 16;
}

// Copies 16 bytes to shared memory. If `read` is false, it writes zeros and does not access `from`.
__device__ inline void CopyAsync(uint32_t to, const void* from, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read ? 16 : 0) : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's committed groups are in flight.
template <int kPending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads four 8x8 matrices. Lane i passes the address of row i % 8 of matrix i / 8. It gets the
// elements (row lane / 4, columns 2 (lane % 4) + {0, 1}) of each matrix.
__device__ inline void LoadMatrices(uint32_t (&m)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}
// Loads the transposes of four 8x8 matrices: (rows 2 (lane % 4) + {0, 1}, column lane / 4).
__device__ inline void LoadTransposed(uint32_t (&m)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}

// Computes d[0..3] += A (16 x 16) B (16 x 8).
__device__ inline void Mma(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Packs two floats as bf16, `low` in the low half.
__device__ inline uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace baton::cuda
