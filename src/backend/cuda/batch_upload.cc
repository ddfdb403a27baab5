#include "backend/cuda/batch_upload.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kv/block_layout.h"

namespace baton {

void BatchUpload::Host::Clear() {
  for (auto* list : {&tokens, &positions, &kept_rows, &follows}) list->clear();
  for (auto* list : {&slices, &kept}) list->clear();
  slots.clear();
  specs.clear();
}

absl::Status BatchUpload::Send(const Batch& batch, int64_t decode_rows, cudaStream_t stream) {
  Collect(batch, decode_rows);
  upload_.Clear();
  lists_ = {};
  RETURN_IF_ERROR(AddRows(batch, decode_rows));
  RETURN_IF_ERROR(planners_.attention->Reserve(stream));
  if (planners_.sampling != nullptr) RETURN_IF_ERROR(planners_.sampling->ReserveShaped());
  if (decode_rows == 0) RETURN_IF_ERROR(AddKept(stream));
  return upload_.Send("a step's inputs", stream);
}

void BatchUpload::Collect(const Batch& batch, int64_t decode_rows) {
  host_.Clear();
  int32_t next_table = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const int32_t table = std::exchange(next_table, next_table + static_cast<int32_t>(slice.blocks.size()));
    const auto first_row = static_cast<int32_t>(host_.tokens.size());
    const auto rows = static_cast<int32_t>(slice.tokens.size());
    host_.slices.push_back({.first_row = first_row, .rows = rows, .start = slice.start, .table = table});
    host_.tokens.insert(host_.tokens.end(), slice.tokens.begin(), slice.tokens.end());
    for (int32_t position = slice.start; position < slice.start + rows; ++position) {
      host_.positions.push_back(position);
      const int64_t block = slice.blocks[position / kBlockTokens].value();
      host_.slots.push_back(block * kBlockTokens + position % kBlockTokens);
    }
    const auto wanted = static_cast<int32_t>(slice.logit_rows());
    if (wanted == 0) continue;
    host_.kept.push_back({.first_row = static_cast<int32_t>(host_.kept_rows.size()),
                          .rows = wanted,
                          .start = slice.start + rows - wanted,
                          .table = table});
    for (int32_t row = rows - wanted; row < rows; ++row) {
      host_.specs.push_back(slice.sample);
      host_.kept_rows.push_back(first_row + row);
    }
  }
  while (std::ssize(host_.tokens) < decode_rows) {
    host_.tokens.push_back(0);
    host_.positions.push_back(0);
    host_.slots.push_back(-1);
  }
  const auto follows = [](const SequenceSlice& slice) { return slice.follows != kFollowsNone; };
  if (std::ranges::none_of(batch.slices, follows)) return;
  BATON_CHECK(decode_rows > 0, "only a decode step can take its tokens from the previous step");
  for (const SequenceSlice& slice : batch.slices) host_.follows.push_back(slice.follows);
}

// Adds the lists that a captured decode step reads. Their addresses depend only on the sizes with
// which the step was captured.
absl::Status BatchUpload::AddRows(const Batch& batch, int64_t decode_rows) {
  RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(host_.tokens), lists_.tokens));
  RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(host_.positions), lists_.positions));
  RETURN_IF_ERROR(upload_.Add(std::span<const int64_t>(host_.slots), lists_.slots));
  RETURN_IF_ERROR(planners_.attention->Plan(host_.slices, decode_rows, upload_));
  RETURN_IF_ERROR(AddBlockTables(batch));
  if (planners_.sampling != nullptr) RETURN_IF_ERROR(planners_.sampling->Plan(host_.specs, upload_));
  return host_.follows.empty() ? absl::OkStatus()
                               : upload_.Add(std::span<const int32_t>(host_.follows), lists_.follows);
}

// Copies the tables directly into the upload, because they are most of its bytes.
absl::Status BatchUpload::AddBlockTables(const Batch& batch) {
  static_assert(sizeof(BlockId) == sizeof(int32_t) && std::is_trivially_copyable_v<BlockId>);
  int64_t size = 0;
  for (const SequenceSlice& slice : batch.slices) size += std::ssize(slice.blocks);
  ASSIGN_OR_RETURN(const std::span<int32_t> space, upload_.Reserve(size, lists_.block_tables));
  int32_t* to = space.data();
  for (const SequenceSlice& slice : batch.slices) {
    std::memcpy(to, slice.blocks.data(), slice.blocks.size_bytes());
    to += slice.blocks.size();
  }
  return absl::OkStatus();
}

absl::Status BatchUpload::AddKept(cudaStream_t stream) {
  RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(host_.kept_rows), lists_.kept_rows));
  RETURN_IF_ERROR(planners_.kept_attention->Plan(host_.kept, /*rows=*/0, upload_));
  return planners_.kept_attention->Reserve(stream);
}

}  // namespace baton
