// Tests of design idea 5: same tokens in, same bits out. Keys, values and logits do not depend on
// chunks, on neighbours in the batch, on shared blocks or on threads.
#include <cmath>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "catch.h"

namespace baton {
namespace {

// Long enough for two spans of attention and a partial block.
constexpr int64_t kTokens = 600;

struct Bits {
  std::vector<std::byte> kv;
  std::vector<float> logits;
};

void CheckEqual(const Bits& expected, const Bits& got) {
  REQUIRE(!expected.logits.empty());
  for (const float logit : expected.logits) REQUIRE(std::isfinite(logit));
  CHECK(expected.kv == got.kv);
  CHECK(SameBits(expected.logits, got.logits));
}

// Prefills in one step.
Bits OneShot(TestBackend& backend, const std::vector<TokenId>& tokens) {
  const TestSequence sequence = backend.Place(tokens);
  std::vector<float> logits = backend.Run({{sequence.Slice(0, std::ssize(tokens), true)}});
  return {backend.Kv(sequence), std::move(logits)};
}

Bits InChunks(TestBackend& backend, const std::vector<TokenId>& tokens, int64_t chunk) {
  const TestSequence sequence = backend.Place(tokens);
  std::vector<float> logits;
  for (int64_t start = 0; start < std::ssize(tokens); start += chunk) {
    const int64_t end = std::min<int64_t>(start + chunk, std::ssize(tokens));
    logits = backend.Run({{sequence.Slice(start, end, end == std::ssize(tokens))}});
  }
  return {backend.Kv(sequence), std::move(logits)};
}

// Runs a test for all kernels and families.
template <class Test>
void ForAllModels(Test test) {
  for (const std::string& kernels : KernelNames()) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const ModelConfig& shape : {LlamaShape(dtype), Qwen2Shape(dtype), Qwen3Shape(dtype)}) {
        INFO("kernels " << kernels << ", bytes per weight " << BytesPerElement(dtype) << ", head_dim "
                        << shape.head_dim);
        test(RandomWeights(shape, 7), kernels);
      }
    }
  }
}

}  // namespace

TEST_CASE("CpuBackend gives the bits of one prefill for chunks of any size", "[one_thread]") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend backend(weights, {.kernels = kernels});
    const std::vector<TokenId> tokens = backend.RandomTokens(kTokens);
    const Bits expected = OneShot(backend, tokens);
    for (const int64_t chunk : {1, 7, 16, 128}) {
      INFO("chunk " << chunk);
      CheckEqual(expected, InChunks(backend, tokens, chunk));
    }
  });
}

TEST_CASE("A decode step gives the bits of a prefill that ends with its token", "[one_thread]") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend backend(weights, {.kernels = kernels});
    const std::vector<TokenId> tokens = backend.RandomTokens(80);
    const TestSequence sequence = backend.Place(tokens);
    backend.Run({{sequence.Slice(0, 60, false)}});
    for (int64_t at = 60; at < 80; ++at) {
      INFO("position " << at);
      const std::vector<float> logits = backend.Run({{sequence.Slice(at, at + 1, true)}});
      const Bits prefill = OneShot(backend, {tokens.begin(), tokens.begin() + at + 1});
      CHECK(SameBits(prefill.logits, logits));
    }
  });
}

TEST_CASE("CpuBackend gives all tokens of a prompt the logits of decode steps", "[one_thread]") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend backend(weights, {.kernels = kernels});
    const std::vector<TokenId> tokens = backend.RandomTokens(80);
    const TestSequence stepwise = backend.Place(tokens);
    std::vector<float> expected;
    for (int64_t at = 0; at < 80; ++at) {
      const std::vector<float> logits = backend.Run({{stepwise.Slice(at, at + 1, true)}});
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    const auto all = [](SequenceSlice slice) {
      slice.wants_logits = slice.all_logits = true;
      return slice;
    };
    for (const int64_t chunk : {1, 7, 16, 80}) {
      INFO("chunk " << chunk);
      const TestSequence sequence = backend.Place(tokens), other = backend.Place(backend.RandomTokens(300));
      Bits got;
      for (int64_t start = 0; start < 80; start += chunk) {
        const int64_t end = std::min<int64_t>(start + chunk, 80);
        // Neighbours before and behind the chunk, with and without logits.
        const std::vector<float> logits =
            backend.Run({{other.Slice(start, start + 1, false), all(sequence.Slice(start, end, true)),
                          other.Slice(start + 1, start + 3, true)}});
        REQUIRE(std::ssize(logits) == (end - start + 1) * weights.config.vocab);
        got.logits.insert(got.logits.end(), logits.begin(), logits.end() - weights.config.vocab);
      }
      CheckEqual({backend.Kv(stepwise), expected}, {backend.Kv(sequence), got.logits});
      backend.Free(sequence);
      backend.Free(other);
    }
  });
}

TEST_CASE("CpuBackend gives the same bits whatever requests are in the batch", "[one_thread]") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend backend(weights, {.kernels = kernels});
    const std::vector<TokenId> tokens = backend.RandomTokens(kTokens);
    const Bits expected = OneShot(backend, tokens);

    // The batch has all kinds of neighbours: a decode row with history, an increment, and prefills
    // with and without logits.
    const TestSequence decoding = backend.Place(backend.RandomTokens(530));
    const TestSequence streaming = backend.Place(backend.RandomTokens(90));
    const TestSequence fresh = backend.Place(backend.RandomTokens(33));
    backend.Run({{decoding.Slice(0, 529, false), streaming.Slice(0, 50, false)}});
    const TestSequence sequence = backend.Place(tokens);
    const std::vector<float> logits = backend.Run({{decoding.Slice(529, 530, true), fresh.Slice(0, 33, false),
                                                    sequence.Slice(0, kTokens, true), streaming.Slice(50, 90, true)}});
    const int64_t vocab = weights.config.vocab;
    REQUIRE(std::ssize(logits) == 3 * vocab);
    CheckEqual(expected, {backend.Kv(sequence), {logits.begin() + vocab, logits.begin() + 2 * vocab}});

    // The neighbours' bits are those of a run alone, too.
    const Bits decoded = OneShot(backend, decoding.tokens);
    CheckEqual(decoded, {backend.Kv(decoding), {logits.begin(), logits.begin() + vocab}});
    const Bits streamed = OneShot(backend, streaming.tokens);
    CheckEqual(streamed, {backend.Kv(streaming), {logits.begin() + 2 * vocab, logits.end()}});
  });
}

TEST_CASE("CpuBackend lets a slice attend to blocks that its batch writes", "[one_thread]") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend backend(weights, {.kernels = kernels});
    const int64_t shared = 528;  // whole blocks
    const std::vector<TokenId> prefix = backend.RandomTokens(shared);
    std::vector<TokenId> tokens[2];
    for (std::vector<TokenId>& t : tokens) {
      t = prefix;
      const std::vector<TokenId> own = backend.RandomTokens(45);
      t.insert(t.end(), own.begin(), own.end());
    }
    const Bits expected[2] = {OneShot(backend, tokens[0]), OneShot(backend, tokens[1])};

    const TestSequence parent = backend.Place(prefix);
    const TestSequence children[2] = {backend.Place(tokens[0], parent.blocks), backend.Place(tokens[1], parent.blocks)};
    const auto slice = [&](int child) { return children[child].Slice(shared, std::ssize(tokens[child]), true); };
    const std::vector<float> logits = backend.Run({{slice(0), parent.Slice(0, shared, false), slice(1)}});
    const int64_t vocab = weights.config.vocab;
    CheckEqual(expected[0], {backend.Kv(children[0]), {logits.begin(), logits.begin() + vocab}});
    CheckEqual(expected[1], {backend.Kv(children[1]), {logits.begin() + vocab, logits.end()}});
  });
}

TEST_CASE("CpuBackend gives the same bits with any number of threads") {
  ForAllModels([](const Weights& weights, const std::string& kernels) {
    TestBackend one(weights, {.threads = 1, .kernels = kernels});
    const std::vector<TokenId> tokens = one.RandomTokens(kTokens);
    const Bits expected = OneShot(one, tokens);
    for (const int threads : {2, 3}) {
      INFO("threads " << threads);
      TestBackend more(weights, {.threads = threads, .kernels = kernels}, 2);
      CheckEqual(expected, OneShot(more, tokens));
      CheckEqual(expected, InChunks(more, tokens, 200));
      // Runs the last token alone, whose history is split over threads.
      const TestSequence sequence = more.Place(tokens);
      more.Run({{sequence.Slice(0, kTokens - 1, false)}});
      const std::vector<float> logits = more.Run({{sequence.Slice(kTokens - 1, kTokens, true)}});
      CheckEqual(expected, {more.Kv(sequence), logits});
    }
  });
}

TEST_CASE("CpuBackend stores the same keys and values without an LM head") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  TestBackend decode(weights, {});
  TestBackend prefill(weights, {.lm_head = false});
  const std::vector<TokenId> tokens = decode.RandomTokens(100);
  const TestSequence sequence = prefill.Place(tokens);
  CHECK(prefill.Run({{sequence.Slice(0, 100, false)}}).empty());
  CHECK(prefill.Kv(sequence) == OneShot(decode, tokens).kv);
}

}  // namespace baton
