#include "python/memory_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "python/page_writes.h"

namespace ingot::python {
namespace {

// Reading this many bytes takes about as long as asking the kernel.
constexpr size_t kLeastTracked = 32 << 10;

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// The whole pages inside a region; none in one that is quicker to read.
Pages pages_of(std::span<const std::byte> region) {
  const auto begin = reinterpret_cast<uintptr_t>(region.data()), end = begin + region.size();
  const Pages whole{(begin + page_size() - 1) / page_size() * page_size(), end / page_size() * page_size()};
  return whole.end > whole.begin && whole.end - whole.begin >= kLeastTracked ? whole : Pages{};
}

}  // namespace

MemoryWatch::MemoryWatch(const std::vector<std::span<const std::byte>>& regions) {
  std::vector<std::span<const std::byte>> large;
  std::vector<Pages> wanted;
  for (const auto region : regions) {
    const Pages pages = pages_of(region);
    if (pages.end == 0) {
      add_read(region);
      continue;
    }
    large.push_back(region);
    wanted.push_back(pages);
  }
  const auto ranges = track_pages(wanted);
  for (size_t i = 0; i < large.size(); i++) {
    if (!ranges[i]) {
      add_read(large[i]);
      continue;
    }
    const auto begin = reinterpret_cast<uintptr_t>(large[i].data());
    add_read(large[i].first(wanted[i].begin - begin));
    add_read(large[i].subspan(wanted[i].end - begin));
    tracked_bytes_ += wanted[i].end - wanted[i].begin;
    tracked_.push_back({ranges[i], 0});
  }
  // Once all are there: whoever begins to track one may find writes to another.
  for (Tracked& t : tracked_) t.writes = t.pages->writes();
}

MemoryWatch::~MemoryWatch() = default;
MemoryWatch::MemoryWatch(MemoryWatch&&) noexcept = default;
MemoryWatch& MemoryWatch::operator=(MemoryWatch&&) noexcept = default;

void MemoryWatch::add_read(std::span<const std::byte> region) {
  if (region.empty()) return;
  read_bytes_ += region.size();
  if (region.size() < kLeastTracked)
    copied_.push_back({region, {region.begin(), region.end()}});
  else
    hashed_.push_back({region, hash64(region)});
}

bool MemoryWatch::same() const {
  return std::ranges::all_of(
             copied_,
             [](const Copied& c) { return std::memcmp(c.region.data(), c.copy.data(), c.copy.size()) == 0; }) &&
         std::ranges::all_of(tracked_, [](const Tracked& t) { return t.pages->writes() == t.writes; }) &&
         std::ranges::all_of(hashed_, [](const Hashed& h) { return hash64(h.region) == h.hash; });
}

}  // namespace ingot::python
