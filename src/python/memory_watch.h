// Whether memory still holds what it held: every byte counts, however it was written.
//
// Large regions are watched by the kernel where it can (Linux 6.7 and later): their whole pages are write-protected
// asynchronously (userfaultfd), a write to one clears a bit of its page table entry and goes on, and one call
// (PAGEMAP_SCAN) tells whether any bit of a range is clear. Nobody waits for anybody, and no signal is caught.
//
//   region        |...head...|page|page|page|page|...tail...|
//   looked at by  | compared |  bits of the kernel | compared |
//
// What the kernel cannot watch is read in full: small regions are compared with a copy, large ones by a hash. That are
// also files mapped into memory and memory shared with other processes, whose writes leave no trace here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ingot::python {

class PageRange;

class MemoryWatch {
 public:
  // Remembers what the regions hold from now on. They have to stay allocated as long as same() is called.
  explicit MemoryWatch(const std::vector<std::span<const std::byte>>& regions);
  ~MemoryWatch();
  MemoryWatch(MemoryWatch&&) noexcept;
  MemoryWatch& operator=(MemoryWatch&&) noexcept;

  // False once a byte was written, or may have been; then a new watch has to be made.
  bool same() const;

  size_t tracked_bytes() const { return tracked_bytes_; }  // by the kernel
  size_t read_bytes() const { return read_bytes_; }        // by every call of same()

 private:
  struct Copied {
    std::span<const std::byte> region;
    std::vector<std::byte> copy;
  };
  struct Hashed {
    std::span<const std::byte> region;
    uint64_t hash;
  };
  struct Tracked {
    std::shared_ptr<PageRange> pages;
    uint64_t writes;  // of these pages when the watch was made
  };

  void add_read(std::span<const std::byte> region);

  std::vector<Copied> copied_;
  std::vector<Hashed> hashed_;
  std::vector<Tracked> tracked_;
  size_t tracked_bytes_ = 0, read_bytes_ = 0;
};

}  // namespace ingot::python
