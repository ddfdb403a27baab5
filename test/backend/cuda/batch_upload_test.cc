#include "backend/cuda/batch_upload.h"

#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "backend/cuda/pass_output.h"
#include "catch.h"

namespace baton {
namespace {

// The sizes of the launches that `attention` has planned.
std::vector<int64_t> Launches(const CudaAttention& attention) {
  std::vector<int64_t> sizes;
  std::vector<const void*> addresses;
  attention.Describe(sizes, addresses);
  return sizes;
}

// A BatchUpload with its planners.
class Uploader {
 public:
  // Both planners have same_bits = false and capability = 80.
  explicit Uploader(const ModelConfig& config)
      : attention(config, *FindCudaKvKernels(KvFormat::kBf16).value(), false, 80),
        kept_attention(config, *FindCudaKvKernels(KvFormat::kBf16).value(), false, 80),
        output(config.vocab, /*has_logits=*/true),
        upload({.attention = &attention, .kept_attention = &kept_attention, .sampling = output.sampling()}) {
    REQUIRE((attention.Prepare({}).ok() && kept_attention.Prepare({}).ok()));
  }
  const BatchLists& Send(const Batch& batch, int64_t decode_rows) {
    REQUIRE(upload.Send(batch, decode_rows, cudaStreamPerThread).ok());
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    return upload.lists();
  }

  CudaAttention attention, kept_attention;
  PassOutput output;
  BatchUpload upload;
};

TEST_CASE("BatchUpload sends every list that a pass with prompts reads") {
  if (!HasDevice()) return;
  Uploader uploader(LlamaShape(DType::kBF16));
  const std::vector<TokenId> prompt = {5, 6, 7}, last = {8};
  const std::vector<BlockId> prompt_blocks = {BlockId(3), BlockId(9)}, blocks = {BlockId(4), BlockId(2)};
  const Batch batch{{{.tokens = prompt, .start = 14, .blocks = prompt_blocks},
                     {.tokens = last, .start = 16, .blocks = blocks, .wants_logits = true, .sample = &kGreedy}}};
  const BatchLists& lists = uploader.Send(batch, /*decode_rows=*/0);
  CHECK(uploader.upload.rows() == 4);
  CHECK(uploader.upload.kept() == 1);
  CHECK(OnDevice(lists.tokens) == std::vector<int32_t>{5, 6, 7, 8});
  CHECK(OnDevice(lists.positions) == std::vector<int32_t>{14, 15, 16, 16});
  CHECK(OnDevice(lists.slots) == std::vector<int64_t>{3 * 16 + 14, 3 * 16 + 15, 9 * 16, 2 * 16});
  CHECK(OnDevice(lists.block_tables) == std::vector<int32_t>{3, 9, 4, 2});
  CHECK(OnDevice(lists.kept_rows) == std::vector<int32_t>{3});
  CHECK(lists.follows.size() == 0);
  // The prompt goes to the prefill kernel, and the single row to the decode kernel.
  CHECK(Launches(uploader.attention) == std::vector<int64_t>{1, 1});
  CHECK(Launches(uploader.kept_attention) == std::vector<int64_t>{0, 1});
  CHECK(uploader.output.chose_all());
}

TEST_CASE("BatchUpload keeps all rows of a chunk that wants all logits") {
  if (!HasDevice()) return;
  Uploader uploader(LlamaShape(DType::kBF16));
  const std::vector<TokenId> last = {8}, chunk = {5, 6, 7}, prompt = {1, 2};
  const std::vector<BlockId> blocks[] = {{BlockId(4)}, {BlockId(3), BlockId(9)}, {BlockId(1)}};
  const Batch batch{{{.tokens = last, .start = 3, .blocks = blocks[0], .wants_logits = true, .sample = &kGreedy},
                     {.tokens = prompt, .start = 0, .blocks = blocks[2]},
                     {.tokens = chunk, .start = 14, .blocks = blocks[1], .wants_logits = true, .all_logits = true}}};
  const BatchLists& lists = uploader.Send(batch, /*decode_rows=*/0);
  CHECK(uploader.upload.rows() == 6);
  CHECK(uploader.upload.kept() == 4);
  CHECK(OnDevice(lists.kept_rows) == std::vector<int32_t>{0, 3, 4, 5});
  // The chunk goes to the prefill kernel, and the single row to the decode kernel.
  CHECK(Launches(uploader.kept_attention) == std::vector<int64_t>{1, 1});
  CHECK_FALSE(uploader.output.chose_all());
}

TEST_CASE("BatchUpload pads a decode step and sends which rows follow the previous one") {
  if (!HasDevice()) return;
  Uploader uploader(LlamaShape(DType::kBF16));
  const std::vector<TokenId> tokens[] = {{5}, {6}, {7}};
  const std::vector<BlockId> blocks[] = {{BlockId(1)}, {BlockId(2)}, {BlockId(3)}};
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    batch.slices.push_back(
        {.tokens = tokens[i], .start = i, .blocks = blocks[i], .wants_logits = true, .sample = &kGreedy});
  }
  batch.slices[0].follows = 2;
  batch.slices[2].follows = 0;
  const BatchLists& lists = uploader.Send(batch, /*decode_rows=*/4);
  CHECK(uploader.upload.rows() == 4);
  CHECK(uploader.upload.kept() == 3);
  CHECK(OnDevice(lists.tokens) == std::vector<int32_t>{5, 6, 7, 0});
  CHECK(OnDevice(lists.positions) == std::vector<int32_t>{0, 1, 2, 0});
  CHECK(OnDevice(lists.slots) == std::vector<int64_t>{16, 33, 50, -1});
  CHECK(OnDevice(lists.block_tables) == std::vector<int32_t>{1, 2, 3});
  CHECK(OnDevice(lists.follows) == std::vector<int32_t>{2, kFollowsNone, 0});

  // The lists of the next batch replace these lists.
  for (SequenceSlice& slice : batch.slices) slice.follows = kFollowsNone;
  CHECK(uploader.Send(batch, /*decode_rows=*/4).follows.size() == 0);
}

TEST_CASE("BatchUpload puts lists of decode steps with equal rows at equal addresses") {
  if (!HasDevice()) return;
  Uploader uploader(LlamaShape(DType::kBF16));
  const std::vector<TokenId> token = {5};
  const std::vector<BlockId> blocks(3, BlockId(1));
  std::vector<std::vector<const void*>> places;
  for (const int64_t streams : {3, 4}) {
    Batch batch;
    for (int64_t i = 0; i < streams; ++i) {
      batch.slices.push_back(
          {.tokens = token, .start = 32, .blocks = blocks, .wants_logits = true, .sample = &kGreedy});
    }
    const BatchLists& lists = uploader.Send(batch, /*decode_rows=*/4);
    places.push_back({lists.tokens.data(), lists.positions.data(), lists.slots.data(), lists.block_tables.data()});
  }
  CHECK(places[0] == places[1]);
}

}  // namespace
}  // namespace baton
