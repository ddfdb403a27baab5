// The collective operations between the ranks of a tensor-parallel group in a forward pass.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton {

// One rank's end. All ranks make the same calls in the same order, with equal counts. Pointers
// refer to the memory in which the rank computes: host memory, or memory of its device. On a
// device, a call is enqueued in the rank's stream.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // [0, ranks)
  virtual int ranks() const = 0;

  // Sets data[i] to the sum of all ranks' data[i]. All ranks get the same bits. The bits of an
  // element depend neither on its index nor on `count`.
  virtual void AllReduceSum(float* data, int64_t count) = 0;
  // Joins the ranks' columns at rank 0. `part` is [rows, columns[rank]]. `whole` is [rows, sum of
  // columns] at rank 0 and null at other ranks. Strides are elements from row to row.
  virtual void GatherColumns(const float* part, int64_t part_stride, int64_t rows, std::span<const int64_t> columns,
                             float* whole, int64_t whole_stride) = 0;

  // Gives up the pass for the whole group. All running and later calls return at once, and their
  // results are undefined until Recover. Thread-safe.
  virtual void Abort() = 0;
  // Makes the group usable again after Abort. Called before the next pass. REQUIRES: no rank is in
  // a call. Returns an error if the ranks cannot meet again.
  virtual absl::Status Recover() = 0;
};

}  // namespace baton
