#include "ir/checksums.h"

#include <algorithm>
#include <thread>

#include "base/hash.h"
#include "base/threads.h"

namespace ingot {
namespace {

constexpr size_t kWorthThreads = size_t{16} << 20;
constexpr unsigned kMaxThreads = 8;

}  // namespace

void verify_checksums(const std::vector<Checksum>& all) {
  std::vector<std::string> found(all.size());
  std::vector<size_t> order(all.size());
  size_t total = 0;
  for (size_t i = 0; i < all.size(); i++) {
    order[i] = i;
    total += all[i].bytes.size();
  }
  // Largest first: the threads then end together.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a].bytes.size() > all[b].bytes.size(); });
  const size_t threads = total >= kWorthThreads ? std::min(kMaxThreads, std::thread::hardware_concurrency()) : 1;
  share_out(order.size(), threads, [&](size_t i) { found[order[i]] = hash64_hex(all[order[i]].bytes); });
  for (size_t i = 0; i < all.size(); i++)
    if (found[i] != all[i].expected->name())
      all[i].expected->fail("checksum mismatch: the file says {}, the weights have {}", all[i].expected->text,
                            found[i]);
}

}  // namespace ingot
