#include "runtime/output_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "base/process_wide.h"

namespace ingot {
namespace {

constexpr size_t kLine = 64, kSmallest = size_t{64} << 10, kLimit = size_t{64} << 20;  // of what is kept

// In the line before the memory.
struct Header {
  size_t capacity;
};
Header* header_of(void* memory) { return reinterpret_cast<Header*>(static_cast<std::byte*>(memory) - kLine); }

// A tensor that grows a little with every call should find the memory of the one before: eight sizes for each power
// of two.
size_t capacity_for(size_t bytes) {
  const size_t step = bytes < kSmallest ? kLine : std::bit_floor(bytes) / 8;
  return (bytes + kLine + step - 1) / step * step;
}

struct Kept {
  std::mutex mutex;
  std::vector<void*> memory;  // given back longest ago first
  size_t bytes = 0;
};
constinit ProcessWide<Kept> kept;

void free_memory(void* memory) { std::free(header_of(memory)); }

void* find_kept(size_t capacity) {
  Kept& k = kept.get();
  std::lock_guard lock(k.mutex);
  auto fits = [&](void* m) { return header_of(m)->capacity == capacity; };
  const auto found = std::find_if(k.memory.rbegin(), k.memory.rend(), fits);
  if (found == k.memory.rend()) return nullptr;
  void* memory = *found;
  k.memory.erase(std::next(found).base());
  k.bytes -= capacity;
  return memory;
}

void keep(void* memory, size_t capacity) {
  Kept& k = kept.get();
  std::lock_guard lock(k.mutex);
  k.memory.push_back(memory);
  k.bytes += capacity;
  size_t old = 0;
  for (; k.bytes > kLimit; old++) {
    k.bytes -= header_of(k.memory[old])->capacity;
    free_memory(k.memory[old]);
  }
  k.memory.erase(k.memory.begin(), k.memory.begin() + static_cast<std::ptrdiff_t>(old));
}

}  // namespace

void* take_output(size_t bytes) {
  if (bytes > SIZE_MAX / 4) throw std::bad_alloc();
  const size_t capacity = capacity_for(bytes);
  if (capacity >= kSmallest)
    if (void* memory = find_kept(capacity)) return memory;
  auto* start = static_cast<std::byte*>(std::aligned_alloc(kLine, kLine + capacity));
  if (!start) throw std::bad_alloc();
  void* memory = start + kLine;
  header_of(memory)->capacity = capacity;
  return memory;
}

void give_back_output(void* memory) noexcept {
  if (!memory) return;
  const size_t capacity = header_of(memory)->capacity;
  if (capacity < kSmallest || capacity > kLimit) return free_memory(memory);
  try {
    keep(memory, capacity);
  } catch (const std::bad_alloc&) {
    free_memory(memory);
  }
}

ConstantPtr make_recycled(DType dtype, const std::vector<int64_t>& dims, std::byte** data) {
  auto c = std::make_shared<Constant>();
  c->dtype = dtype;
  c->dims = dims;
  const auto bytes = static_cast<size_t>(byte_size(dtype, c->elements()));
  *data = static_cast<std::byte*>(take_output(bytes));
  c->owner = std::shared_ptr<void>(*data, give_back_output);
  c->bytes = {*data, bytes};
  return c;
}

}  // namespace ingot
