// Large memory for numbers.
#pragma once
#include <atomic>
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
// Bytes of memory and swap of this machine, or of the control group it is in.
int64_t machine_memory();

// What the tensors of a run may take at a time. The thread that makes them has it in force while a BudgetScope lives.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  int64_t limit() const { return limit_; }
  // A Resource error where there would be more than the limit.
  void take(int64_t bytes);
  void give_back(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};
[[noreturn]] void over_memory_limit(int64_t needed, int64_t limit);

class BudgetScope {
 public:
  explicit BudgetScope(std::shared_ptr<MemoryBudget>);
  ~BudgetScope();
  BudgetScope(const BudgetScope&) = delete;
  BudgetScope& operator=(const BudgetScope&) = delete;

 private:
  std::shared_ptr<MemoryBudget> budget_, *before_;
};

// Memory for a tensor: of the budget in force, which gets it back when nobody holds the memory any more. An Error that
// says for what where there is not enough.
std::shared_ptr<void> tensor_memory(int64_t bytes, const char* what);

// aligned_memory, owned; an Error that says for what where there is not enough.
Memory allocate_memory(int64_t bytes, const char* what);

}  // namespace ingot
