// What the ranks of a tensor-parallel group tell each other in a forward pass.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace baton {

// One rank's end. All ranks make the same calls in the same order, with equal counts. What is passed lies where the
// rank computes: in memory of the host, or of its device, where calls take their place in the rank's stream.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // [0, ranks)
  virtual int ranks() const = 0;

  // data[i] = the sum of all ranks' data[i], the same bits on every rank, and for any other `count` too: where one
  // element stands among others changes nothing.
  virtual void AllReduceSum(float* data, int64_t count) = 0;
  // Joins columns at rank 0: `part` is [rows, columns[rank]], `whole` [rows, sum of columns], null at other ranks.
  // Strides are elements from row to row.
  virtual void GatherColumns(const float* part, int64_t part_stride, int64_t rows, std::span<const int64_t> columns,
                             float* whole, int64_t whole_stride) = 0;

  // A rank gives the pass up: whatever waits in a call, or comes to one, goes on at once, and what it holds then means
  // nothing. From any thread.
  virtual void Abort() = 0;
  // Before the next pass, when no rank is in a call: makes aborted ranks meet again, or says why they cannot.
  virtual absl::Status Recover() = 0;
};

}  // namespace baton
