#include "tests/instructions/heap.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::uint64_t> allocations{0};
}

// Here and not beside their users, or the compiler takes new and free() in one function for a
// mistake.
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace slime::testing {

std::uint64_t heap_allocations() { return allocations.load(std::memory_order_relaxed); }

}  // namespace slime::testing
