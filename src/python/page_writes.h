// Counts writes to pages of memory, with the kernel's help (memory_watch.h says how).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace ingot::python {

class PageTracker;

// Pages from begin to end, whole ones.
class PageRange {
 public:
  PageRange(PageTracker& tracker, uintptr_t begin, uintptr_t end, bool tracked = true)
      : tracker_(tracker), begin_(begin), end_(end), tracked_(tracked) {}
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
  bool tracked_;
  uint64_t writes_ = 0;
};

struct Pages {
  uintptr_t begin = 0, end = 0;
};

// Memory of this process alone that it may write to, by address: neither shared nor a file's, unless the file is `own`,
// as /proc/self/maps has it ("fe:00 1234").
std::vector<Pages> private_memory(const std::set<std::string>& own);
bool lies_in(const std::vector<Pages>& memory, const Pages&);

// Has the work done, which maps something else with the same contents in place of the pages, and goes on tracking them
// for whoever does. `copy` is called first; if a write is found after it, `replace` is not, and the result is false.
// Without tracking (tracks_pages() is false), writes are not looked for.
bool replace_pages(const Pages&, const std::function<void()>& copy, const std::function<void()>& replace);
// Whether the kernel can track.
bool tracks_pages();
// Whether pages of a file's private mapping were written to and so are the file's no more. Those swapped out look like
// protected ones and do not count.
bool has_own_pages(const Pages&);

// Tracks each of these; nullptr where the kernel cannot, or where the memory is not this process's alone.
std::vector<std::shared_ptr<PageRange>> track_pages(const std::vector<Pages>& wanted);

}  // namespace ingot::python
