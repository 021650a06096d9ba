#include "python/page_writes.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace ingot::python {
namespace {

// Of linux/userfaultfd.h and linux/fs.h as of Linux 6.7; the headers of a build machine may be older.
constexpr uint64_t kWriteProtectAsync = 1 << 15;          // UFFD_FEATURE_WP_ASYNC
constexpr uint64_t kWriteProtectAbsent = 1 << 13;         // UFFD_FEATURE_WP_UNPOPULATED
constexpr uint64_t kProtectMatching = 1, kOnlyAsync = 2;  // PM_SCAN_WP_MATCHING, PM_SCAN_CHECK_WPASYNC
constexpr uint64_t kWritten = 2;                          // PAGE_IS_WRITTEN

struct PageRegion {
  uint64_t start, end, categories;
};

struct ScanArguments {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

unsigned long scan_request() { return _IOWR('f', 16, ScanArguments); }

// Anonymous memory of this process alone, as ranges by address: writes of others, to a file or through another mapping,
// are not seen in its page table.
std::vector<Pages> private_memory() {
  std::vector<Pages> out;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return out;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), maps)) {
    uintptr_t from = 0, to = 0;
    unsigned long inode = 0;
    std::array<char, 5> access{};
    if (std::sscanf(line.data(), "%lx-%lx %4s %*x %*s %lu", &from, &to, access.data(), &inode) != 4) continue;
    if (access[3] != 'p' || inode != 0) continue;
    if (!out.empty() && out.back().end == from)
      out.back().end = to;
    else
      out.push_back({from, to});
  }
  std::fclose(maps);
  return out;
}

}  // namespace

// The kernel keeps one bit for each page, and several ranges may want to know: whoever finds and clears bits counts for
// all ranges that have the page.
class PageTracker {
 public:
  // The tracker of this process; nullptr where the kernel has none.
  static PageTracker* get() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { current().store(nullptr); }); });
    PageTracker* tracker = current().load(std::memory_order_acquire);
    if (!tracker) {
      auto* made = new PageTracker;  // never deleted: ranges of before a fork refer to theirs
      if (current().compare_exchange_strong(tracker, made))
        tracker = made;
      else
        delete made;
    }
    return tracker->faults_ >= 0 && tracker->pagemap_ >= 0 ? tracker : nullptr;
  }

  static bool is_current(const PageTracker& tracker) { return current().load(std::memory_order_acquire) == &tracker; }

  std::shared_ptr<PageRange> track(uintptr_t begin, uintptr_t end) {
    auto range = std::make_shared<PageRange>(*this, begin, end);  // before the lock, which its destructor takes
    const std::lock_guard lock(mutex_);
    uffdio_register registration{};
    registration.range = {.start = begin, .len = end - begin};
    registration.mode = UFFDIO_REGISTER_MODE_WP;
    if (ioctl(faults_, UFFDIO_REGISTER, &registration) != 0) return nullptr;
    ranges_.push_back(range.get());
    return collect(*range) ? range : nullptr;
  }

  uint64_t writes(PageRange& range) {
    const std::lock_guard lock(mutex_);
    const std::optional<bool> written = is_written(range);
    if (!written || (*written && !collect(range))) range.writes_++;
    return range.writes_;
  }

  void forget(const PageRange& range) {
    const std::lock_guard lock(mutex_);
    std::erase(ranges_, &range);
    if (std::ranges::any_of(ranges_, [&](const PageRange* r) { return meet(*r, range.begin_, range.end_); })) return;
    uffdio_range pages{.start = range.begin_, .len = range.end_ - range.begin_};
    ioctl(faults_, UFFDIO_UNREGISTER, &pages);
  }

 private:
  PageTracker() {
    faults_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    pagemap_ = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uffdio_api api{.api = UFFD_API, .features = kWriteProtectAsync | kWriteProtectAbsent, .ioctls = 0};
    if (faults_ >= 0 && ioctl(faults_, UFFDIO_API, &api) != 0) {
      close(faults_);
      faults_ = -1;
    }
  }
  ~PageTracker() {
    for (int file : {faults_, pagemap_})
      if (file >= 0) close(file);
  }

  static std::atomic<PageTracker*>& current() {
    static std::atomic<PageTracker*> tracker;
    return tracker;
  }

  static bool meet(const PageRange& r, uintptr_t begin, uintptr_t end) { return r.begin_ < end && begin < r.end_; }

  // Nothing if the kernel does not know.
  std::optional<bool> is_written(const PageRange& range) const {
    PageRegion found{};
    ScanArguments scan = arguments(range.begin_, range.end_, kOnlyAsync, {&found, 1});
    scan.max_pages = 1;
    const int count = ioctl(pagemap_, scan_request(), &scan);
    return count < 0 ? std::nullopt : std::optional(count > 0);
  }

  // Finds written pages and protects them again, and counts that for all ranges. False if it cannot be done.
  bool collect(const PageRange& range) {
    std::array<PageRegion, 64> found{};
    uint64_t at = range.begin_;
    while (at < range.end_) {
      ScanArguments scan = arguments(at, range.end_, kProtectMatching | kOnlyAsync, found);
      const int count = ioctl(pagemap_, scan_request(), &scan);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 || (count == 0 && scan.walk_end < range.end_)) return false;
      for (int i = 0; i < count; i++)
        for (PageRange* r : ranges_)
          if (meet(*r, found[static_cast<size_t>(i)].start, found[static_cast<size_t>(i)].end)) r->writes_++;
      at = scan.walk_end;
    }
    return true;
  }

  static ScanArguments arguments(uint64_t begin, uint64_t end, uint64_t flags, std::span<PageRegion> out) {
    ScanArguments scan{};
    scan.size = sizeof(scan);
    scan.flags = flags;
    scan.start = begin;
    scan.end = end;
    scan.vec = reinterpret_cast<uint64_t>(out.data());
    scan.vec_len = out.size();
    scan.category_mask = scan.return_mask = kWritten;
    return scan;
  }

  std::mutex mutex_;
  std::vector<PageRange*> ranges_;
  int faults_ = -1, pagemap_ = -1;
};

PageRange::~PageRange() {
  if (PageTracker::is_current(tracker_)) tracker_.forget(*this);
}

uint64_t PageRange::writes() {
  // A forked process has the memory and not the kernel's tracking of it.
  return PageTracker::is_current(tracker_) ? tracker_.writes(*this) : UINT64_MAX;
}

std::vector<std::shared_ptr<PageRange>> track_pages(const std::vector<Pages>& wanted) {
  std::vector<std::shared_ptr<PageRange>> out(wanted.size());
  PageTracker* tracker = wanted.empty() ? nullptr : PageTracker::get();
  if (!tracker) return out;
  const std::vector<Pages> own = private_memory();
  for (size_t i = 0; i < wanted.size(); i++) {
    const Pages& w = wanted[i];
    if (std::ranges::any_of(own, [&](const Pages& p) { return p.begin <= w.begin && w.end <= p.end; }))
      out[i] = tracker->track(w.begin, w.end);
  }
  return out;
}

}  // namespace ingot::python
