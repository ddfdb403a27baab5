// A tiny deterministic Backend for engine tests. Its KV is a chain of hashes, so that a wrong,
// missing or half-moved block gives wrong tokens.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"
#include "model/reference_sampler.h"

namespace baton {

// The KV of position p holds hash(tokens [0, p]). Layer 0 reads the hash of p - 1 from the block
// that the block table names. Logits hash ALL KV bytes of positions [0, start + n). CHECKs ensure
// that these bytes are written and consistent.
class FakeBackend final : public Backend {
 public:
  static constexpr int64_t kVocab = 50;
  static KvLayout Layout() { return {.layers = 3, .kv_heads = 2, .head_dim = 4, .format = KvFormat::kBf16}; }

  explicit FakeBackend(int64_t blocks) : owned_(static_cast<size_t>(blocks * Layout().BlockBytes())), slab_(owned_) {}
  explicit FakeBackend(std::span<std::byte> slab) : slab_(slab) {}

  // The next token of greedy decoding after `tokens`, computed alone and in one pass.
  static TokenId NextToken(std::span<const TokenId> tokens) {
    FakeBackend alone(BlocksFor(static_cast<int64_t>(tokens.size())));
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < BlocksFor(static_cast<int64_t>(tokens.size())); ++i) blocks.push_back(BlockId(i));
    Batch batch;
    batch.slices.push_back({.tokens = tokens, .start = 0, .blocks = blocks, .wants_logits = true});
    return Argmax(alone.Forward(batch, [](int64_t) { return true; })->data);
  }
  // The first `count` tokens of greedy decoding after `prompt`.
  static std::vector<TokenId> Greedy(std::vector<TokenId> prompt, int64_t count) {
    const size_t prompt_size = prompt.size();
    for (int64_t i = 0; i < count; ++i) prompt.push_back(NextToken(prompt));
    return {prompt.begin() + static_cast<ptrdiff_t>(prompt_size), prompt.end()};
  }
  static TokenId Argmax(const float* logits) {
    return static_cast<TokenId>(std::max_element(logits, logits + kVocab) - logits);
  }

  // The next Forward does nothing and returns `status`.
  void FailNext(absl::Status status) { failure_ = std::move(status); }
  // [tokens] computed since the start, in all sequences.
  int64_t tokens_computed() const { return tokens_computed_; }
  int64_t steps() const { return steps_; }
  std::function<void(int64_t layer)> at_layer;  // called in a running step, on its thread
  // Changes a row's logits [kVocab] before they are returned or sampled.
  std::function<void(const SequenceSlice& slice, std::span<float> logits)> at_logits;
  // If set, the backend samples where it may, as a device does. The logits that it then does not
  // return are NaN.
  bool samples = false;
  // With `samples`, a step may be enqueued before the previous one has ended. Its work is done at
  // once or as late as possible. Either way it uses the values that the engine had when the step
  // was enqueued.
  enum class Ahead { kNever, kAtOnce, kLate, kDeclined } ahead = Ahead::kNever;
  int64_t steps_ahead() const { return steps_ahead_; }
  bool waits = false;  // reports that the device waited for the next step

  const KvLayout& kv_layout() const override { return layout_; }
  Slab kv_slab() override { return slab_; }
  std::string numerics_id() const override { return "fake-1"; }

  using Backend::Forward;
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                     const Meanwhile& meanwhile) override {
    const std::optional<Started> started = std::exchange(started_, std::nullopt);
    if (failure_) return *std::exchange(failure_, std::nullopt);
    BATON_CHECK(batch.started == started.has_value(), "a pass must continue the step that is enqueued ahead");
    if (started)
      BATON_CHECK(started->batch.slices.size() == batch.slices.size(),
                  "the batch is not the step that is enqueued ahead");
    ++steps_;
    steps_ahead_ += batch.started;
    if (started && started->results) {
      results_ = *started->results;
    } else {
      const absl::StatusOr<Results> computed = Compute(started ? started->batch : batch, layer_done);
      if (!computed.ok()) return computed.status();
      results_ = *computed;
    }
    meanwhile.work();  // as late as on a device that received all work long ago
    const bool chose_all = samples && std::ranges::count(results_.sampled, kNotSampled, &SampledToken::id) == 0;
    if (chose_all && ahead != Ahead::kNever) Begin(meanwhile.next());
    return LogitsView{.data = results_.logits.data(),
                      .rows = static_cast<int64_t>(results_.logits.size()) / kVocab,
                      .vocab = kVocab,
                      .sampled = results_.sampled,
                      .next_started = started_.has_value(),
                      .device_waited = waits};
  }

 private:
  // SplitMix64's finaliser (Steele et al. 2014). It never returns zero, which means "never
  // written".
  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t z = a * 0x9e3779b97f4a7c15ULL + b + 0x7f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) | 1;
  }
  static int64_t End(const SequenceSlice& slice) { return slice.start + static_cast<int64_t>(slice.tokens.size()); }

  // Slices in the order of their starts. A slice may read KV that another slice of the batch
  // writes, and that slice starts earlier.
  static std::vector<const SequenceSlice*> ByStart(const Batch& batch) {
    std::vector<const SequenceSlice*> slices;
    for (const SequenceSlice& slice : batch.slices) slices.push_back(&slice);
    std::stable_sort(slices.begin(), slices.end(), [](auto* a, auto* b) { return a->start < b->start; });
    return slices;
  }

  void CheckBatch(const Batch& batch) {
    BATON_CHECK(!batch.slices.empty(), "an empty batch");
    std::set<std::pair<BlockId, int64_t>> written;
    for (const SequenceSlice& slice : batch.slices) {
      BATON_CHECK(!slice.tokens.empty() && slice.start >= 0, "an empty slice");
      BATON_CHECK(static_cast<int64_t>(slice.blocks.size()) >= BlocksFor(End(slice)), "the block table is too short");
      for (int64_t p = slice.start; p < End(slice); ++p) {
        BATON_CHECK(written.insert({slice.blocks[static_cast<size_t>(p / kBlockTokens)], p % kBlockTokens}).second,
                    "a position is written twice");
      }
      tokens_computed_ += static_cast<int64_t>(slice.tokens.size());
    }
  }

  struct Results {
    std::vector<float> logits;
    std::vector<SampledToken> sampled;
  };
  absl::StatusOr<Results> Compute(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done) {
    CheckBatch(batch);
    for (int64_t layer = 0; layer < layout_.layers; ++layer) {
      for (const SequenceSlice* slice : ByStart(batch)) WriteLayer(*slice, layer);
      if (at_layer) at_layer(layer);
      if (!layer_done(layer)) return absl::AbortedError("broken off");
    }
    Results results;
    for (const SequenceSlice& slice : batch.slices) {
      for (int64_t end = End(slice) - slice.logit_rows() + 1; end <= End(slice); ++end) {
        AppendRow(slice, HashHistory(slice, end), results);
      }
      if (!slice.wants_logits) HashHistory(slice, End(slice));
    }
    return results;
  }

  // One row of a step that is enqueued, with copies of all that it needs.
  struct Slice {
    TokenId token;
    std::vector<BlockId> blocks;
    std::optional<SampleSpec> sample;
    std::vector<SeenToken> seen;
    std::vector<TokenBias> biases;
  };
  struct Started {
    std::vector<Slice> slices;
    Batch batch;  // refers to `slices`
    std::optional<Results> results;
  };
  void Begin(const Batch* next) {
    if (next == nullptr || ahead == Ahead::kDeclined) return;
    Started& started = started_.emplace();
    for (const SequenceSlice& slice : next->slices) started.slices.push_back(Copy(slice));
    for (size_t i = 0; i < next->slices.size(); ++i) {
      Slice& copy = started.slices[i];
      if (copy.sample) copy.sample->seen = copy.seen;
      if (copy.sample) copy.sample->biases = copy.biases;
      started.batch.slices.push_back({.tokens = std::span(&copy.token, 1),
                                      .start = next->slices[i].start,
                                      .blocks = copy.blocks,
                                      .wants_logits = next->slices[i].wants_logits,
                                      .sample = copy.sample ? &*copy.sample : nullptr});
    }
    if (ahead == Ahead::kAtOnce) started.results = *Compute(started.batch, [](int64_t) { return true; });
  }
  Slice Copy(const SequenceSlice& slice) const {
    BATON_CHECK(slice.tokens.size() == 1, "a decode step has one token of each");
    Slice copy{.token = slice.tokens[0],
               .blocks = {slice.blocks.begin(), slice.blocks.end()},
               .sample = {},
               .seen = {},
               .biases = {}};
    if (slice.sample != nullptr) {
      copy.sample = *slice.sample;
      copy.seen.assign(slice.sample->seen.begin(), slice.sample->seen.end());
      copy.biases.assign(slice.sample->biases.begin(), slice.sample->biases.end());
    }
    if (slice.follows == kFollowsNone) return copy;
    copy.token = std::max(0, results_.sampled.at(static_cast<size_t>(slice.follows)).id);
    if (copy.seen.empty()) return copy;
    auto seen = std::ranges::find(copy.seen, copy.token, &SeenToken::id);
    if (seen == copy.seen.end()) seen = copy.seen.insert(seen, {.id = copy.token, .outputs = 0});
    ++seen->outputs;
    return copy;
  }

  // K (value = 0) or V (value = 1) of one head at one position. A hash fills its head_dim elements
  // of 2 bytes.
  std::byte* At(std::span<const BlockId> blocks, int64_t position, int64_t layer, int64_t head, int64_t value) {
    const int64_t block = blocks[static_cast<size_t>(position / kBlockTokens)].value();
    const int64_t in_head = (position % kBlockTokens) * layout_.head_dim * layout_.ElementBytes();
    const int64_t offset = block * layout_.BlockBytes() +
                           (value == 0 ? layout_.KOffset(layer, head) : layout_.VOffset(layer, head)) + in_head;
    BATON_CHECK(offset >= 0 && offset + 8 <= static_cast<int64_t>(slab_.size()), "a block outside the slab");
    return slab_.data() + offset;
  }
  uint64_t Read(std::span<const BlockId> blocks, int64_t position, int64_t layer, int64_t head, int64_t value) {
    uint64_t word;
    std::memcpy(&word, At(blocks, position, layer, head, value), sizeof word);
    BATON_CHECK(word != 0, "read a position that was never written");
    return word;
  }
  // The value of one layer, head and K or V at a position whose chained hash is `chain`.
  uint64_t Word(uint64_t chain, int64_t layer, int64_t head, int64_t value) const {
    const int64_t index = (layer * layout_.kv_heads + head) * 2 + value;
    return index == 0 ? chain : Mix(chain, static_cast<uint64_t>(index));
  }

  void WriteLayer(const SequenceSlice& slice, int64_t layer) {
    for (int64_t p = slice.start; p < End(slice); ++p) {
      uint64_t chain;
      if (layer == 0) {
        const uint64_t before = p == 0 ? 0 : Read(slice.blocks, p - 1, 0, 0, 0);
        chain = Mix(before, static_cast<uint64_t>(slice.tokens[static_cast<size_t>(p - slice.start)]));
      } else {
        chain = Read(slice.blocks, p, 0, 0, 0);
      }
      for (int64_t head = 0; head < layout_.kv_heads; ++head) {
        for (int64_t value = 0; value < 2; ++value) {
          const uint64_t word = Word(chain, layer, head, value);
          std::memcpy(At(slice.blocks, p, layer, head, value), &word, sizeof word);
        }
      }
    }
  }

  // Hashes the KV of positions [0, end).
  uint64_t HashHistory(const SequenceSlice& slice, int64_t end) {
    uint64_t hash = 1;
    for (int64_t p = 0; p < end; ++p) {
      const uint64_t chain = Read(slice.blocks, p, 0, 0, 0);
      for (int64_t layer = 0; layer < layout_.layers; ++layer) {
        for (int64_t head = 0; head < layout_.kv_heads; ++head) {
          for (int64_t value = 0; value < 2; ++value) {
            const uint64_t word = Read(slice.blocks, p, layer, head, value);
            BATON_CHECK(word == Word(chain, layer, head, value), "a position's layers are of different writes");
            hash = Mix(hash, word);
          }
        }
      }
    }
    return hash;
  }

  void AppendRow(const SequenceSlice& slice, uint64_t history, Results& results) const {
    AppendLogits(history, results.logits);
    const std::span logits = std::span(results.logits).last(kVocab);
    if (at_logits) at_logits(slice, logits);
    if (!samples) return;
    results.sampled.emplace_back();
    if (slice.sample == nullptr) return;
    results.sampled.back() = NaiveSample(logits, *slice.sample);
    std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
  }
  static void AppendLogits(uint64_t history, std::vector<float>& logits) {
    for (int64_t v = 0; v < kVocab; ++v) {
      const uint64_t hash = Mix(history, static_cast<uint64_t>(v));
      logits.push_back(static_cast<float>(hash >> 40) / static_cast<float>(1 << 24));  // [0, 1)
    }
  }

  KvLayout layout_ = Layout();
  std::vector<std::byte> owned_;
  std::span<std::byte> slab_;
  std::optional<absl::Status> failure_;
  Results results_;  // of the last step
  std::optional<Started> started_;
  int64_t tokens_computed_ = 0;
  int64_t steps_ = 0;
  int64_t steps_ahead_ = 0;
};

}  // namespace baton
