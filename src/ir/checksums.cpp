#include "ir/checksums.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/hash.h"

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
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < order.size();) found[order[i]] = hash64_hex(all[order[i]].bytes);
  };
  std::vector<std::jthread> threads;
  if (total >= kWorthThreads)
    for (unsigned i = 1; i < std::min(kMaxThreads, std::thread::hardware_concurrency()); i++) {
      try {
        threads.emplace_back(work);
      } catch (const std::system_error&) {
        break;  // no more threads to be had: the ones there are do it
      }
    }
  work();
  threads.clear();  // joins
  for (size_t i = 0; i < all.size(); i++)
    if (found[i] != all[i].expected->name())
      all[i].expected->fail("checksum mismatch: the file says {}, the weights have {}", all[i].expected->text,
                            found[i]);
}

}  // namespace ingot
