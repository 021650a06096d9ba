#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace fs = std::filesystem;

namespace ingot {
namespace {

[[noreturn]] void io_error(const std::string& doing, const std::string& path, int code) {
  fail(ErrorKind::Io, "{}: {}: {}", path, doing, std::strerror(code));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// A name beside `path` that no other process or thread uses.
std::string beside(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  fs::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // "folder/"
  return (p.parent_path() / fmt::format(".{}.{}.{}.tmp", p.filename().string(), ::getpid(), counter++)).string();
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a FIFO given as a model must be refused, not waited for.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) io_error("cannot be opened", path, errno);
  struct stat st;
  if (::fstat(file.fd, &st) != 0) io_error("cannot be examined", path, errno);
  if (S_ISDIR(st.st_mode)) fail(ErrorKind::Io, "{}: is a directory, expected a file", path);
  if (!S_ISREG(st.st_mode)) fail(ErrorKind::Io, "{}: is not a regular file", path);

  std::shared_ptr<MappedFile> m(new MappedFile);
  m->path_ = path;
  m->size_ = static_cast<size_t>(st.st_size);
  // Reserve one page more than the file takes, then map the file over the front: the bytes after the end are readable.
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  m->mapped_ = (m->size_ + page - 1) / page * page + page;
  void* memory = ::mmap(nullptr, m->mapped_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) io_error("cannot be mapped", path, errno);
  m->data_ = static_cast<const std::byte*>(memory);
  if (m->size_ > 0 && ::mmap(memory, m->size_, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd, 0) == MAP_FAILED)
    io_error("cannot be mapped", path, errno);
  return m;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), mapped_);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(beside(path_)) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) io_error("cannot be written", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) io_error("cannot be written", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    size_ += n;
  }
}

void AtomicFile::commit() {
  // close() is where a full disk or a quota may show on network file systems.
  int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) io_error("cannot be written", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) io_error("cannot be put in place", path_, errno);
  temporary_.clear();
}

void atomic_write(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile f(path);
  f.write(bytes);
  f.commit();
}

void atomic_write(const std::string& path, std::string_view text) {
  atomic_write(path, std::as_bytes(std::span(text)));
}

namespace {

// Removed when it goes out of scope, unless its path was cleared.
struct TemporaryFolder {
  std::string path;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

void require_replaceable(const std::string& folder, std::span<const std::string_view> may_hold) {
  if (!fs::is_directory(folder))
    throw Error(ErrorKind::Io, folder + ": exists and is not a folder", "give a path that does not exist yet");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (std::find(may_hold.begin(), may_hold.end(), name) == may_hold.end())
      throw Error(ErrorKind::Io, fmt::format("{}: is not replaced, because it also holds '{}'", folder, name),
                  "give a path that does not exist yet");
  }
}

}  // namespace

void atomic_folder(const std::string& folder, std::span<const std::string_view> may_hold,
                   const std::function<void(const std::string&)>& fill) try {
  const fs::path given(folder);
  const std::string target = (given.has_filename() ? given : given.parent_path()).string();
  if (fs::exists(target)) require_replaceable(target, may_hold);
  TemporaryFolder fresh{beside(target)};
  if (!fs::create_directory(fresh.path)) fail(ErrorKind::Io, "{}: cannot be written", target);
  fill(fresh.path);
  TemporaryFolder old;
  if (fs::exists(target)) {
    // Directories cannot be exchanged by plain rename: step the old one aside, and back if the new one cannot move in.
    const std::string aside = beside(target);
    fs::rename(target, aside);
    std::error_code failed;
    fs::rename(fresh.path, target, failed);
    if (failed) {
      fs::rename(aside, target);
      fail(ErrorKind::Io, "{}: cannot be put in place: {}", target, failed.message());
    }
    old.path = aside;
  } else {
    fs::rename(fresh.path, target);
  }
  fresh.path.clear();
} catch (const fs::filesystem_error& e) {
  fail(ErrorKind::Io, "{}: cannot be written: {}", folder, e.code().message());
}

}  // namespace ingot
