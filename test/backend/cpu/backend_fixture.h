// A small model on the CPU backend. Blocks of its sequences lie scattered in a slab full of NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_group.h"
#include "catch.h"
#include "model/random_weights.h"

namespace baton {

// Names of the kernel tables that this machine can run.
inline std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const KernelTable* table : RunnableKernels()) names.push_back(table->name);
  return names;
}

// A shape like SmolLM2's: three query heads for each KV head.
inline ModelConfig LlamaShape(DType dtype) {
  ModelConfig shape;
  shape.dtype = dtype;
  shape.layers = 2;
  shape.hidden = 64;
  shape.ffn = 112;
  shape.heads = 6;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.vocab = 130;
  shape.context = 4096;
  shape.tied_embeddings = true;
  return shape;
}

// A shape with a bias. No vector size divides its head size, and it has more query heads for each
// KV head than a tile has rows.
inline ModelConfig Qwen2Shape(DType dtype) {
  ModelConfig shape = LlamaShape(dtype);
  shape.architecture = Architecture::kQwen2;
  shape.hidden = 48;
  shape.ffn = 80;
  shape.heads = 7;
  shape.kv_heads = 1;
  shape.head_dim = 20;
  shape.vocab = 97;
  shape.rms_eps = 1e-6;
  shape.tied_embeddings = false;
  shape.qkv_bias = true;
  return shape;
}

// A shape with QK norm, whose heads are wider than hidden / heads.
inline ModelConfig Qwen3Shape(DType dtype) {
  ModelConfig shape = LlamaShape(dtype);
  shape.architecture = Architecture::kQwen3;
  shape.hidden = 48;
  shape.heads = 4;
  shape.head_dim = 32;
  shape.vocab = 100;
  shape.tied_embeddings = false;
  shape.qk_norm = true;
  return shape;
}

// The tokens of a sequence, and its blocks in the slab.
struct TestSequence {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;

  // The slice of tokens [start, end).
  SequenceSlice Slice(int64_t start, int64_t end, bool wants_logits) const {
    return {std::span(tokens).subspan(start, end - start), static_cast<int32_t>(start), blocks, wants_logits};
  }
};

class TestBackend {
 public:
  static constexpr int64_t kBlocks = 400;

  // A backend of `ranks` ranks.
  TestBackend(const Weights& weights, CpuBackendOptions options, uint64_t seed = 1, int ranks = 1)
      : vocab_(weights.config.vocab), random_(seed) {
    options.kv_blocks = kBlocks;
    auto made = ranks == 1 ? MakeCpuBackend(weights, options) : MakeCpuGroup(weights, ranks, {}, options);
    REQUIRE(made.ok());
    backend_ = *std::move(made);
    for (uint32_t i = 0; i < kBlocks; ++i) {
      Clear(BlockId(i));
      free_.push_back(BlockId(i));
    }
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  Backend& operator*() { return *backend_; }
  Backend* operator->() { return backend_.get(); }

  std::vector<TokenId> RandomTokens(int64_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % vocab_);
    return tokens;
  }
  // Returns a sequence with the blocks of `shared` first, and free blocks behind them.
  TestSequence Place(std::vector<TokenId> tokens, std::vector<BlockId> shared = {}) {
    TestSequence sequence{std::move(tokens), std::move(shared)};
    while (static_cast<int64_t>(sequence.blocks.size()) < BlocksFor(static_cast<int64_t>(sequence.tokens.size()))) {
      REQUIRE(!free_.empty());
      sequence.blocks.push_back(free_.back());
      free_.pop_back();
    }
    return sequence;
  }

  // Fills the blocks with NaN and frees them. The caller must not free a shared block twice.
  void Free(const TestSequence& sequence) {
    for (const BlockId block : sequence.blocks) {
      Clear(block);
      free_.push_back(block);
    }
  }

  // Returns the rows of logits, one after another.
  std::vector<float> Run(const Batch& batch) {
    // The threads on which the backend called `work`.
    std::vector<std::thread::id> meanwhile;
    const auto logits =
        backend_->Forward(batch, [](int64_t) { return true; },
                          {[&] { meanwhile.push_back(std::this_thread::get_id()); }, [] { return nullptr; }});
    REQUIRE(logits.ok());
    REQUIRE(meanwhile == std::vector{std::this_thread::get_id()});
    return {logits->data, logits->data + logits->rows * logits->vocab};
  }

  // A block in the order of `kv_layout`. In the slab of a group, its heads lie in several stripes.
  std::vector<std::byte> Block(BlockId block) {
    const KvLayout& layout = backend_->kv_layout();
    const Slab slab = backend_->kv_slab();
    std::vector<std::byte> bytes(layout.BlockBytes());
    for (int64_t at = 0; at < std::ssize(bytes); at += layout.PlaneBytes()) {
      REQUIRE(slab.Copy(&bytes[at], slab.data() + block.value() * std::ssize(bytes) + at, layout.PlaneBytes()).ok());
    }
    return bytes;
  }

  // K and V of all positions, as [position][layer][k|v][kv_head][head_dim].
  std::vector<std::byte> Kv(const TestSequence& sequence) {
    const KvLayout& layout = backend_->kv_layout();
    std::vector<std::byte> bytes, block;
    for (size_t position = 0; position < sequence.tokens.size(); ++position) {
      const int64_t slot = position % kBlockTokens;
      if (slot == 0) block = Block(sequence.blocks[position / kBlockTokens]);
      for (int64_t head = 0; head < layout.layers * 2 * layout.kv_heads; ++head) {
        const bool is_k = head / layout.kv_heads % 2 == 0;
        for (int64_t i = 0; i < layout.head_dim; ++i) {
          const int64_t index = is_k ? layout.KIndex(slot, i) : layout.VIndex(slot, i);
          const std::byte* element = block.data() + head * layout.HeadBytes() + index * layout.ElementBytes();
          bytes.insert(bytes.end(), element, element + layout.ElementBytes());
        }
      }
    }
    return bytes;
  }

 private:
  // Fills the block with bytes that are NaN as bf16 and as fp32.
  void Clear(BlockId block) {
    const std::vector<std::byte> nan(backend_->kv_layout().BlockBytes(), std::byte{0xff});
    const Slab slab = backend_->kv_slab();
    REQUIRE(slab.Copy(slab.data() + block.value() * nan.size(), nan.data(), nan.size()).ok());
  }

  const int64_t vocab_;
  std::mt19937 random_;
  std::unique_ptr<Backend> backend_;
  std::vector<BlockId> free_;
};

// Returns rows of logits, [rows, vocab], with -inf for `ids`.
inline std::vector<float> Masked(std::vector<float> logits, int64_t vocab, const std::vector<TokenId>& ids) {
  for (int64_t row = 0; row < std::ssize(logits); row += vocab) {
    for (const TokenId id : ids) logits[row + id] = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

// Compares bits, so that 0 differs from -0.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The largest difference, as a share of the largest expected value.
inline double Difference(const std::vector<float>& expected, const std::vector<float>& got) {
  REQUIRE(expected.size() == got.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(std::isfinite(got[i]));
    most = std::max(most, std::abs(double{expected[i]} - got[i]));
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return most / largest;
}

}  // namespace baton
