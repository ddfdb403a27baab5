#include "bench/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace baton {
namespace {

std::atomic<int64_t> process_allocations = 0;
thread_local int64_t thread_allocations = 0;

void* Allocate(size_t size, size_t alignment) {
  process_allocations.fetch_add(1, std::memory_order_relaxed);
  ++thread_allocations;
  void* memory = alignment == 0 ? std::malloc(size == 0 ? 1 : size)
                                : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t Allocations() { return process_allocations; }
int64_t ThreadAllocations() { return thread_allocations; }

}  // namespace baton

// The standard library's forms for arrays and std::nothrow call these operators.
void* operator new(size_t size) { return baton::Allocate(size, 0); }
void* operator new(size_t size, std::align_val_t alignment) {
  return baton::Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
