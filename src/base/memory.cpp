#include "base/memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/error.h"

namespace ingot {

void* aligned_memory(size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, size < kHugePage ? 64 : kHugePage, (size + 127) / 64 * 64) != 0) return nullptr;
  if (size >= kHugePage) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // only a hint
  return memory;
}

int64_t machine_memory() {
  static const int64_t bytes = [] {
    int64_t most = std::numeric_limits<int64_t>::max();
    struct sysinfo about{};
    if (sysinfo(&about) == 0) most = static_cast<int64_t>((about.totalram + about.totalswap) * about.mem_unit);
    if (FILE* f = std::fopen("/sys/fs/cgroup/memory.max", "r")) {
      long long group = 0;
      if (std::fscanf(f, "%lld", &group) == 1 && group > 0) most = std::min<int64_t>(most, group);
      std::fclose(f);
    }
    return most;
  }();
  return bytes;
}

void over_memory_limit(int64_t needed, int64_t limit) {
  throw Error(
      ErrorKind::Resource,
      fmt::format("the run needs {} bytes for its tensors, more than the limit memory_bytes of {}", needed, limit),
      "smaller shapes need less");
}

void MemoryBudget::take(int64_t bytes) {
  const int64_t used = used_.fetch_add(bytes, std::memory_order_relaxed);
  if (bytes <= limit_ - used) return;
  give_back(bytes);
  over_memory_limit(used + bytes, limit_);
}

namespace {
thread_local constinit std::shared_ptr<MemoryBudget>* budget_in_force = nullptr;
}

BudgetScope::BudgetScope(std::shared_ptr<MemoryBudget> budget)
    : budget_(std::move(budget)), before_(std::exchange(budget_in_force, &budget_)) {}
BudgetScope::~BudgetScope() { budget_in_force = before_; }

std::shared_ptr<void> tensor_memory(int64_t bytes, const char* what) {
  if (!budget_in_force) return {allocate_memory(bytes, what).release(), std::free};
  struct Charged {
    std::shared_ptr<MemoryBudget> budget;
    int64_t bytes = 0;
    Memory memory;
    ~Charged() {
      memory.reset();
      budget->give_back(bytes);
    }
  };
  const auto charged = std::make_shared<Charged>(*budget_in_force);
  charged->budget->take(bytes);
  charged->bytes = bytes;
  charged->memory = allocate_memory(bytes, what);
  return {charged, charged->memory.get()};
}

Memory allocate_memory(int64_t bytes, const char* what) {
  auto* p = static_cast<std::byte*>(aligned_memory(static_cast<size_t>(bytes)));
  if (!p) fail(ErrorKind::Resource, "no memory for {} bytes of {}", bytes, what);
  return Memory(p);
}

}  // namespace ingot
