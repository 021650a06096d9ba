// Counts writes to pages of memory, with the kernel's help (memory_watch.h says how).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ingot::python {

class PageTracker;

// Pages from begin to end, whole ones.
class PageRange {
 public:
  PageRange(PageTracker& tracker, uintptr_t begin, uintptr_t end) : tracker_(tracker), begin_(begin), end_(end) {}
  ~PageRange();
  PageRange(const PageRange&) = delete;
  PageRange& operator=(const PageRange&) = delete;

  // How often writes were found since somebody began to track these pages; looks for new ones. Never the same number
  // again in another process that was forked off, where the kernel tracks nothing.
  uint64_t writes();

 private:
  friend class PageTracker;
  PageTracker& tracker_;
  uintptr_t begin_, end_;
  uint64_t writes_ = 0;
};

struct Pages {
  uintptr_t begin = 0, end = 0;
};

// Tracks each of these; nullptr where the kernel cannot, or where the memory is not this process's alone.
std::vector<std::shared_ptr<PageRange>> track_pages(const std::vector<Pages>& wanted);

}  // namespace ingot::python
