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

#include "python/weight_files.h"

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

}  // namespace

std::vector<Pages> private_memory(const std::set<std::string>& own) {
  std::vector<Pages> out;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return out;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), maps)) {
    uintptr_t from = 0, to = 0;
    unsigned long inode = 0;
    std::array<char, 5> access{};
    std::array<char, 16> device{};
    if (std::sscanf(line.data(), "%lx-%lx %4s %*x %15s %lu", &from, &to, access.data(), device.data(), &inode) != 5)
      continue;
    if (access[1] != 'w' || access[3] != 'p') continue;
    if (inode != 0 && !own.contains(std::string(device.data()) + " " + std::to_string(inode))) continue;
    if (!out.empty() && out.back().end == from)
      out.back().end = to;
    else
      out.push_back({from, to});
  }
  std::fclose(maps);
  return out;
}

bool lies_in(const std::vector<Pages>& memory, const Pages& pages) {
  return std::ranges::any_of(memory, [&](const Pages& p) { return p.begin <= pages.begin && pages.end <= p.end; });
}

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
    if (!this->begin(*range)) return nullptr;
    ranges_.push_back(range.get());
    return collect(*range) ? range : nullptr;
  }

  uint64_t writes(PageRange& range) {
    const std::lock_guard lock(mutex_);
    const std::optional<bool> written = is_written(range);
    if (!written || (*written && !collect(range))) range.writes_++;
    return range.writes_;
  }

  bool replace(const Pages& pages, const std::function<void()>& copy, const std::function<void()>& put) {
    const PageRange range(*this, pages.begin, pages.end, /*tracked=*/false);
    const std::lock_guard lock(mutex_);
    if (!begin(range) || !collect(range)) return false;
    copy();
    const std::optional<bool> written = is_written(range);
    const bool done = written && !*written;
    if (done) {
      put();  // pages that are mapped anew are not protected
      // One that was written before it was protected is the file's no more.
      if (!begin(range) || !protect(range) || has_own_pages(pages)) count(pages.begin, pages.end);
    }
    if (!is_tracked(range)) end(range);
    return done;
  }

  void forget(const PageRange& range) {
    const std::lock_guard lock(mutex_);
    std::erase(ranges_, &range);
    if (!is_tracked(range)) end(range);
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

  bool is_tracked(const PageRange& range) const {
    return std::ranges::any_of(ranges_, [&](const PageRange* r) { return meet(*r, range.begin_, range.end_); });
  }

  bool begin(const PageRange& range) const {
    uffdio_register registration{};
    registration.range = {.start = range.begin_, .len = range.end_ - range.begin_};
    registration.mode = UFFDIO_REGISTER_MODE_WP;
    return ioctl(faults_, UFFDIO_REGISTER, &registration) == 0;
  }

  void end(const PageRange& range) const {
    uffdio_range pages{.start = range.begin_, .len = range.end_ - range.begin_};
    ioctl(faults_, UFFDIO_UNREGISTER, &pages);
  }

  void count(uintptr_t begin, uintptr_t end) const {
    for (PageRange* r : ranges_)
      if (meet(*r, begin, end)) r->writes_++;
  }

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
    return protect(range, [this](uintptr_t begin, uintptr_t end) { count(begin, end); });
  }

  bool protect(const PageRange& range, const std::function<void(uintptr_t, uintptr_t)>& found = nullptr) const {
    std::array<PageRegion, 64> regions{};
    uint64_t at = range.begin_;
    while (at < range.end_) {
      ScanArguments scan = arguments(at, range.end_, kProtectMatching | kOnlyAsync, regions);
      const int count = ioctl(pagemap_, scan_request(), &scan);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 || (count == 0 && scan.walk_end < range.end_)) return false;
      for (int i = 0; i < count && found; i++)
        found(regions[static_cast<size_t>(i)].start, regions[static_cast<size_t>(i)].end);
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
  if (tracked_ && PageTracker::is_current(tracker_)) tracker_.forget(*this);
}

uint64_t PageRange::writes() {
  // A forked process has the memory and not the kernel's tracking of it.
  return PageTracker::is_current(tracker_) ? tracker_.writes(*this) : UINT64_MAX;
}

std::vector<std::shared_ptr<PageRange>> track_pages(const std::vector<Pages>& wanted) {
  std::vector<std::shared_ptr<PageRange>> out(wanted.size());
  PageTracker* tracker = wanted.empty() ? nullptr : PageTracker::get();
  if (!tracker) return out;
  const std::vector<Pages> own = private_memory(weight_files());
  for (size_t i = 0; i < wanted.size(); i++)
    if (lies_in(own, wanted[i])) out[i] = tracker->track(wanted[i].begin, wanted[i].end);
  return out;
}

bool tracks_pages() { return PageTracker::get() != nullptr; }

bool replace_pages(const Pages& pages, const std::function<void()>& copy, const std::function<void()>& replace) {
  if (PageTracker* tracker = PageTracker::get()) return tracker->replace(pages, copy, replace);
  copy();
  replace();
  return true;
}

bool has_own_pages(const Pages& pages) {
  constexpr uint64_t kPresent = 1ULL << 63, kOfFile = 1ULL << 61;
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  bool found = file < 0;  // nobody knows
  std::array<uint64_t, 4096> entries{};
  for (uintptr_t page = pages.begin / size, end = pages.end / size; page < end && !found;) {
    const size_t wanted = std::min<size_t>(end - page, entries.size());
    const ssize_t got =
        pread(file, entries.data(), wanted * sizeof(uint64_t), static_cast<off_t>(page * sizeof(uint64_t)));
    if (got < static_cast<ssize_t>(sizeof(uint64_t))) {
      found = true;
      break;
    }
    const size_t count = static_cast<size_t>(got) / sizeof(uint64_t);
    found = std::any_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count),
                        [](uint64_t e) { return (e & kPresent) != 0 && (e & kOfFile) == 0; });
    page += count;
  }
  if (file >= 0) close(file);
  return found;
}

}  // namespace ingot::python
