#include "base/memory.h"

#include <sys/mman.h>

#include "base/error.h"

namespace ingot {

void* aligned_memory(size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, size < kHugePage ? 64 : kHugePage, (size + 127) / 64 * 64) != 0) return nullptr;
  if (size >= kHugePage) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // only a hint
  return memory;
}

Memory allocate_memory(int64_t bytes, const char* what) {
  auto* p = static_cast<std::byte*>(aligned_memory(static_cast<size_t>(bytes)));
  if (!p) fail(ErrorKind::Resource, "no memory for {} bytes of {}", bytes, what);
  return Memory(p);
}

}  // namespace ingot
