#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/block_copy.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

enum class Direction { kGather, kScatter };
enum class Memory { kDevice, kPinnedHost };

using Bytes = std::vector<uint8_t>;

// Bytes in memory that kernels can access: device memory or page-locked host memory.
class Buffer {
 public:
  Buffer(Memory memory, const Bytes& bytes) : size_(bytes.size()) {
    void* data = nullptr;
    if (memory == Memory::kDevice) {
      Must(cudaMalloc(&data, size_));
      data_ = {static_cast<uint8_t*>(data), [](uint8_t* p) { cudaFree(p); }};
    } else {
      Must(cudaHostAlloc(&data, size_, cudaHostAllocDefault));
      data_ = {static_cast<uint8_t*>(data), [](uint8_t* p) { cudaFreeHost(p); }};
    }
    Must(cudaMemcpy(data, bytes.data(), size_, cudaMemcpyDefault));
  }

  uint8_t* data() const { return data_.get(); }
  Bytes ToHost() const {
    Bytes bytes(size_);
    Must(cudaDeviceSynchronize());
    Must(cudaMemcpy(bytes.data(), data(), size_, cudaMemcpyDefault));
    return bytes;
  }

 private:
  std::shared_ptr<uint8_t> data_;
  size_t size_;
};

// The bytes repeat after 1 MiB, because a bench needs 2^30 bytes.
Bytes RandomBytes(int64_t size, std::mt19937_64& random) {
  Bytes bytes(size);
  const int64_t distinct = std::min(size, int64_t{1} << 20) / 8 * 8;
  for (int64_t i = 0; i < distinct; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (int64_t i = distinct; i < size; i += distinct) {
    std::memcpy(bytes.data() + i, bytes.data(), std::min(distinct, size - i));
  }
  return bytes;
}

struct Copy {
  Direction direction;
  int64_t block_bytes;
  int32_t slab_blocks;
  int32_t count;
  Memory packed;

  std::string Name() const {
    return std::string("block_copy ") + (direction == Direction::kGather ? "gather " : "scatter ") +
           std::to_string(count) + " x " + std::to_string(block_bytes) + " B" +
           (packed == Memory::kPinnedHost ? ", pinned host" : "");
  }
};

KernelCase MakeCase(const Copy& copy, bool check, std::mt19937_64& random) {
  const bool gather = copy.direction == Direction::kGather;
  const std::vector<int64_t> order = RandomOrder(copy.slab_blocks, random);
  std::vector<CopyRun> runs;
  for (int64_t i = 0; i < copy.count; ++i) {
    const int64_t in_slab = order[i] * copy.block_bytes, in_packed = i * copy.block_bytes;
    runs.push_back({.from = gather ? in_slab : in_packed,
                    .to = gather ? in_packed : in_slab,
                    .bytes = copy.block_bytes,
                    .first_piece = i * CopyPieces(copy.block_bytes)});
  }
  const DeviceArray<CopyRun> runs_on_device(runs);
  const Bytes slab_bytes = RandomBytes(copy.slab_blocks * copy.block_bytes, random);
  const Bytes packed_bytes = RandomBytes(copy.count * copy.block_bytes, random);
  const Buffer slab(Memory::kDevice, slab_bytes);
  const Buffer packed(copy.packed, packed_bytes);

  KernelCase result;
  result.name = copy.Name();
  result.bytes = 2.0 * copy.count * copy.block_bytes;
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) {
    const uint8_t* from = gather ? slab.data() : packed.data();
    uint8_t* to = gather ? packed.data() : slab.data();
    return LaunchCopyRuns(from, runs_on_device.data(), copy.count, copy.count * CopyPieces(copy.block_bytes), to,
                          stream);
  };
  if (!check) return result;

  // The expected bytes of both buffers. The rest of the slab does not change.
  Bytes slab_after = slab_bytes;
  Bytes packed_after = packed_bytes;
  for (int32_t i = 0; i < copy.count; ++i) {
    uint8_t* in_slab = slab_after.data() + order[i] * copy.block_bytes;
    uint8_t* in_packed = packed_after.data() + i * copy.block_bytes;
    std::memcpy(gather ? in_packed : in_slab, gather ? in_slab : in_packed, copy.block_bytes);
  }
  result.error = [=] { return slab.ToHost() == slab_after && packed.ToHost() == packed_after ? 0.0 : 1.0; };
  return result;
}

}  // namespace

std::vector<KernelCase> BlockCopyCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<KernelCase> cases;
  const bool check = size == CaseSize::kCheck;
  for (const Direction direction : {Direction::kGather, Direction::kScatter}) {
    for (const Memory packed : {Memory::kDevice, Memory::kPinnedHost}) {
      if (check) {
        for (const int64_t block_bytes : {16, 32768, 36880, 3 * 16 * 1000, 40'007}) {
          cases.push_back(MakeCase({direction, block_bytes, 23, 11, packed}, check, random));
        }
      } else {
        // A block has 32 layers of K and V, with 8 heads of 128 in bf16.
        const int32_t count = packed == Memory::kDevice ? 256 : 32;
        cases.push_back(MakeCase({direction, int64_t{2} << 20, count, count, packed}, check, random));
      }
    }
  }
  return cases;
}

}  // namespace baton::cuda
