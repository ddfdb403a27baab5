// Scratch memory that grows with the largest batch seen.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace baton {

// Aligned to cache lines, so that no vector straddles two. Not initialised; growing loses the contents.
template <class T>
class Buffer {
 public:
  T* data() const { return data_.get(); }

  // At least `count` elements.
  T* Reserve(size_t count) {
    if (count > capacity_) {
      data_.reset();
      capacity_ = 0;  // where there is no memory for more
      data_.reset(static_cast<T*>(::operator new(count * sizeof(T), kCacheLine)));
      capacity_ = count;
    }
    return data();
  }

 private:
  static constexpr std::align_val_t kCacheLine{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kCacheLine); }
  };

  std::unique_ptr<T, Free> data_;
  size_t capacity_ = 0;  // elements
};

}  // namespace baton
