#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

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

int open_folder(const char* name, int in = AT_FDCWD) noexcept {
  return ::openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Calls visit(name) for what is in an open folder. Nothing here allocates: memory may have just run out. False where
// it cannot be read.
bool each_name(int folder, auto visit) {
  alignas(dirent64) char entries[4096];
  long size = 0;
  while ((size = ::syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") visit(entry->d_name);
    }
  return size == 0;
}

// Removes what is in an open folder.
void remove_in(int folder) noexcept {
  each_name(folder, [folder](const char* name) {
    if (::unlinkat(folder, name, 0) == 0 || errno != EISDIR) return;
    const Descriptor inside{open_folder(name, folder)};
    if (inside.fd >= 0) remove_in(inside.fd);
    ::unlinkat(folder, name, AT_REMOVEDIR);
  });
}

constexpr const char* kEnding = ".tmp";
constexpr auto kStale = std::chrono::hours(1);  // a write that has stood still so long is over

fs::path without_slash(const std::string& path) {
  const fs::path p(path);
  return p.has_filename() ? p : p.parent_path();  // "folder/"
}

// A name beside `path` that nobody can foresee: process numbers repeat, in containers above all.
std::string beside(const std::string& path) {
  const fs::path p = without_slash(path);
  uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) io_error("has no random name", path, errno);
  return (p.parent_path() / fmt::format(".{}.{:016x}{}", p.filename().string(), random, kEnding)).string();
}

bool is_temporary(const std::string& name, const std::string& of) {
  constexpr size_t kDigits = 16;
  const std::string start = "." + of + (of.empty() ? "" : ".");
  if (!name.starts_with(start) || !name.ends_with(kEnding)) return false;
  const size_t end = name.size() - std::strlen(kEnding), digits = end > kDigits ? end - kDigits : 0;
  return digits > 0 && name[digits - 1] == '.' && digits >= start.size() &&
         name.find_first_not_of("0123456789abcdef", digits) >= end;
}

void sync_folder_of(const std::string& path) {
  const fs::path parent = without_slash(path).parent_path();
  const Descriptor folder{::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd >= 0) ::fsync(folder.fd);  // file systems that cannot do it say so
}

bool same_state(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a FIFO given as a model must be refused, not waited for.
  Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) io_error("cannot be opened", path_, errno);
  if (::fstat(file.fd, &state_) != 0) io_error("cannot be examined", path_, errno);
  if (S_ISDIR(state_.st_mode)) fail(ErrorKind::Io, "{}: is a directory, expected a file", path_);
  if (!S_ISREG(state_.st_mode)) fail(ErrorKind::Io, "{}: is not a regular file", path_);
  fd_ = std::exchange(file.fd, -1);
}

InputFile::~InputFile() { ::close(fd_); }

size_t InputFile::read(std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = ::read(fd_, to.data() + done, std::min<size_t>(to.size() - done, 1 << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) io_error("cannot be read", path_, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

bool InputFile::has_changed() const {
  struct stat now;
  return ::fstat(fd_, &now) != 0 || !same_state(state_, now);
}

std::shared_ptr<const FileContent> FileContent::read(const std::string& path) {
  InputFile file(path);
  std::shared_ptr<FileContent> m(new FileContent);
  m->path_ = path;
  m->size_ = file.size();
  m->data_ = static_cast<std::byte*>(aligned_memory(m->size_));
  if (!m->data_) fail(ErrorKind::Resource, "{}: no memory for its {} bytes", path, m->size_);
  if (file.read({m->data_, m->size_}) != m->size_ || file.has_changed())
    throw Error(ErrorKind::Io, fmt::format("{}: changed while it was read", path), "try again when it is complete");
  return m;
}

FileContent::~FileContent() { std::free(data_); }

AtomicFile::AtomicFile(std::string path, Durable durable, unsigned mode)
    : path_(std::move(path)), temporary_(beside(path_)), durable_(durable) {
  if (durable_ == Durable::kDisk) remove_leftovers(path_);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
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
  // Without it a power cut could leave the new name with nothing behind it.
  if (durable_ == Durable::kDisk && ::fsync(fd_) != 0 && errno != EINVAL) io_error("cannot be written", path_, errno);
  // close() is where a full disk or a quota may show on network file systems.
  int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) io_error("cannot be written", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) io_error("cannot be put in place", path_, errno);
  temporary_.clear();
  if (durable_ == Durable::kDisk) sync_folder_of(path_);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  const Descriptor open{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (open.fd < 0 || !each_name(open.fd, [&](const char* name) { out.emplace_back(name); }))
    io_error("cannot be read", folder, errno);
  return out;
}

void remove_tree(const char* path) noexcept {
  const Descriptor folder{open_folder(path)};
  if (folder.fd >= 0) remove_in(folder.fd);
  if (::rmdir(path) != 0) ::unlink(path);
}

void remove_leftovers(const std::string& path) {
  const fs::path p = without_slash(path);
  const bool all = path.ends_with('/');
  const fs::path folder = all ? p : p.parent_path();
  const std::string of = all ? "" : p.filename().string();
  const Descriptor open{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (open.fd < 0) return;
  each_name(open.fd, [&](const char* name) {
    if (!is_temporary(name, of)) return;
    std::error_code error;
    const fs::path found = folder / name;
    const auto changed = fs::last_write_time(found, error);
    if (!error && changed + kStale < fs::file_time_type::clock::now()) remove_tree(found.c_str());
  });
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

// Removed when it goes out of scope, unless its path was cleared. It is kept open: later there may be no descriptor.
struct TemporaryFolder {
  std::string path;
  Descriptor folder{-1};
  ~TemporaryFolder() {
    if (path.empty()) return;
    if (folder.fd >= 0) remove_in(folder.fd);
    if (::rmdir(path.c_str()) != 0) remove_tree(path.c_str());
  }
};

void require_replaceable(const std::string& folder, std::span<const std::string_view> may_hold) {
  if (!fs::is_directory(folder))
    throw Error(ErrorKind::Io, folder + ": exists and is not a folder", "give a path that does not exist yet");
  for (const std::string& name : names_in(folder))
    if (std::find(may_hold.begin(), may_hold.end(), name) == may_hold.end())
      throw Error(ErrorKind::Io, fmt::format("{}: is not replaced, because it also holds '{}'", folder, name),
                  "give a path that does not exist yet");
}

}  // namespace

void atomic_folder(const std::string& folder, std::span<const std::string_view> may_hold,
                   const std::function<void(const std::string&)>& fill) try {
  const std::string target = without_slash(folder).string();
  if (fs::exists(target)) require_replaceable(target, may_hold);
  remove_leftovers(target);
  TemporaryFolder fresh{beside(target)}, old;
  if (!fs::create_directory(fresh.path)) fail(ErrorKind::Io, "{}: cannot be written", target);
  fresh.folder.fd = open_folder(fresh.path.c_str());
  if (fresh.folder.fd < 0) io_error("cannot be written", target, errno);
  const bool exists = fs::exists(target);
  if (exists) old.folder.fd = open_folder(target.c_str());
  fill(fresh.path);
  if (!exists) {
    fs::rename(fresh.path, target);
    fresh.path.clear();
  } else if (::renameat2(AT_FDCWD, fresh.path.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    std::swap(fresh.folder.fd, old.folder.fd);  // the old folder has the name of the fresh one now
  } else {
    // A file system that cannot exchange two names: step the old folder aside, and back if the new one cannot move in.
    std::string aside = beside(target);
    fs::rename(target, aside);
    std::error_code failed;
    fs::rename(fresh.path, target, failed);
    if (failed) {
      fs::rename(aside, target);
      fail(ErrorKind::Io, "{}: cannot be put in place: {}", target, failed.message());
    }
    fresh.path.clear();
    old.path = std::move(aside);
  }
  sync_folder_of(target);
} catch (const fs::filesystem_error& e) {
  fail(ErrorKind::Io, "{}: cannot be written: {}", folder, e.code().message());
}

}  // namespace ingot
