// A small model on a CUDA device, or on a group of devices. Blocks of its sequences lie scattered
// in a slab full of NaN.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_group.h"
#include "backend/cuda/cuda_slab.h"
#include "backend/cuda/upload.h"
#include "backend/tensor_parallel.h"
#include "catch.h"

namespace baton {

// The device of each rank. Rank i has device i modulo the number of devices.
inline std::vector<int> DevicesOf(int ranks) {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  std::vector<int> of_ranks;
  for (int rank = 0; rank < ranks; ++rank) of_ranks.push_back(rank % devices);
  return of_ranks;
}

inline bool HasDevice() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  std::cout << "SKIPPED: CUDA backend: no CUDA device\n";
  return false;
}

inline constexpr SampleSpec kGreedy{.draw = {.temperature = 0}};

template <typename T>
std::vector<T> OnDevice(const UploadedList<T>& list) {
  std::vector<T> values(static_cast<size_t>(list.size()));
  REQUIRE(cudaMemcpy(values.data(), list.data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return values;
}

// Changes a shape to sizes that the CUDA kernels support.
inline ModelConfig Wide(ModelConfig shape, int64_t head_dim) {
  shape.head_dim = head_dim;
  shape.vocab = 136;
  return shape;
}
inline std::vector<ModelConfig> Shapes() {
  return {LlamaShape(DType::kBF16), Wide(Qwen2Shape(DType::kBF16), 64), Wide(Qwen3Shape(DType::kBF16), 128)};
}

class Device {
 public:
  static constexpr int64_t kBlocks = 400;

  // A backend of `ranks` ranks, on as many devices as the machine has. `unnamed` as in
  // CudaBackendOptions.
  Device(const Weights& weights, bool same_bits, uint32_t seed = 1, int ranks = 1, const StepLimits& step = {},
         const std::vector<TokenId>& unnamed = {})
      : random_(seed) {
    const KvLayout layout = CudaKvLayout(weights.config);
    std::vector<CudaRank> group;
    for (const int device : DevicesOf(ranks)) {
      const int rank = static_cast<int>(group.size());
      auto memory = CudaSlab::Allocate(device, kBlocks * BlockBytesOf(layout, {rank, ranks}));
      REQUIRE(memory.ok());
      memory_.push_back(*std::move(memory));
      const Slab slab = memory_.back()->slab();
      REQUIRE(cudaMemset(slab.data(), 0xff, slab.size()) == cudaSuccess);
      group.push_back({device, slab});
    }
    CudaBackendOptions options{.slab = group[0].slab, .step = step, .unnamed = unnamed, .same_bits = same_bits};
    auto made = ranks > 1 ? MakeCudaGroup(weights, group, options) : MakeCudaBackend(weights, options);
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    backend_ = *std::move(made);
    for (uint32_t i = 0; i < kBlocks; ++i) free_.push_back(BlockId(i));
    // Block 0 is used last, because writes to a wrong address often hit it.
    std::shuffle(free_.begin() + 1, free_.end(), random_);
  }

  Backend* operator->() { return backend_.get(); }

  TestSequence Place(std::vector<TokenId> tokens) {
    TestSequence sequence{std::move(tokens), {}};
    for (int64_t i = 0; i < BlocksFor(std::ssize(sequence.tokens)); ++i) {
      REQUIRE(!free_.empty());
      sequence.blocks.push_back(free_.back());
      free_.pop_back();
    }
    return sequence;
  }

  std::vector<float> Run(const Batch& batch) {
    // The threads on which the backend called `work`.
    std::vector<std::thread::id> meanwhile;
    const auto logits =
        backend_->Forward(batch, [](int64_t) { return true; },
                          {[&] { meanwhile.push_back(std::this_thread::get_id()); }, [] { return nullptr; }});
    INFO(logits.status().ToString());
    REQUIRE(logits.ok());
    REQUIRE(meanwhile == std::vector{std::this_thread::get_id()});
    return {logits->data, logits->data + logits->rows * logits->vocab};
  }

  // Prefills [0, end) in chunks, without logits.
  void Prefill(const TestSequence& sequence, int64_t end, int64_t chunk) {
    for (int64_t begin = 0; begin < end; begin += chunk) {
      Run({{sequence.Slice(begin, std::min(begin + chunk, end), false)}});
    }
  }

  // Returns true if all blocks that no sequence has used still have their first content.
  bool UnusedBlocksAreUntouched() {
    std::vector<uint16_t> block(static_cast<size_t>(backend_->kv_layout().BlockBytes()) / 2);
    return std::ranges::all_of(free_, [&](BlockId id) {
      ReadBlock(backend_->kv_slab(), id, block);
      return std::ranges::count(block, 0xffff) == std::ssize(block);
    });
  }

  // K and V of the sequence as bf16 bits, [position][layer][k|v][kv_head][head_dim].
  std::vector<uint16_t> Kv(const TestSequence& sequence) {
    const KvLayout& layout = backend_->kv_layout();
    const Slab slab = backend_->kv_slab();
    std::vector<uint16_t> block(static_cast<size_t>(layout.BlockBytes()) / 2), values;
    for (size_t position = 0; position < sequence.tokens.size(); ++position) {
      const int64_t slot = static_cast<int64_t>(position) % kBlockTokens;
      if (slot == 0) ReadBlock(slab, sequence.blocks[position / kBlockTokens], block);
      for (int64_t head = 0; head < layout.layers * 2 * layout.kv_heads; ++head) {
        for (int64_t i = 0; i < layout.head_dim; ++i) {
          values.push_back(block[static_cast<size_t>(head * layout.HeadBytes() / 2 + layout.KIndex(slot, i))]);
        }
      }
    }
    return values;
  }

 private:
  // Reads plane by plane, because a group's slab stores longer ranges in another order.
  void ReadBlock(const Slab& slab, BlockId id, std::vector<uint16_t>& block) {
    const KvLayout& layout = backend_->kv_layout();
    auto* bytes = reinterpret_cast<std::byte*>(block.data());
    for (int64_t at = 0; at < layout.BlockBytes(); at += layout.PlaneBytes()) {
      REQUIRE(slab.Copy(bytes + at, slab.data() + id.value() * layout.BlockBytes() + at,
                        static_cast<size_t>(layout.PlaneBytes()))
                  .ok());
    }
  }

  std::mt19937 random_;
  std::vector<std::shared_ptr<CudaSlab>> memory_;
  std::unique_ptr<Backend> backend_;
  std::vector<BlockId> free_;
};

inline std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

// The slice of one decode row. Its block table has only the blocks up to `position`.
inline SequenceSlice NextOf(const TestSequence& sequence, int64_t position) {
  SequenceSlice slice = sequence.Slice(position, position + 1, true);
  slice.blocks = slice.blocks.first(static_cast<size_t>(BlocksFor(position + 1)));
  return slice;
}

}  // namespace baton
