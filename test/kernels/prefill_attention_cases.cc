// Prefill attention on ragged batches, whole and in chunks, and on prompts of Llama-3.1-8B.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "kernels/prefill_attention.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

// Layers of a block. Attention reads the last layer, and the other layers are NaN.
constexpr int kLayers = 2;

struct Heads {
  int32_t heads, kv_heads, head_dim;
};

// Queries, keys and values of the positions [0, length) of one sequence.
struct Sequence {
  std::vector<Bf16> q;     // [length][heads][head_dim]
  std::vector<Bf16> k, v;  // [length][kv_heads][head_dim]
};

struct Chunk {
  int sequence, start, rows;
  int context() const { return start + rows; }
};

// Returns queries in [-8, 8). Scores then differ so much that maxima move and most keys hardly
// count.
std::vector<Bf16> RandomQueries(int64_t count, std::mt19937_64& random) {
  std::vector<Bf16> q = RandomBf16(count, random);
  for (Bf16& x : q) x = __float2bfloat16(8 * __bfloat162float(x));
  return q;
}

std::vector<Sequence> RandomSequences(const Heads& heads, const std::vector<int32_t>& lengths,
                                      std::mt19937_64& random) {
  std::vector<Sequence> sequences;
  for (const int32_t length : lengths) {
    const int64_t elements = int64_t{length} * heads.head_dim;
    sequences.push_back({.q = RandomQueries(elements * heads.heads, random),
                         .k = RandomBf16(elements * heads.kv_heads, random),
                         .v = RandomBf16(elements * heads.kv_heads, random)});
  }
  return sequences;
}

// Chunks of sequences on the device. Blocks lie in random order, and chunks of one sequence share
// its full blocks. Unused elements are NaN: slots behind a chunk's context, unused blocks, other
// layers and the gaps between rows of q.
class Batch {
 public:
  Batch(const Heads& heads, std::shared_ptr<const std::vector<Sequence>> sequences, std::vector<Chunk> chunks,
        std::mt19937_64& random)
      : heads_(heads), sequences_(std::move(sequences)), chunks_(std::move(chunks)) {
    PlaceBlocks(random);
    FillSlab();
    FillQueries();
    out_ = DeviceArray<Bf16>(static_cast<size_t>(rows_) * heads_.heads * heads_.head_dim);
    PagedKv& kv = args_.kv;
    kv.slab = slab_.data();
    args_.q = q_.data();
    args_.heads = heads_.heads;
    tables_ = DeviceArray<int32_t>(tables_host_);
    args_.block_tables = tables_.data();
    args_.out = out_.data();
  }

  // Makes the inputs for launches of this kernel.
  void Prepare(PrefillKernel kernel) {
    const int32_t group = heads_.heads / heads_.kv_heads;
    const std::vector<AttentionSlice> tiles = PlanQueryTiles(slices_, QueriesPerTile(kernel, heads_.head_dim, group));
    tiles_[kernel] = DeviceArray<AttentionSlice>(tiles);
    if (kernel == PrefillKernel::kWgmma) Must(MakeKvTensorMap(args_.kv, &map_));
  }

  cudaError_t Launch(PrefillKernel kernel, cudaStream_t stream) const {
    const DeviceArray<AttentionSlice>& tiles = tiles_.at(kernel);
    AttentionArgs args = args_;
    args.slices = tiles.data();
    return LaunchPrefillAttention(args, static_cast<int32_t>(tiles.size()), kernel, &map_, stream);
  }

  // Launches into an output that is NaN.
  cudaError_t LaunchAfresh(PrefillKernel kernel, cudaStream_t stream) const {
    const cudaError_t poisoned = cudaMemsetAsync(out_.data(), 0xff, out_.size() * sizeof(Bf16), stream);
    return poisoned != cudaSuccess ? poisoned : Launch(kernel, stream);
  }
  std::vector<Bf16> Output() const { return out_.ToHost(); }

  // Query and key pairs, counted once for all heads.
  double Pairs() const {
    double pairs = 0;
    for (const Chunk& chunk : chunks_) pairs += chunk.rows * (chunk.start + (chunk.rows + 1) / 2.0);
    return pairs;
  }
  double Flops() const { return 4.0 * heads_.heads * heads_.head_dim * Pairs(); }
  double Bytes() const {
    double rows = 2.0 * heads_.heads * rows_;  // q and out
    for (const Chunk& chunk : chunks_) rows += 2.0 * heads_.kv_heads * chunk.context();
    return rows * heads_.head_dim * sizeof(Bf16);
  }

  // Returns the result of all rows in float64: [rows][heads][head_dim].
  const std::vector<double>& Reference() {
    if (!reference_.empty()) return reference_;
    reference_.resize(static_cast<size_t>(rows_) * heads_.heads * heads_.head_dim);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      for (int32_t head = 0; head < heads_.heads; ++head) AttendInFloat64(chunks_[i], slices_[i].first_row, head);
    }
    return reference_;
  }

 private:
  void PlaceBlocks(std::mt19937_64& random) {
    int32_t entries = 0;
    for (const Chunk& chunk : chunks_) entries += static_cast<int32_t>(BlocksOf(chunk.context()));
    blocks_ = entries + 3;  // at least three unused
    std::vector<int64_t> free = RandomOrder(blocks_, random);

    std::map<std::pair<int, int>, int32_t> full;  // by sequence and index in it
    for (const Chunk& chunk : chunks_) {
      slices_.push_back({.first_row = rows_,
                         .rows = chunk.rows,
                         .start = chunk.start,
                         .table = static_cast<int32_t>(tables_host_.size())});
      rows_ += chunk.rows;
      for (int index = 0; index * kBlockTokens < chunk.context(); ++index) {
        const auto shared = full.find({chunk.sequence, index});
        if (shared != full.end() && (index + 1) * kBlockTokens <= chunk.context()) {
          tables_host_.push_back(shared->second);
          continue;
        }
        tables_host_.push_back(static_cast<int32_t>(free.back()));
        if ((index + 1) * kBlockTokens <= chunk.context()) full[{chunk.sequence, index}] = tables_host_.back();
        free.pop_back();
      }
    }
  }

  void FillSlab() {
    PagedKv& kv = args_.kv;
    kv.blocks = blocks_;
    kv.kv_heads = heads_.kv_heads;
    kv.head_dim = heads_.head_dim;
    const int64_t layer_stride = 2 * kv.kv_heads * kv.HeadStride();
    kv.layer_offset = (kLayers - 1) * layer_stride;
    kv.block_stride = kLayers * layer_stride;
    std::vector<Bf16> slab(static_cast<size_t>(blocks_ * kv.block_stride), Nan());
    kv.slab = slab.data();
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Sequence& sequence = (*sequences_)[chunks_[i].sequence];
      for (int position = 0; position < chunks_[i].context(); ++position) {
        const int64_t block = tables_host_[slices_[i].table + position / kBlockTokens];
        const int64_t token = position % kBlockTokens;
        for (int32_t head = 0; head < kv.kv_heads; ++head) {
          const int64_t from = (int64_t{position} * kv.kv_heads + head) * kv.head_dim;
          std::copy_n(&sequence.k[from], kv.head_dim, kv.K<Bf16>(block, head) + token * kv.head_dim);
          std::copy_n(&sequence.v[from], kv.head_dim, kv.V<Bf16>(block, head) + token * kv.head_dim);
        }
      }
    }
    slab_ = DeviceArray<Bf16>(slab);
  }

  void FillQueries() {
    const int64_t width = int64_t{heads_.heads} * heads_.head_dim;
    args_.q_stride = width + 2 * heads_.kv_heads * heads_.head_dim;  // as if k and v followed
    std::vector<Bf16> q(static_cast<size_t>(rows_ * args_.q_stride), Nan());
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Sequence& sequence = (*sequences_)[chunks_[i].sequence];
      for (int row = 0; row < chunks_[i].rows; ++row) {
        std::copy_n(&sequence.q[(chunks_[i].start + row) * width], width,
                    &q[(slices_[i].first_row + row) * args_.q_stride]);
      }
    }
    q_ = DeviceArray<Bf16>(q);
  }

  void AttendInFloat64(const Chunk& chunk, int32_t first_row, int32_t head) {
    const Sequence& sequence = (*sequences_)[chunk.sequence];
    const int32_t dim = heads_.head_dim, kv_head = head / (heads_.heads / heads_.kv_heads);
    const auto read = [&](const std::vector<Bf16>& values, int32_t position, int32_t heads, int32_t h, int32_t d) {
      return static_cast<double>(__bfloat162float(values[(int64_t{position} * heads + h) * dim + d]));
    };
    // [dim][context], summed by columns.
    std::vector<double> k_columns(static_cast<size_t>(dim) * chunk.context());
    std::vector<double> v(static_cast<size_t>(chunk.context()) * dim);
    for (int32_t position = 0; position < chunk.context(); ++position) {
      for (int32_t d = 0; d < dim; ++d) {
        k_columns[d * chunk.context() + position] = read(sequence.k, position, heads_.kv_heads, kv_head, d);
        v[position * dim + d] = read(sequence.v, position, heads_.kv_heads, kv_head, d);
      }
    }
    std::vector<double> scores(chunk.context());
    for (int32_t row = 0; row < chunk.rows; ++row) {
      const int32_t keys = chunk.start + row + 1;
      std::fill_n(scores.begin(), keys, 0);
      for (int32_t d = 0; d < dim; ++d) {
        const double q = read(sequence.q, chunk.start + row, heads_.heads, head, d) / std::sqrt(dim);
        const double* column = &k_columns[d * chunk.context()];
        for (int32_t key = 0; key < keys; ++key) scores[key] += q * column[key];
      }
      const double max = *std::max_element(scores.begin(), scores.begin() + keys);
      double* out = &reference_[(int64_t{first_row + row} * heads_.heads + head) * dim];
      double sum = 0;
      for (int32_t key = 0; key < keys; ++key) {
        const double p = std::exp(scores[key] - max);
        sum += p;
        for (int32_t d = 0; d < dim; ++d) out[d] += p * v[key * dim + d];
      }
      for (int32_t d = 0; d < dim; ++d) out[d] /= sum;
    }
  }

  static Bf16 Nan() { return __float2bfloat16(std::numeric_limits<float>::quiet_NaN()); }

  const Heads heads_;
  const std::shared_ptr<const std::vector<Sequence>> sequences_;
  const std::vector<Chunk> chunks_;
  int32_t rows_ = 0, blocks_ = 0;
  std::vector<AttentionSlice> slices_;  // of chunks_
  std::vector<int32_t> tables_host_;
  AttentionArgs args_;
  DeviceArray<Bf16> slab_, q_, out_;
  DeviceArray<int32_t> tables_;
  std::map<PrefillKernel, DeviceArray<AttentionSlice>> tiles_;
  KvTensorMap map_;
  std::vector<double> reference_;
};

std::vector<PrefillKernel> KernelsOfDevice() {
  int device = 0, major = 0, minor = 0;
  Must(cudaGetDevice(&device));
  Must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  Must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major == 9 && minor == 0) return {PrefillKernel::kMma, PrefillKernel::kWgmma};
  return {PrefillKernel::kMma};
}

std::string Name(PrefillKernel kernel, const Heads& heads, const std::string& batch) {
  return std::string("prefill_attention ") + (kernel == PrefillKernel::kMma ? "mma" : "wgmma") + " hd" +
         std::to_string(heads.head_dim) + " heads" + std::to_string(heads.heads) + "/" +
         std::to_string(heads.kv_heads) + " " + batch;
}

KernelCase BatchCase(std::shared_ptr<Batch> batch, PrefillKernel kernel, std::string name) {
  batch->Prepare(kernel);
  return {.name = std::move(name),
          .flops = batch->Flops(),
          .bytes = batch->Bytes(),
          .launch = [batch, kernel](cudaStream_t stream) { return batch->Launch(kernel, stream); },
          .error = nullptr};
}

// Adds one case for each kernel. The cases share the batch and its output.
void AddRagged(std::vector<KernelCase>& cases, const Heads& heads, std::mt19937_64& random) {
  const auto sequences =
      std::make_shared<const std::vector<Sequence>>(RandomSequences(heads, {350, 15, 32, 205}, random));
  const std::vector<Chunk> chunks = {{.sequence = 0, .start = 333, .rows = 1},
                                     {.sequence = 1, .start = 0, .rows = 15},
                                     {.sequence = 2, .start = 16, .rows = 16},
                                     {.sequence = 0, .start = 333, .rows = 17},
                                     {.sequence = 3, .start = 5, .rows = 200}};
  const auto batch = std::make_shared<Batch>(heads, sequences, chunks, random);
  for (const PrefillKernel kernel : KernelsOfDevice()) {
    KernelCase ragged = BatchCase(batch, kernel, Name(kernel, heads, "ragged"));
    ragged.launch = [batch, kernel](cudaStream_t stream) { return batch->LaunchAfresh(kernel, stream); };
    ragged.error = [batch] { return RelativeError(batch->Output(), batch->Reference()); };
    cases.push_back(std::move(ragged));
  }
}

// Compares a sequence's rows from one launch with the same rows from several launches. Each of
// these has another block table, a neighbour and no KV of later chunks.
void AddChunked(std::vector<KernelCase>& cases, const Heads& heads, std::mt19937_64& random) {
  constexpr int32_t kLength = 403;
  const auto sequences = std::make_shared<const std::vector<Sequence>>(RandomSequences(heads, {kLength, 77}, random));
  const auto whole = std::make_shared<Batch>(heads, sequences, std::vector<Chunk>{{0, 0, kLength}}, random);
  std::vector<std::shared_ptr<Batch>> parts;
  int32_t start = 0;
  for (const int32_t rows : {37, 1, 150, 61, 154}) {
    parts.push_back(
        std::make_shared<Batch>(heads, sequences, std::vector<Chunk>{{0, start, rows}, {1, start % 60, 17}}, random));
    start += rows;
  }
  BATON_CHECK(start == kLength, "the parts make up the whole");

  for (const PrefillKernel kernel : KernelsOfDevice()) {
    KernelCase chunked = BatchCase(whole, kernel, Name(kernel, heads, "chunked"));
    for (const std::shared_ptr<Batch>& part : parts) part->Prepare(kernel);
    chunked.tolerance = 0;
    chunked.launch = [whole, parts, kernel](cudaStream_t stream) {
      cudaError_t status = whole->LaunchAfresh(kernel, stream);
      for (size_t i = 0; i < parts.size() && status == cudaSuccess; ++i)
        status = parts[i]->LaunchAfresh(kernel, stream);
      return status;
    };
    const auto width = static_cast<size_t>(heads.heads) * heads.head_dim;
    chunked.error = [whole, parts, width] {
      const std::vector<Bf16> expected = whole->Output();
      size_t first = 0;
      bool same = true;
      for (const std::shared_ptr<Batch>& part : parts) {
        const std::vector<Bf16> out = part->Output();
        const size_t size = out.size() - 17 * width;  // without the neighbour
        same = same && std::memcmp(&expected[first], out.data(), size * sizeof(Bf16)) == 0;
        first += size;
      }
      return same ? 0.0 : 1.0;
    };
    cases.push_back(std::move(chunked));
  }
}

void AddBench(std::vector<KernelCase>& cases, const Heads& heads, const std::vector<int32_t>& lengths, int32_t history,
              const std::string& name, std::mt19937_64& random) {
  const auto sequences = std::make_shared<const std::vector<Sequence>>(RandomSequences(heads, lengths, random));
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < lengths.size(); ++i) chunks.push_back({static_cast<int>(i), history, lengths[i] - history});
  const auto batch = std::make_shared<Batch>(heads, sequences, chunks, random);
  for (const PrefillKernel kernel : KernelsOfDevice()) {
    cases.push_back(BatchCase(batch, kernel, Name(kernel, heads, name)));
  }
}

}  // namespace

std::vector<KernelCase> PrefillAttentionCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<KernelCase> cases;
  if (size == CaseSize::kCheck) {
    for (const int32_t head_dim : {64, 128}) {
      for (const int32_t group : {1, 3, 4, 5, 7, 8, 16}) AddRagged(cases, {2 * group, 2, head_dim}, random);
      for (const int32_t group : {1, 3, 4, 5, 8}) AddChunked(cases, {2 * group, 2, head_dim}, random);
    }
    return cases;
  }
  const Heads llama = {.heads = 32, .kv_heads = 8, .head_dim = 128};
  AddBench(cases, llama, {8192}, 0, "8192", random);
  AddBench(cases, llama, {2048, 2048, 2048, 2048}, 0, "4 x 2048", random);
  AddBench(cases, llama, {8192}, 7680, "512 on 7680", random);
  AddBench(cases, {.heads = 32, .kv_heads = 8, .head_dim = 64}, {8192}, 0, "8192", random);
  return cases;
}

}  // namespace baton::cuda
