// Tests that compare the CUDA backend with float64 and with the CPU backend. Without a device, the
// tests that need one print that they are skipped.
#include "backend/cuda/cuda_backend.h"

#include <cmath>
#include <functional>
#include <string_view>

#include "backend/cuda/cuda_test_device.h"
#include "model/reference_forward.h"
#include "model/sampler.h"

namespace baton {
namespace {

template <typename T>
double RelativeError(std::span<const T> got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

TEST_CASE("CudaBackend agrees with float64 and the CPU backend in prefill and decode") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : Shapes()) {
    for (const bool same_bits : {false, true}) {
      INFO("head_dim " << shape.head_dim << ", same bits " << same_bits);
      const RandomWeights weights(shape, 5);
      Device device(weights, same_bits);
      TestBackend cpu(weights, {});
      const ReferenceForward reference(weights);
      std::vector<TestSequence> sequences, on_cpu;
      Batch decode, cpu_decode;
      for (const int64_t length : {1, 2, 17, 70, 300}) {
        std::vector<TokenId> tokens = RandomTokens(length, shape.vocab, static_cast<uint32_t>(length));
        sequences.push_back(device.Place(tokens));
        on_cpu.push_back(cpu.Place(tokens));
        if (length == 1) continue;
        device.Prefill(sequences.back(), length - 1, length);
        cpu.Run({{on_cpu.back().Slice(0, length - 1, false)}});
      }
      for (const TestSequence& s : sequences) {
        decode.slices.push_back(s.Slice(std::ssize(s.tokens) - 1, std::ssize(s.tokens), true));
      }
      for (const TestSequence& s : on_cpu) {
        cpu_decode.slices.push_back(s.Slice(std::ssize(s.tokens) - 1, std::ssize(s.tokens), true));
      }
      const std::vector<float> logits = device.Run(decode), cpu_logits = cpu.Run(cpu_decode);
      for (size_t i = 0; i < sequences.size(); ++i) {
        const auto row =
            std::span(logits).subspan(i * static_cast<size_t>(shape.vocab), static_cast<size_t>(shape.vocab));
        const auto cpu_row =
            std::span(cpu_logits).subspan(i * static_cast<size_t>(shape.vocab), static_cast<size_t>(shape.vocab));
        INFO("length " << sequences[i].tokens.size());
        CHECK(RelativeError(row, reference.Logits(sequences[i].tokens)) < 2e-2);
        CHECK(RelativeError(row, {cpu_row.begin(), cpu_row.end()}) < 2e-2);
      }
    }
  }
}

TEST_CASE("CudaBackend decodes 1 to 8 rows like the CPU, direct, captured and replayed") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : Shapes()) {
    const RandomWeights weights(shape, 13);
    Device device(weights, false);
    TestBackend cpu(weights, {});
    std::vector<TestSequence> sequences, on_cpu;
    for (const int64_t length : {40, 2, 300, 17, 31, 5, 130, 64}) {
      const std::vector<TokenId> tokens = RandomTokens(length, shape.vocab, static_cast<uint32_t>(length));
      sequences.push_back(device.Place(tokens));
      on_cpu.push_back(cpu.Place(tokens));
      device.Prefill(sequences.back(), length - 1, length);
      cpu.Run({{on_cpu.back().Slice(0, length - 1, false)}});
    }
    Batch batch, cpu_batch;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const int64_t length = std::ssize(sequences[i].tokens);
      batch.slices.push_back(sequences[i].Slice(length - 1, length, true));
      cpu_batch.slices.push_back(on_cpu[i].Slice(length - 1, length, true));
      const std::vector<float> expected = cpu.Run(cpu_batch);
      for (int round = 0; round < 3; ++round) {
        INFO("head_dim " << shape.head_dim << ", " << batch.slices.size() << " rows, round " << round);
        const std::vector<float> logits = device.Run(batch);
        CHECK(RelativeError(std::span(logits), {expected.begin(), expected.end()}) < 2e-2);
      }
    }
  }
}

TEST_CASE("CudaBackend computes a prompt and its logits in one pass like float64") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : Shapes()) {
    const RandomWeights weights(shape, 6);
    Device device(weights, false);
    const TestSequence a = device.Place(RandomTokens(90, shape.vocab, 1));
    const TestSequence b = device.Place(RandomTokens(33, shape.vocab, 2));
    const TestSequence c = device.Place(RandomTokens(1, shape.vocab, 3));
    const std::vector<float> logits = device.Run({{b.Slice(0, 33, false), a.Slice(0, 90, true), c.Slice(0, 1, true)}});
    const ReferenceForward reference(weights);
    const auto vocab = static_cast<size_t>(shape.vocab);
    REQUIRE(logits.size() == 2 * vocab);
    CHECK(RelativeError(std::span(logits).first(vocab), reference.Logits(a.tokens)) < 2e-2);
    CHECK(RelativeError(std::span(logits).subspan(vocab), reference.Logits(c.tokens)) < 2e-2);
  }
}

TEST_CASE("CudaBackend gives all tokens of a chunk their logits beside rows that it samples") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : Shapes()) {
    const RandomWeights weights(shape, 8);
    const ReferenceForward reference(weights);
    const auto vocab = static_cast<size_t>(shape.vocab);
    for (const bool same_bits : {false, true}) {
      Device device(weights, same_bits);
      const TestSequence decoding = device.Place(RandomTokens(40, shape.vocab, 2));
      device.Prefill(decoding, 39, 40);
      std::vector<float> first;  // of the first size of chunks
      for (const int64_t size : {40, 1, 17}) {
        INFO("head_dim " << shape.head_dim << ", same bits " << same_bits << ", chunks of " << size);
        const TestSequence scored = device.Place(RandomTokens(40, shape.vocab, 1));
        std::vector<float> got;
        for (int64_t start = 0; start < 40; start += size) {
          SequenceSlice chunk = scored.Slice(start, std::min<int64_t>(start + size, 40), true);
          chunk.all_logits = true;
          SequenceSlice row = decoding.Slice(39, 40, true);
          row.sample = &kGreedy;
          const std::vector<float> logits = device.Run({{row, chunk}});
          REQUIRE(logits.size() == (chunk.tokens.size() + 1) * vocab);
          got.insert(got.end(), logits.begin() + static_cast<ptrdiff_t>(vocab), logits.end());
        }
        for (const size_t at : {0u, 1u, 15u, 16u, 39u}) {
          const std::span<const float> row = std::span(got).subspan(at * vocab, vocab);
          CHECK(RelativeError(row, reference.Logits(std::span(scored.tokens).first(at + 1))) < 3e-2);
        }
        if (first.empty()) first = got;
        if (same_bits) CHECK(SameBits(got, first));
      }
    }
  }
}

TEST_CASE("CudaBackend gives the same bits for any chunks and neighbours with same_bits") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : Shapes()) {
    const RandomWeights weights(shape, 7);
    Device device(weights, true);
    const std::vector<TokenId> tokens = RandomTokens(333, shape.vocab, 4);
    const int64_t length = std::ssize(tokens);
    const TestSequence whole = device.Place(tokens);
    device.Prefill(whole, length - 1, length);
    const std::vector<float> logits = device.Run({{whole.Slice(length - 1, length, true)}});
    const std::vector<uint16_t> kv = device.Kv(whole);
    for (const int64_t chunk : {1, 7, 16, 64, 130}) {
      INFO("head_dim " << shape.head_dim << ", chunk " << chunk);
      const TestSequence chunked = device.Place(tokens);
      const TestSequence neighbour = device.Place(RandomTokens(200, shape.vocab, static_cast<uint32_t>(chunk)));
      for (int64_t begin = 0; begin < length - 1; begin += chunk) {
        const int64_t end = std::min(begin + chunk, length - 1);
        device.Run({{neighbour.Slice(0, 1 + begin % 200, false), chunked.Slice(begin, end, false)}});
      }
      const std::vector<float> again =
          device.Run({{neighbour.Slice(0, 5, false), chunked.Slice(length - 1, length, true)}});
      CHECK(SameBits(again, logits));
      CHECK(device.Kv(chunked) == kv);
    }
  }
}

// Projections of other sizes run on other kernels, whose work cuBLASLt may divide differently for
// each number of rows. Machines with the same numerics_id must print the same digest.
TEST_CASE("CudaBackend gives layers of real size the same bits in any step with same_bits", "[large]") {
  if (!HasDevice()) return;
  // The shape of Llama-3.1-8B, with a smaller vocabulary.
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.layers = 1;
  shape.hidden = 4096;
  shape.ffn = 14336;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.vocab = 8192;
  RandomWeights weights(shape, 3);
  weights.layers.push_back(weights.layers[0]);
  weights.config.layers = 2;
  Device device(weights, true, /*seed=*/1, /*ranks=*/1, {.tokens = 2048, .logits = 64});
  const TestSequence sequence = device.Place(RandomTokens(2500, shape.vocab, 5));
  const int64_t length = std::ssize(sequence.tokens);
  device.Prefill(sequence, length - 1, length);
  const std::vector<float> logits = device.Run({{sequence.Slice(length - 1, length, true)}});
  const std::vector<uint16_t> kv = device.Kv(sequence);
  for (const int64_t chunk : {2048, 1100, 1024, 513, 512, 257, 100, 9, 8, 1}) {
    INFO("chunk " << chunk);
    // Runs with other chunks have already written the positions before `begin`.
    const int64_t begin = std::max<int64_t>(0, length - 1 - 20 * chunk);
    for (int64_t at = begin; at < length - 1; at += chunk) {
      device.Run({{sequence.Slice(at, std::min(at + chunk, length - 1), false)}});
    }
    // A comparison inside CHECK would print too much.
    const bool same = device.Kv(sequence) == kv;
    CHECK(same);
  }
  std::vector<TestSequence> neighbours;
  for (const int64_t count : {1, 6, 17, 40}) {
    INFO(count << " neighbours");
    while (std::ssize(neighbours) < count) {
      const auto seed = static_cast<uint32_t>(neighbours.size());
      neighbours.push_back(device.Place(RandomTokens(3 + seed % 20, shape.vocab, seed)));
    }
    Batch batch{{sequence.Slice(length - 1, length, true)}};
    for (const TestSequence& n : neighbours) batch.slices.push_back(n.Slice(0, 1, true));
    std::vector<float> again = device.Run(batch);
    again.resize(logits.size());
    CHECK(SameBits(again, logits));
  }
  const std::string_view bytes(reinterpret_cast<const char*>(kv.data()), kv.size() * sizeof kv[0]);
  std::cout << "same bits: " << device->numerics_id() << " gives KV " << std::hash<std::string_view>()(bytes) << "\n";
}

TEST_CASE("CudaBackend gives a decode step the same bits direct, captured and replayed") {
  if (!HasDevice()) return;
  const ModelConfig shape = LlamaShape(DType::kBF16);
  const RandomWeights weights(shape, 11);
  for (const bool same_bits : {false, true}) {
    Device device(weights, same_bits);
    std::vector<TestSequence> sequences;
    Batch batch;
    for (const int64_t length : {700, 3, 40, 260, 90}) {
      sequences.push_back(device.Place(RandomTokens(length, shape.vocab, static_cast<uint32_t>(length))));
      device.Prefill(sequences.back(), length - 1, length);
    }
    for (const TestSequence& s : sequences) {
      batch.slices.push_back(s.Slice(std::ssize(s.tokens) - 1, std::ssize(s.tokens), true));
    }
    const std::vector<float> logits = device.Run(batch);
    for (int round = 0; round < 3; ++round) CHECK(SameBits(device.Run(batch), logits));
    // The padded number of rows stays. Sequences and histories of the rows change.
    for (int round = 0; round < 3; ++round) {
      std::swap(batch.slices[0], batch.slices[4]);
      batch.slices.push_back(batch.slices[0]);
      const std::vector<float> swapped = device.Run(batch);
      batch.slices.pop_back();
      const auto vocab = static_cast<size_t>(shape.vocab);
      const size_t first = round % 2 == 0 ? 4 : 0;
      CHECK(std::equal(swapped.begin(), swapped.begin() + shape.vocab,
                       logits.begin() + static_cast<int64_t>(first * vocab)));
      CHECK(std::equal(swapped.begin() + shape.vocab, swapped.begin() + 4 * shape.vocab, logits.begin() + shape.vocab));
    }
  }
}

TEST_CASE("CudaBackend replays a decode step with the same bits after a larger one") {
  if (!HasDevice()) return;
  const ModelConfig shape = LlamaShape(DType::kBF16);
  const RandomWeights weights(shape, 19);
  // The first steps allocate the memory for rows and logits. Only attention's memory grows with the
  // larger step.
  Device device(weights, /*same_bits=*/false, 1, /*ranks=*/1, {.tokens = 1500, .logits = 8});
  std::vector<TestSequence> sequences;
  Batch small, large;
  // Long enough that attention splits their histories.
  for (const int64_t length : {500, 500, 1500, 1500, 1500}) {
    sequences.push_back(device.Place(RandomTokens(length, shape.vocab, static_cast<uint32_t>(sequences.size()))));
    device.Prefill(sequences.back(), length - 1, length);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t length = std::ssize(sequences[i].tokens);
    (i < 2 ? small : large).slices.push_back(sequences[i].Slice(length - 1, length, true));
  }
  const std::vector<float> logits = device.Run(small);
  for (int round = 0; round < 2; ++round) CHECK(SameBits(device.Run(small), logits));
  device.Run(large);
  for (int round = 0; round < 3; ++round) CHECK(SameBits(device.Run(small), logits));
}

struct Stream {
  TestSequence on_device, twin;  // on the device and on the CPU
  int64_t next = 0;              // the next position to decode
  std::optional<Sampler> sampler{};
};

TEST_CASE("CudaBackend decodes changing streams like the CPU backend", "[many]") {
  if (!HasDevice()) return;
  const ModelConfig shape = LlamaShape(DType::kBF16);
  const auto vocab = static_cast<size_t>(shape.vocab);
  const RandomWeights weights(shape, 17);
  const SampleSpec greedy{.draw = {.temperature = 0}};
  for (const bool same_bits : {false, true}) {
    for (const uint32_t seed : {1u, 2u, 3u}) {
      INFO("same bits " << same_bits << ", seed " << seed);
      std::mt19937 random(seed);
      Device device(weights, same_bits, seed);
      TestBackend cpu(weights, {});
      std::vector<Stream> streams;
      for (int64_t step = 0, started = 0; step < 80; ++step) {
        INFO("step " << step);
        if (streams.empty() || (started < 20 && random() % 3 == 0)) {
          const bool is_long = random() % 4 == 0;
          const int64_t prompt = 1 + static_cast<int64_t>(random() % (is_long ? 600 : 40));
          const int64_t decoded = 1 + static_cast<int64_t>(random() % 40);
          const std::vector<TokenId> tokens = RandomTokens(prompt + decoded, shape.vocab, random());
          streams.push_back({device.Place(tokens), cpu.Place(tokens), prompt});
          device.Prefill(streams.back().on_device, prompt, 100);
          cpu.Run({{streams.back().twin.Slice(0, prompt, false)}});
          ++started;
        }
        if (random() % 8 == 0) std::swap(streams.front(), streams[random() % streams.size()]);
        Batch batch, on_cpu;
        for (const Stream& s : streams) {
          batch.slices.push_back(NextOf(s.on_device, s.next));
          on_cpu.slices.push_back(NextOf(s.twin, s.next));
        }
        const std::vector<float> logits = device.Run(batch), expected = cpu.Run(on_cpu);
        // Both backends round to bf16.
        CHECK(RelativeError(std::span(logits), {expected.begin(), expected.end()}) < 5e-2);

        for (SequenceSlice& slice : batch.slices) slice.sample = random() % 2 == 0 ? &greedy : nullptr;
        const auto again = device->Forward(batch, [](int64_t) { return true; });
        REQUIRE(again.ok());
        for (size_t i = 0; i < streams.size(); ++i) {
          const auto row = std::span(logits).subspan(i * vocab, vocab);
          if (batch.slices[i].sample == nullptr) {
            CHECK(std::ranges::equal(std::span(again->data + i * vocab, vocab), row));
          } else {
            CHECK(again->sampled[i].id == std::ranges::max_element(row) - row.begin());
          }
        }
        for (Stream& s : streams) ++s.next;
        std::erase_if(streams,
                      [&](const Stream& s) { return s.next == std::ssize(s.on_device.tokens) || random() % 40 == 0; });
      }
      CHECK(device.UnusedBlocksAreUntouched());
    }
  }
}

TEST_CASE("CudaBackend chooses the tokens of Sampler and returns the requested logits") {
  if (!HasDevice()) return;
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.vocab = 1003;  // rows of logits that are not aligned
  const RandomWeights weights(shape, 12);
  Device device(weights, /*same_bits=*/true);
  const std::vector<TokenId> prompt = RandomTokens(30, shape.vocab, 1);
  const TestSequence sequence = device.Place(prompt);
  device.Prefill(sequence, 29, 29);
  const Batch alone = {{sequence.Slice(29, 30, true)}};
  const std::vector<float> logits = device.Run(alone);

  std::vector<Sampler> samplers;
  for (const SamplingParams& params :
       {SamplingParams{.draw = {.temperature = 0}}, SamplingParams{.draw = {.temperature = 0.8f}, .seed = 3},
        SamplingParams{.draw = {.temperature = 1.2f, .top_k = 40}, .seed = 4},
        SamplingParams{.draw = {.top_p = 0.8f}, .seed = 5}, SamplingParams{.draw = {.min_p = 0.05f}, .seed = 6},
        SamplingParams{.draw = {.top_p = 0.95f, .repetition_penalty = 1.3f, .presence_penalty = 0.5f}, .seed = 7},
        SamplingParams{.draw = {.top_k = 30, .repetition_penalty = 0.9f, .frequency_penalty = 0.3f}, .seed = 8}}) {
    samplers.emplace_back(params, prompt, 1);
  }
  // The model's choices without constraints are likely among the ids that are excluded here.
  std::vector<TokenId> half;
  for (TokenId id = 0; id < shape.vocab; id += 2) half.push_back(id);
  for (const SamplingParams& params :
       {SamplingParams{.draw = {.temperature = 0}, .logit_bias = {{5, 4.5f}, {1002, 6}}, .allowed_token_ids = half},
        SamplingParams{
            .draw = {.temperature = 0, .presence_penalty = 1}, .seed = 9, .logit_bias = {{7, -100}, {9, 90}}},
        SamplingParams{.draw = {.top_p = 0.9f}, .seed = 10, .stop_ids = half, .min_tokens = 10},
        SamplingParams{.draw = {.repetition_penalty = 1.2f}, .seed = 11, .allowed_token_ids = {4, 8, 15, 16, 23}}}) {
    samplers.emplace_back(params, prompt, 1, TokenRules{.ends = {3}, .bad_words = {{4}, {8, 15}, {23, 16}, {16, 8}}});
  }
  SamplerScratch scratch;
  for (int round = 0; round < 20; ++round) {
    std::vector<SampleSpec> specs;
    for (const Sampler& sampler : samplers) specs.push_back(sampler.Spec());
    Batch batch;
    for (const SampleSpec& spec : specs) {
      batch.slices.push_back(alone.slices[0]);
      batch.slices.back().sample = &spec;
    }
    batch.slices.insert(batch.slices.begin() + 2, alone.slices[0]);  // needs logits
    const auto view = device->Forward(batch, [](int64_t) { return true; });
    REQUIRE(view.ok());
    REQUIRE(view->sampled.size() == samplers.size() + 1);
    CHECK(view->sampled[2].id == kNotSampled);
    const std::span given(view->data + 2 * shape.vocab, static_cast<size_t>(shape.vocab));
    CHECK(SameBits({given.begin(), given.end()}, logits));
    for (size_t i = 0; i < samplers.size(); ++i) {
      INFO("round " << round << ", sampler " << i);
      const SampledToken& chosen = view->sampled[i < 2 ? i : i + 1];
      TokenLogprobs logprobs;
      CHECK(samplers[i].Sample(logits, scratch, &logprobs).value() == chosen.id);
      CHECK(std::abs(logprobs.logprob - chosen.logprob) < 1e-4);
    }
  }
}

TEST_CASE("CudaBackend reports a layer when its K and V are in the slab") {
  if (!HasDevice()) return;
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.layers = 6;
  const RandomWeights weights(shape, 8);
  Device device(weights, false);
  const TestSequence sequence = device.Place(RandomTokens(64, shape.vocab, 5));
  const KvLayout layout = device->kv_layout();
  std::vector<int64_t> reported;
  const auto logits = device->Forward({{sequence.Slice(0, 64, false)}}, [&](int64_t layer) {
    reported.push_back(layer);
    std::vector<uint16_t> bits(static_cast<size_t>(layout.LayerBytes() / 2));
    const std::byte* block = device->kv_slab().data() + sequence.blocks.back().value() * layout.BlockBytes();
    cudaStream_t other;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaMemcpyAsync(bits.data(), block + layer * layout.LayerBytes(), 2 * bits.size(), cudaMemcpyDeviceToHost, other);
    cudaStreamSynchronize(other);
    cudaStreamDestroy(other);
    CHECK(std::count(bits.begin(), bits.end(), 0xffff) == 0);
    return true;
  });
  REQUIRE(logits.ok());
  CHECK(reported == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("CudaBackend returns ABORTED for a stopped pass and computes the next one right") {
  if (!HasDevice()) return;
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.layers = 6;
  const RandomWeights weights(shape, 9);
  Device device(weights, false);
  const TestSequence sequence = device.Place(RandomTokens(40, shape.vocab, 6));
  const std::vector<float> logits = device.Run({{sequence.Slice(0, 40, true)}});
  for (const int64_t last : {0, 1, 4, 5}) {
    const auto aborted = device->Forward({{sequence.Slice(0, 40, true)}}, [&](int64_t layer) { return layer < last; });
    CHECK(absl::IsAborted(aborted.status()));
  }
  CHECK(SameBits(device.Run({{sequence.Slice(0, 40, true)}}), logits));
}

TEST_CASE("CudaBackend allocates nothing in steps within its limits") {
  if (!HasDevice()) return;
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.hidden = 512;
  shape.ffn = 2048;
  const StepLimits step{.tokens = 4000, .logits = 8};
  constexpr int64_t kMb = 1 << 20;
  // The slack is for kernels, which CUDA loads at their first use.
  const int64_t activations = ActivationBytes(shape, step), slack = 16 * kMb;
  REQUIRE(activations > 3 * slack);
  for (const int ranks : {1, 2}) {
    INFO(ranks << " ranks");
    const RandomWeights weights(shape, 1);
    const int64_t before = FreeCudaBytes(0).value();
    Device device(weights, false, /*seed=*/1, ranks, step);
    const int64_t made = FreeCudaBytes(0).value();
    CHECK(before - made >= activations);
    for (const int64_t length : {100, 4000}) {
      device.Prefill(device.Place(RandomTokens(length, shape.vocab, 1)), length, length);
    }
    CHECK(made - FreeCudaBytes(0).value() < slack);
  }
}

TEST_CASE("CudaSlab copies many blocks to host memory and back in one call") {
  if (!HasDevice()) return;
  constexpr int64_t kBlock = 4096, kBlocks = 64;
  const auto memory = CudaSlab::Allocate(0, 2 * kBlock * kBlocks);
  REQUIRE(memory.ok());
  const Slab slab = (*memory)->slab();
  std::vector<std::byte> bytes(kBlock * kBlocks), back(bytes.size());
  std::mt19937 random(1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  REQUIRE(slab.Copy(slab.data(), bytes.data(), bytes.size()).ok());
  const auto host = slab.AllocateHost(bytes.size());
  REQUIRE(host.ok());
  std::vector<MemoryCopy> out, in;
  for (int64_t i = 0; i < kBlocks; ++i) {
    out.push_back({host->get() + i * kBlock, slab.data() + (kBlocks - 1 - i) * kBlock, kBlock});
    in.push_back({slab.data() + (2 * kBlocks - 1 - i) * kBlock, host->get() + i * kBlock, kBlock});
  }
  REQUIRE(slab.Copy(out).ok());
  REQUIRE(slab.Copy(in).ok());
  REQUIRE(slab.Copy(back.data(), slab.data() + kBlocks * kBlock, back.size()).ok());
  CHECK(back == bytes);
}

TEST_CASE("EmptiestDevices returns the requested number of devices or UNAVAILABLE") {
  CHECK(absl::IsUnavailable(EmptiestDevices(1000).status()));
  if (!HasDevice()) return;
  CHECK(EmptiestDevices(1).value().size() == 1);
}

TEST_CASE("CudaBackend refuses unsupported shapes with expected and actual values") {
  const auto refused = [](ModelConfig shape, const std::string& message) {
    const RandomWeights weights(shape, 1);
    const absl::Status status = MakeCudaBackend(weights, {}).status();
    CHECK(absl::IsInvalidArgument(status));
    INFO(status.ToString());
    CHECK(std::string(status.message()).find(message) != std::string::npos);
  };
  refused(LlamaShape(DType::kF32), "expected bf16 weights");
  refused(Qwen2Shape(DType::kBF16), "head_dim: expected 64 or 128, got 20");
  ModelConfig odd = LlamaShape(DType::kBF16);
  odd.ffn = 100;
  refused(odd, "FFN size: expected a multiple of 8, got 100");
  ModelConfig many = LlamaShape(DType::kBF16);
  many.heads = 34;
  refused(many, "heads for each KV head, got 34 and 2");
  refused(LlamaShape(DType::kBF16), "whole blocks of 16384 bytes, got 0 bytes of host memory");
}

TEST_CASE("CudaBackend returns UNAVAILABLE when the device does not exist") {
  CHECK(absl::IsUnavailable(CudaSlab::Allocate(1000, 1).status()));
  CHECK(absl::IsUnavailable(DescribeCudaDevice(1000).status()));
}

}  // namespace
}  // namespace baton
