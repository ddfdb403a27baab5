// Scratch memory that grows with the largest batch so far.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace baton {

// An array aligned to cache lines, so that no vector straddles two lines. The elements are not
// initialised, and growth discards them.
template <class T>
class Buffer {
 public:
  T* data() const { return data_.get(); }

  // Makes space for at least `count` elements. Throws std::bad_alloc if there is no memory.
  T* Reserve(size_t count) {
    if (count > capacity_) {
      data_.reset();
      // Stays 0 if the allocation throws.
      capacity_ = 0;
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
