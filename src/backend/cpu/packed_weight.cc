#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace baton {
namespace {

// Columns that are packed together. A panel's part of them stays in the first-level cache while all
// of its rows are read.
constexpr int64_t kColumnsPerBlock = 128;

template <class T>
T ElementAt(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

float FloatAt(const Tensor& tensor, int64_t i) {
  if (tensor.dtype == DType::kF32) return ElementAt<float>(tensor.data, i);
  const uint32_t bits = static_cast<uint32_t>(ElementAt<Bf16>(tensor.data, i)) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Returns the offset of element (column, lane) in a panel, in elements, as WeightFormat describes.
int64_t PanelOffset(WeightFormat format, int64_t column, int64_t lane) {
  switch (format) {
    case WeightFormat::kF32:
      return column * kPanelOutputs + lane;
    case WeightFormat::kBf16:
      return (column * kLanes + lane % kLanes) * 2 + lane / kLanes;
    case WeightFormat::kBf16Pairs:
      return (column / 2 * kPanelOutputs + lane) * 2 + column % 2;
  }
  CheckFailed(__FILE__, __LINE__, "format", "unknown weight format");
}

// Packs columns [begin, end) of one row of a tensor into one lane of a panel.
void PackColumns(WeightFormat format, const Tensor& row, int64_t lane, int64_t begin, int64_t end, std::byte* panel) {
  for (int64_t c = begin; c < end; ++c) {
    const int64_t offset = PanelOffset(format, c, lane);
    if (format == WeightFormat::kF32) {
      reinterpret_cast<float*>(panel)[offset] = FloatAt(row, c);
    } else {
      reinterpret_cast<Bf16*>(panel)[offset] = ElementAt<Bf16>(row.data, c);
    }
  }
}

// Returns row `row` of a matrix as a matrix of one row.
Tensor RowOf(const Tensor& tensor, int64_t row) {
  return {tensor.data + row * tensor.row_stride() * BytesPerElement(tensor.dtype), tensor.dtype, 1, tensor.cols};
}

}  // namespace

// Packs rows in the order of the outputs. A null row becomes zeros.
void PackedWeight::Pack(WeightMemory& memory, const KernelTable& kernels, const std::vector<Tensor>& rows,
                        ThreadPool* pool) {
  BATON_CHECK(!rows.empty(), "a weight has at least one output");
  const int64_t columns = rows[0].cols;
  format_ = kernels.bf16_format;
  for (const Tensor& row : rows) {
    BATON_CHECK(row.data == nullptr || row.cols == columns, "stacked tensors have equal columns");
    if (row.data != nullptr && row.dtype != DType::kBF16) format_ = WeightFormat::kF32;
  }
  k_ = format_ == WeightFormat::kBf16Pairs ? columns + columns % 2 : columns;
  panels_ = (static_cast<int64_t>(rows.size()) + kPanelOutputs - 1) / kPanelOutputs;
  data_ = memory.Allocate(static_cast<size_t>(bytes()));
  const auto pack = [&](Share share) {
    for (int64_t panel = share.begin; panel < share.end; ++panel) PackPanel(panel, rows);
  };
  if (pool == nullptr) {
    pack({0, panels_, 0});
  } else {
    pool->ParallelFor(panels_, 1, pack);
  }
}

void PackedWeight::PackPanel(int64_t panel, std::span<const Tensor> rows) {
  const int64_t columns = rows[0].cols;
  const int64_t first = panel * kPanelOutputs;
  const int64_t lanes = std::min<int64_t>(kPanelOutputs, static_cast<int64_t>(rows.size()) - first);
  std::byte* out = data_ + bytes() / panels_ * panel;
  for (int64_t begin = 0; begin < columns; begin += kColumnsPerBlock) {
    const int64_t end = std::min(columns, begin + kColumnsPerBlock);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (rows[first + lane].data != nullptr) PackColumns(format_, rows[first + lane], lane, begin, end, out);
    }
  }
}

int64_t PackedWeight::bytes() const {
  const int64_t element = format_ == WeightFormat::kF32 ? sizeof(float) : sizeof(Bf16);
  return panels_ * kPanelOutputs * k_ * element;
}

PackedWeight::PackedWeight(WeightMemory& memory, const KernelTable& kernels, std::span<const Tensor> tensors,
                           std::span<const Tensor> biases, ThreadPool* pool) {
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors) {
    for (int64_t row = 0; row < tensor.rows; ++row) rows.push_back(RowOf(tensor, row));
  }
  n_ = static_cast<int64_t>(rows.size());
  Pack(memory, kernels, rows, pool);
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
    for (int64_t row = 0; row < tensors[i].rows; ++row) out[row] = FloatAt(biases[i], row);
  }
}

PackedWeight PackedWeight::GateUp(WeightMemory& memory, const KernelTable& kernels, const Tensor& gate,
                                  const Tensor& up, ThreadPool* pool) {
  BATON_CHECK(gate.rows == up.rows && gate.cols == up.cols, "gate and up differ in shape");
  const int64_t panels = (gate.rows + kLanes - 1) / kLanes;
  std::vector<Tensor> rows(static_cast<size_t>(panels * kPanelOutputs), Tensor{nullptr, gate.dtype, 1, gate.cols});
  for (int64_t row = 0; row < gate.rows; ++row) {
    const int64_t output = row / kLanes * kPanelOutputs + row % kLanes;
    rows[output] = RowOf(gate, row);
    rows[output + kLanes] = RowOf(up, row);
  }
  PackedWeight weight;
  weight.n_ = 2 * gate.rows;
  weight.Pack(memory, kernels, rows, pool);
  return weight;
}

}  // namespace baton
