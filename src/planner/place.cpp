#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "planner/plan.h"

namespace ingot {

int64_t place_buffers(std::vector<Buffer>& buffers) {
  constexpr int64_t kAlign = 64;
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].bytes != buffers[b].bytes ? buffers[a].bytes > buffers[b].bytes : a < b;
  });

  std::vector<size_t> placed;  // by offset
  int64_t total = 0;
  for (size_t i : order) {
    Buffer& b = buffers[i];
    const int64_t size = (std::max<int64_t>(checked_add(b.bytes, 64), 64) + kAlign - 1) / kAlign * kAlign;
    int64_t at = 0;
    for (size_t j : placed) {
      const Buffer& other = buffers[j];
      if (other.last < b.first || b.last < other.first) continue;
      const int64_t other_end = other.offset + (std::max<int64_t>(other.bytes + 64, 64) + kAlign - 1) / kAlign * kAlign;
      if (at + size <= other.offset) break;
      at = std::max(at, other_end);
    }
    b.offset = at;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t x, size_t y) { return buffers[x].offset < buffers[y].offset; }),
                  i);
    total = std::max(total, checked_add(at, size));
  }
  return total;
}

}  // namespace ingot
