#include "backend/simulated/simulated_backend.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

// The hash of `before` extended by `token`: SplitMix64's finaliser (Steele et al. 2014). The result
// is never 0, which marks KV that was never written.
uint64_t Chain(uint64_t before, TokenId token) {
  uint64_t z = before * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(token) + 0x7f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

}  // namespace

SimulatedBackend::SimulatedBackend(ModelConfig model, DeviceShape device, int64_t blocks, uint64_t weights)
    : model_(std::move(model)),
      device_(std::move(device)),
      layout_(SimulatedKvLayout(model_)),
      weights_(weights),
      slab_(static_cast<size_t>(blocks * kBlockWords)) {}

uint64_t& SimulatedBackend::At(std::span<const BlockId> blocks, int64_t position) {
  const auto block = static_cast<size_t>(position / kBlockTokens);
  BATON_CHECK(block < blocks.size(), "the block table is too short");
  const auto word = static_cast<size_t>(blocks[block].value() * kBlockWords + position % kBlockTokens);
  BATON_CHECK(word < slab_.size(), "a block outside the slab");
  return slab_[word];
}

uint64_t SimulatedBackend::Read(std::span<const BlockId> blocks, int64_t position) {
  const uint64_t word = At(blocks, position);
  BATON_CHECK(word != 0, "read KV that was never written");
  return word;
}

LogitsView SimulatedBackend::Forward(const Batch& batch) {
  // A slice may read positions that another slice of the batch writes. The other slice then starts
  // earlier, so slices run in order of their start.
  std::vector<const SequenceSlice*> slices;
  for (const SequenceSlice& slice : batch.slices) slices.push_back(&slice);
  std::stable_sort(slices.begin(), slices.end(), [](auto* a, auto* b) { return a->start < b->start; });
  for (const SequenceSlice* slice : slices) {
    uint64_t chain = slice->start == 0 ? 0 : Read(slice->blocks, slice->start - 1);
    int64_t position = slice->start;
    for (const TokenId token : slice->tokens) At(slice->blocks, position++) = chain = Chain(chain ^ weights_, token);
  }
  logits_.clear();
  for (const SequenceSlice& slice : batch.slices) {
    const int64_t end = slice.start + std::ssize(slice.tokens);
    for (int64_t position = end - slice.logit_rows(); position < end; ++position) {
      const uint64_t chain = Read(slice.blocks, position);
      logits_.resize(logits_.size() + kVocab);
      logits_[logits_.size() - kVocab + (chain >> 32) % kVocab] = 1;
    }
  }
  return {.data = logits_.data(), .rows = static_cast<int64_t>(logits_.size()) / kVocab, .vocab = kVocab};
}

void SimulatedBackend::TakeBlock(const SimulatedBackend& from, BlockId source, BlockId target) {
  const auto word = [](BlockId block) { return static_cast<ptrdiff_t>(block.value() * kBlockWords); };
  std::copy_n(from.slab_.begin() + word(source), kBlockWords, slab_.begin() + word(target));
}

}  // namespace baton
