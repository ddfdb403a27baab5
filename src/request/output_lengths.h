// The expected lengths of outputs. Memory, quotas and the queue order of a request depend on its
// expected length. They cannot depend on max_tokens, which is by default the rest of the context
// length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/lru_map.h"

namespace baton {

// Requests whose outputs are expected to be equally long.
struct OutputSource {
  std::string cache_domain, model;
  std::string agent{};  // empty: all requests of the cache domain and model

  friend bool operator==(const OutputSource&, const OutputSource&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const OutputSource& source) {
    return H::combine(std::move(h), source.cache_domain, source.model, source.agent);
  }
};

// Learns the mean length of outputs by source. An expectation depends on outputs of its own cache
// domain only, so no client learns or changes another client's.
//
// The mean covers about the last 16 outputs. An output counts at most four times the mean so far:
// one output that repeats itself up to the end of the context does not reserve memory for all
// others. The mean is the right statistic for memory, because a pool holds many sequences, and the
// sum of their lengths is near the sum of their means (docs/design/decode_steps.md).
//
// Not thread-safe.
class OutputLengths {
 public:
  // The expectation for a cache domain without any output. It is short, because the two errors
  // cost differently. Too long an expectation leaves memory unused until outputs end. Too short a
  // one doubles as outputs grow, and costs a few preemptions.
  static constexpr int64_t kPrior = 64;

  // `sources`: upper bound on learned sources. The one that learned least recently is dropped
  // first.
  explicit OutputLengths(size_t sources = size_t{1} << 16) : means_(sources) {}

  // Returns the expected tokens of an output, at least 1: the mean of the agent, or else of the
  // cache domain and model, or else kPrior.
  int64_t Expect(const OutputSource& source) const;
  // Records an output of `tokens` tokens, for its agent and for its cache domain. If it is
  // `cut_off`, by its limit or by its client, its full length is unknown, and it counts as at least
  // the expected length. Ignores an empty output.
  void Learn(const OutputSource& source, int64_t tokens, bool cut_off);

  size_t sources() const { return means_.size(); }

 private:
  struct Mean {
    double tokens = 0;
    int32_t outputs = 0;  // counted up to the length of the mean
  };
  void Add(const OutputSource& source, double tokens);

  LruMap<OutputSource, Mean> means_;
};

// Returns how many more tokens an output of `made` tokens is expected to have. `expected` is the
// whole length as expected at its beginning, and `limit` the upper bound on it. An output that
// outgrows its expectation is expected to double it, as often as necessary. A wrong expectation
// thus reserves too little for a short time only.
int64_t ExpectedLeft(int64_t expected, int64_t made, int64_t limit);

}  // namespace baton
