#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace baton {
namespace {

// Element i of a tensor as a float.
float ValueAt(const Tensor& tensor, int64_t i) {
  if (tensor.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, tensor.data + i * sizeof(float), sizeof(value));
    return value;
  }
  Bf16 bits;
  std::memcpy(&bits, tensor.data + i * sizeof(Bf16), sizeof(bits));
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Copies row `row` of a tensor to column `lane` of a panel: element c goes to c * 32 + lane.
void PackRowF32(const Tensor& tensor, int64_t row, float* panel, int64_t lane) {
  for (int64_t c = 0; c < tensor.cols; ++c) panel[c * kPanelOutputs + lane] = ValueAt(tensor, row * tensor.cols + c);
}

// `group` is 1, or 2 for pairs: element c goes to (c / group * 32 + lane) * group + c % group.
void PackRowBf16(const Tensor& tensor, int64_t row, Bf16* panel, int64_t lane, int64_t group) {
  const std::byte* source = tensor.data + row * tensor.cols * sizeof(Bf16);
  for (int64_t c = 0; c < tensor.cols; ++c) {
    Bf16* target = panel + (c / group * kPanelOutputs + lane) * group + c % group;
    std::memcpy(target, source + c * sizeof(Bf16), sizeof(Bf16));
  }
}

int64_t PanelsOf(int64_t outputs) { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }

}  // namespace

int64_t PackedWeight::bytes() const {
  return panels_ * kPanelOutputs * k_ *
         static_cast<int64_t>(format_ == WeightFormat::kF32 ? sizeof(float) : sizeof(Bf16));
}

// Sets all but bias and values.
void PackedWeight::Allocate(WeightMemory& memory, const KernelTable& kernels, std::span<const Tensor> tensors) {
  BATON_CHECK(!tensors.empty(), "a weight is made of at least one tensor");
  const auto is_bf16 = [](const Tensor& t) { return t.dtype == DType::kBF16; };
  format_ = std::all_of(tensors.begin(), tensors.end(), is_bf16) ? kernels.bf16_format : WeightFormat::kF32;
  k_ = tensors[0].cols;
  if (format_ == WeightFormat::kBf16Pairs) k_ += k_ % 2;
  for (const Tensor& tensor : tensors) {
    BATON_CHECK(tensor.cols == tensors[0].cols && tensor.data != nullptr, "stacked tensors have equal columns");
    n_ += tensor.rows;
  }
  if (panels_ == 0) panels_ = PanelsOf(n_);
  data_ = memory.Allocate(static_cast<size_t>(bytes()));
}

void PackedWeight::PackRow(const Tensor& tensor, int64_t row, int64_t panel, int64_t lane) {
  const int64_t offset = panel * kPanelOutputs * k_;  // elements
  if (format_ == WeightFormat::kF32) {
    PackRowF32(tensor, row, reinterpret_cast<float*>(data_) + offset, lane);
  } else {
    const int64_t group = format_ == WeightFormat::kBf16Pairs ? 2 : 1;
    PackRowBf16(tensor, row, reinterpret_cast<Bf16*>(data_) + offset, lane, group);
  }
}

PackedWeight::PackedWeight(WeightMemory& memory, const KernelTable& kernels, std::span<const Tensor> tensors,
                           std::span<const Tensor> biases) {
  Allocate(memory, kernels, tensors);
  int64_t out = 0;
  for (const Tensor& tensor : tensors) {
    for (int64_t row = 0; row < tensor.rows; ++row, ++out)
      PackRow(tensor, row, out / kPanelOutputs, out % kPanelOutputs);
  }
  const auto is_null = [](const Tensor& t) { return t.data == nullptr; };
  if (!std::all_of(biases.begin(), biases.end(), is_null)) PackBias(memory, tensors, biases);
}

void PackedWeight::PackBias(WeightMemory& memory, std::span<const Tensor> tensors, std::span<const Tensor> biases) {
  BATON_CHECK(biases.size() == tensors.size(), "one bias per tensor, or none at all");
  bias_ = reinterpret_cast<float*>(memory.Allocate(static_cast<size_t>(panels_ * kPanelOutputs) * sizeof(float)));
  float* out = bias_;
  for (size_t i = 0; i < tensors.size(); out += tensors[i].rows, ++i) {
    if (biases[i].data == nullptr) continue;
    BATON_CHECK(biases[i].rows * biases[i].cols == tensors[i].rows, "a bias has one value per row of its tensor");
    for (int64_t row = 0; row < tensors[i].rows; ++row) out[row] = ValueAt(biases[i], row);
  }
}

PackedWeight PackedWeight::GateUp(WeightMemory& memory, const KernelTable& kernels, const Tensor& gate,
                                  const Tensor& up) {
  BATON_CHECK(gate.rows == up.rows, "gate and up have one shape");
  PackedWeight weight;
  weight.panels_ = (gate.rows + kLanes - 1) / kLanes;
  weight.Allocate(memory, kernels, std::array{gate, up});
  for (int64_t row = 0; row < gate.rows; ++row) {
    weight.PackRow(gate, row, row / kLanes, row % kLanes);
    weight.PackRow(up, row, row / kLanes, kLanes + row % kLanes);
  }
  return weight;
}

}  // namespace baton
