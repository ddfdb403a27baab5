#include "model/module_digest.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kLeafBytes = 8 << 20;
constexpr unsigned kMaxThreads = 16;

struct Leaf {
  const std::byte* data;
  int64_t bytes;
  Digest digest;
};

// Returns the fields of the config that enter the computation. Doubles are written as hexadecimal
// floats, which are exact.
std::string ComputingFields(const ModelConfig& config) {
  std::string text = absl::StrFormat(
      "baton module 1\narchitecture %d layers %d hidden %d ffn %d heads %d kv_heads %d head_dim %d vocab %d eps %a "
      "theta %a tied %d\n",
      static_cast<int>(config.architecture), config.layers, config.hidden, config.ffn, config.heads, config.kv_heads,
      config.head_dim, config.vocab, config.rms_eps, config.rope_theta, config.tied_embeddings);
  if (const auto& scaling = config.rope_scaling) {
    absl::StrAppendFormat(&text, "llama3 %a %a %a %d\n", scaling->factor, scaling->low_freq_factor,
                          scaling->high_freq_factor, scaling->original_context);
  }
  return text;
}

void HashLeaves(std::vector<Leaf>& leaves) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < leaves.size(); i = next++) {
      leaves[i].digest = Sha256(leaves[i].data, static_cast<size_t>(leaves[i].bytes));
    }
  };
  std::vector<std::thread> helpers(std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads) - 1);
  for (std::thread& helper : helpers) helper = std::thread(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

Digest ModuleDigest(const Weights& weights) {
  const std::vector<NamedTensor> tensors = TensorsOf(weights);
  std::vector<Leaf> leaves;
  for (const auto& [name, tensor] : tensors) {
    const int64_t bytes = tensor->rows * tensor->cols * BytesPerElement(tensor->dtype);
    for (int64_t begin = 0; begin < bytes; begin += kLeafBytes) {
      leaves.push_back({tensor->data + begin, std::min(kLeafBytes, bytes - begin), {}});
    }
  }
  HashLeaves(leaves);

  std::string root = ComputingFields(weights.config);
  for (const auto& [name, tensor] : tensors) {
    absl::StrAppend(&root, name, " ", static_cast<int>(tensor->dtype), " ", tensor->rows, " ", tensor->cols, "\n");
  }
  for (const Leaf& leaf : leaves) root.append(reinterpret_cast<const char*>(leaf.digest.data()), leaf.digest.size());
  return Sha256(root.data(), root.size());
}

std::string Hex(const Digest& digest) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace baton
