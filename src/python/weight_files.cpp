#include "python/weight_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "python/page_writes.h"

namespace ingot::python {
namespace {

// A mapping takes a place in the process's list: small weights stay where they are.
constexpr size_t kLeastMoved = 256 << 10;

class FileWithoutName {
 public:
  explicit FileWithoutName(const std::string& folder)
      : fd_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0) {  // a file system without such files
      std::string path = folder + "/weights-XXXXXX";
      fd_ = mkostemp(path.data(), O_CLOEXEC);
      if (fd_ < 0) fail(ErrorKind::Io, "cannot make a file in {}: {}", folder, std::strerror(errno));
      unlink(path.c_str());
    }
    struct statfs about{};
    if (fstatfs(fd_, &about) == 0 && (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC)) {
      close(fd_);
      fail(ErrorKind::Io, "{} is in memory, too", folder);
    }
  }
  ~FileWithoutName() {
    if (!stays_) close(fd_);
  }
  FileWithoutName(const FileWithoutName&) = delete;
  FileWithoutName& operator=(const FileWithoutName&) = delete;

  // Where in the file the bytes are from now on.
  off_t add(std::span<const std::byte> bytes) {
    const off_t at = size_;
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), size_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(ErrorKind::Io, "cannot write weights to a file: {}", std::strerror(n < 0 ? errno : ENOSPC));
      size_ += n;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return at;
  }

  void map_at(const Pages& pages, off_t at) const {
    void* place = reinterpret_cast<void*>(pages.begin);  // NOLINT(performance-no-int-to-ptr)
    if (mmap(place, pages.end - pages.begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd_, at) == MAP_FAILED)
      fail(ErrorKind::Resource, "cannot map a file of weights: {}", std::strerror(errno));
  }

  int fd() const { return fd_; }
  void leave_open() { stays_ = true; }

 private:
  int fd_;
  bool stays_ = false;
  off_t size_ = 0;
};

// Open files by their names in /proc/self/maps. As long as one is open no other file gets its number.
struct Files {
  std::mutex mutex;
  std::map<std::string, int> open;
};

Files& files() {
  static Files* f = new Files;
  return *f;
}

// What stands in /proc/self/maps for mapped files: "fe:00 1234" of the one at this address, or of all with 0.
std::set<std::string> mapped_files(uintptr_t address) {
  std::set<std::string> out;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return out;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), maps)) {
    uintptr_t from = 0, to = 0;
    unsigned long inode = 0;
    std::array<char, 16> device{};
    if (std::sscanf(line.data(), "%lx-%lx %*4s %*x %15s %lu", &from, &to, device.data(), &inode) != 4) continue;
    if (inode != 0 && (address == 0 || (from <= address && address < to)))
      out.insert(std::string(device.data()) + " " + std::to_string(inode));
  }
  std::fclose(maps);
  return out;
}

// Lets the file be known as one of ours, which closes it later.
void adopt(FileWithoutName& file) {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* probe = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (probe == MAP_FAILED) fail(ErrorKind::Resource, "cannot map a file of weights: {}", std::strerror(errno));
  const std::set<std::string> name = mapped_files(reinterpret_cast<uintptr_t>(probe));
  munmap(probe, size);
  if (name.size() != 1) fail(ErrorKind::Io, "cannot read /proc/self/maps");
  Files& f = files();
  const std::lock_guard lock(f.mutex);
  f.open[*name.begin()] = file.fd();
  file.leave_open();
}

// Closes files that nothing is mapped from any more.
void close_unused() {
  Files& f = files();
  const std::lock_guard lock(f.mutex);
  if (f.open.empty()) return;
  const std::set<std::string> used = mapped_files(0);
  std::erase_if(f.open, [&](const auto& entry) {
    if (used.contains(entry.first)) return false;
    close(entry.second);
    return true;
  });
}

// Whole pages of large regions, by address, none twice.
std::vector<Pages> pages_of(const std::vector<std::span<const std::byte>>& regions) {
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<Pages> out;
  for (const auto region : regions) {
    const auto begin = reinterpret_cast<uintptr_t>(region.data()), end = begin + region.size();
    const Pages whole{(begin + size - 1) / size * size, end / size * size};
    if (whole.end > whole.begin && whole.end - whole.begin >= kLeastMoved) out.push_back(whole);
  }
  std::ranges::sort(out, {}, &Pages::begin);
  std::vector<Pages> merged;
  for (const Pages& p : out)
    if (!merged.empty() && p.begin < merged.back().end)
      merged.back().end = std::max(merged.back().end, p.end);
    else
      merged.push_back(p);
  return merged;
}

}  // namespace

std::set<std::string> weight_files() {
  Files& f = files();
  const std::lock_guard lock(f.mutex);
  std::set<std::string> out;
  for (const auto& [name, fd] : f.open) out.insert(name);
  return out;
}

MovedWeights move_to_file(const std::vector<std::span<const std::byte>>& regions, const std::string& folder,
                          bool watched) try {
  static std::mutex one_at_a_time;  // a file that is not mapped yet would be closed
  const std::lock_guard alone(one_at_a_time);
  close_unused();
  MovedWeights out;
  if (watched && !tracks_pages())
    return {0, "this system cannot tell which pages were written to, so all weights are read in every call"};
  const std::vector<Pages> in_memory = private_memory({}), own = private_memory(weight_files());
  std::vector<Pages> wanted;
  for (const Pages& p : pages_of(regions)) {
    if (!lies_in(own, p)) {
      out.problem = "some weights are in shared memory or in a file of somebody else's";
    } else if (lies_in(in_memory, p) || has_own_pages(p)) {
      wanted.push_back(p);
    } else {
      out.bytes += p.end - p.begin;
    }
  }
  if (wanted.empty()) return out;
  FileWithoutName file(folder);
  adopt(file);
  for (const Pages& p : wanted) {
    off_t at = 0;
    const bool done = replace_pages(
        p,
        [&] {
          // NOLINTNEXTLINE(performance-no-int-to-ptr)
          at = file.add({reinterpret_cast<const std::byte*>(p.begin), p.end - p.begin});
        },
        [&] { file.map_at(p, at); });
    if (done)
      out.bytes += p.end - p.begin;
    else
      out.problem = "some weights were written to";
  }
  return out;
} catch (const Error& e) {
  return {0, e.what()};
}

}  // namespace ingot::python
