#include "bench/roofline.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kBufferBytes = int64_t{384} << 20;
// Part of the buffer that one thread reads at a time.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
// Takes well below a millisecond.
constexpr int64_t kFlopsIterations = 100000;
// Shares for each thread.
constexpr int64_t kFlopsShares = 8;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Each loop keeps `kChains` independent sums in flight and returns a value that depends on all of
// them. The number of sums exceeds latency times pipes of all present processors. An iteration has
// chains * lanes * 2 operations, and twice as many for pairs.
constexpr int kSseChains = 12;
float SseLoop(int64_t iterations) {
  __m128 sum[kSseChains];
  for (__m128& s : sum) s = _mm_set1_ps(1.0F);
  const __m128 a = _mm_set1_ps(0.5F);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m128& s : sum) s = _mm_add_ps(_mm_mul_ps(s, a), a);
  }
  __m128 total = sum[0];
  for (int c = 1; c < kSseChains; ++c) total = _mm_add_ps(total, sum[c]);
  return _mm_cvtss_f32(total);
}

constexpr int kAvx2Chains = 12;
__attribute__((target("avx2,fma"))) float Avx2Loop(int64_t iterations) {
  __m256 sum[kAvx2Chains];
  for (__m256& s : sum) s = _mm256_set1_ps(1.0F);
  const __m256 a = _mm256_set1_ps(0.5F);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, a);
  }
  __m256 total = sum[0];
  for (int c = 1; c < kAvx2Chains; ++c) total = _mm256_add_ps(total, sum[c]);
  return _mm256_cvtss_f32(total);
}

constexpr int kAvx512Chains = 24;
__attribute__((target("avx512f"))) float Avx512Loop(int64_t iterations) {
  __m512 sum[kAvx512Chains];
  for (__m512& s : sum) s = _mm512_set1_ps(1.0F);
  const __m512 a = _mm512_set1_ps(0.5F);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 24
    for (__m512& s : sum) s = _mm512_fmadd_ps(s, a, a);
  }
  __m512 total = sum[0];
  for (int c = 1; c < kAvx512Chains; ++c) total = _mm512_add_ps(total, sum[c]);
  return _mm512_cvtss_f32(total);
}

__attribute__((target("avx512f,avx512bf16"))) float Bf16Loop(int64_t iterations) {
  __m512 sum[kAvx512Chains];
  for (__m512& s : sum) s = _mm512_set1_ps(1.0F);
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 24
    for (__m512& s : sum) s = _mm512_dpbf16_ps(s, a, a);
  }
  __m512 total = sum[0];
  for (int c = 1; c < kAvx512Chains; ++c) total = _mm512_add_ps(total, sum[c]);
  return _mm512_cvtss_f32(total);
}

struct Loop {
  float (*run)(int64_t iterations);
  double operations;  // per iteration
};

Loop LoopOf(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kSse:
      return {SseLoop, kSseChains * 4 * 2};
    case Arithmetic::kAvx2Fma:
      return {Avx2Loop, kAvx2Chains * 8 * 2};
    case Arithmetic::kAvx512Fma:
      return {Avx512Loop, kAvx512Chains * 16 * 2};
    case Arithmetic::kAvx512Bf16:
      return {Bf16Loop, kAvx512Chains * 32 * 2};
  }
  CheckFailed(__FILE__, __LINE__, "arithmetic", "unknown");
}

// Reads all cache lines of [p, p + bytes) in order, four at a time.
uint64_t ReadSse(const std::byte* p, int64_t bytes) {
  __m128i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 64) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sum[c] = _mm_xor_si128(sum[c], _mm_load_si128(reinterpret_cast<const __m128i*>(p + i + c * 16)));
    }
  }
  return _mm_cvtsi128_si64(_mm_xor_si128(_mm_xor_si128(sum[0], sum[1]), _mm_xor_si128(sum[2], sum[3])));
}

__attribute__((target("avx2"))) uint64_t ReadAvx2(const std::byte* p, int64_t bytes) {
  __m256i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2048 + 64), _MM_HINT_T0);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      sum[c] = _mm256_xor_si256(sum[c], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + c * 32)));
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1);
}

}  // namespace

Arithmetic ArithmeticOf(std::string_view kernels, bool bf16_weights) {
  if (kernels == "portable") return Arithmetic::kSse;
  if (kernels == "avx2") return Arithmetic::kAvx2Fma;
  return kernels == "avx512bf16" && bf16_weights ? Arithmetic::kAvx512Bf16 : Arithmetic::kAvx512Fma;
}

void Roofline::Free::operator()(std::byte* p) const { std::free(p); }

Roofline::Roofline(ThreadPool& pool) : pool_(pool) {
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(size_t{2} << 20, kBufferBytes)));
  BATON_CHECK(buffer_ != nullptr, "out of memory for the bandwidth buffer");
  madvise(buffer_.get(), kBufferBytes, MADV_HUGEPAGE);
  std::memset(buffer_.get(), 1, kBufferBytes);
}

double Roofline::FlopsPerSecond(Arithmetic arithmetic) {
  const Loop loop = LoopOf(arithmetic);
  const int64_t shares = kFlopsShares * pool_.threads();
  volatile float sink = 0;
  const auto start = std::chrono::steady_clock::now();
  pool_.ParallelFor(shares, 1, [&](Share) { sink = loop.run(kFlopsIterations); });
  return loop.operations * static_cast<double>(kFlopsIterations * shares) / Seconds(start);
}

double Roofline::ReadBytesPerSecond() {
  const auto read = __builtin_cpu_supports("avx2") ? ReadAvx2 : ReadSse;
  volatile uint64_t sink = 0;
  const auto start = std::chrono::steady_clock::now();
  pool_.ParallelFor(kBufferBytes / kPieceBytes, 1, [&](Share share) {
    for (int64_t i = share.begin; i < share.end; ++i) sink = read(buffer_.get() + i * kPieceBytes, kPieceBytes);
  });
  return static_cast<double>(kBufferBytes) / Seconds(start);
}

}  // namespace baton
