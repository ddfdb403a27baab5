// The token ids of one prompt, in storage that all readers share.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace baton {

// A sequence of token ids with the semantics of a value. Copies and suffixes of a buffer share its
// storage. Append never changes the tokens of another buffer: it writes behind the tokens of all
// buffers of the storage, or it moves this buffer to a new storage.
//
// Threads may read buffers of one storage while one thread appends to one of these buffers. Two
// threads must not append to buffers of one storage at the same time.
class TokenBuffer {
 public:
  TokenBuffer() = default;
  // Takes the vector's memory.
  TokenBuffer(std::vector<TokenId> tokens);  // NOLINT(google-explicit-constructor)

  // Takes amortised O(tokens.size()), because the storage doubles when it grows. A span of this
  // buffer stays valid after Append only while a copy of the buffer from before Append exists.
  void Append(std::span<const TokenId> tokens);
  // Returns tokens [begin, size()), in the same storage. REQUIRES: begin <= size().
  TokenBuffer Suffix(size_t begin) const;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const TokenId* data() const { return data_; }
  const TokenId* begin() const { return data_; }
  const TokenId* end() const { return data_ + size_; }
  TokenId operator[](size_t index) const { return data_[index]; }
  friend bool operator==(const TokenBuffer& a, const TokenBuffer& b);

 private:
  std::shared_ptr<std::vector<TokenId>> storage_;  // null: the buffer never had tokens
  const TokenId* data_ = nullptr;                  // [size_], in `storage_`
  size_t size_ = 0;
};

}  // namespace baton
