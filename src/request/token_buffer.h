// The token ids of one prompt, held once for all that read them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace baton {

// A sequence of token ids that behaves as a value. Copies and suffixes share one storage, and no holder changes what
// another holder sees: Append writes behind the tokens of all holders, or moves this holder to a storage of its own.
//
// Threads may read holders of one storage while one thread appends to one of them. Two threads must not append to
// holders of one storage at once.
class TokenBuffer {
 public:
  TokenBuffer() = default;
  TokenBuffer(std::vector<TokenId> tokens);  // NOLINT(google-explicit-constructor): takes the vector's memory

  // Amortised O(tokens.size()): the storage grows by doubling. A storage that is left behind lives on while it has
  // holders, so a span of this buffer stays valid while a copy of the buffer as it was is kept.
  void Append(std::span<const TokenId> tokens);
  // Tokens [begin, size()) in the same storage. REQUIRES: begin <= size().
  TokenBuffer Suffix(size_t begin) const;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const TokenId* data() const { return data_; }
  const TokenId* begin() const { return data_; }
  const TokenId* end() const { return data_ + size_; }
  TokenId operator[](size_t index) const { return data_[index]; }
  friend bool operator==(const TokenBuffer& a, const TokenBuffer& b);

 private:
  std::shared_ptr<std::vector<TokenId>> storage_;  // null: no tokens so far
  const TokenId* data_ = nullptr;                  // [size_], in `storage_`
  size_t size_ = 0;
};

}  // namespace baton
