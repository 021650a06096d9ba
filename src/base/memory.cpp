#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>

namespace ingot {

void* aligned_memory(size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, size < kHugePage ? 64 : kHugePage, (size + 127) / 64 * 64) != 0) return nullptr;
  if (size >= kHugePage) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // only a hint
  return memory;
}

}  // namespace ingot
