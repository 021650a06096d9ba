// Large memory for numbers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace ingot {

inline constexpr size_t kHugePage = size_t{2} << 20;

// At a multiple of 64 bytes, with room for whole vectors at the end: kernels may read (never use) up to the next 64
// bytes. To be freed with std::free; null where there is not enough. Large memory gets huge pages, which makes
// streaming a third faster: the processor does not prefetch past the end of a page.
void* aligned_memory(size_t size);

struct Freed {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, Freed>;
// The same, owned; an Error that says for what where there is not enough.
Memory allocate_memory(int64_t bytes, const char* what);

}  // namespace ingot
