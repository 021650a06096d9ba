#include "compiler/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr size_t kChecksumDigits = 16;
constexpr int64_t kDefaultLimit = int64_t{4} << 30;
constexpr int kLockFiles = 64;  // shared by all keys: a file of its own for each could never be removed safely
constexpr const char* kLockFolder = "locks";

std::string env(const char* name) { return std::getenv(name) ? std::getenv(name) : ""; }

std::string choose_folder() {
  if (auto d = env("INGOT_CACHE_DIR"); !d.empty()) return d;
  // A relative path would name another folder in every working directory; XDG has such a value ignored.
  if (auto d = env("XDG_CACHE_HOME"); d.starts_with('/')) return d + "/ingot";
  if (auto d = env("HOME"); d.starts_with('/')) return d + "/.cache/ingot";
  return "";
}

// "500M", "4G", or bytes.
int64_t choose_limit() {
  const std::string text = env("INGOT_CACHE_SIZE");
  if (text.empty()) return kDefaultLimit;
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const int shift = unit.empty()                 ? 0
                    : unit == "K" || unit == "k" ? 10
                    : unit == "M" || unit == "m" ? 20
                    : unit == "G" || unit == "g" ? 30
                                                 : -1;
  if (end == text.c_str() || shift < 0 || !(number >= 0) || number * static_cast<double>(int64_t{1} << shift) > 9e18)
    throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_CACHE_SIZE={}: not a size", text),
                "bytes, or for instance 500M or 4G");
  return static_cast<int64_t>(number * static_cast<double>(int64_t{1} << shift));
}

std::string checksum(std::span<const std::byte> bytes) { return hash64_hex(bytes); }

bool is_entry(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".o" || extension == ".so";
}

void mark_used(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

std::atomic<int64_t> compiled{0};

}  // namespace

int64_t kernels_compiled() { return compiled; }
void count_compiled_kernel() { compiled++; }

Cache::Lock::Lock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  // Where the file system knows no locks, two processes may do the same work; the result is right all the same.
  while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

Cache::Lock::Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Cache::Lock::~Lock() {
  if (fd_ >= 0) close(fd_);
}

namespace {

// What is in the cache is run as code, so nobody else may be able to put it there.
bool only_mine(const struct stat& about) {
  return about.st_uid == geteuid() && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Why the folder cannot be used; "" when it can. It is made when it is missing, for this user alone.
std::string why_not(const std::string& folder) {
  std::error_code error;
  const fs::path parent = fs::path(folder).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  mkdir(folder.c_str(), 0700);
  mkdir((folder + "/" + kLockFolder).c_str(), 0700);
  struct stat about{}, locks{};
  if (stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || access(folder.c_str(), W_OK | X_OK) != 0 ||
      stat((folder + "/" + kLockFolder).c_str(), &locks) != 0 || !S_ISDIR(locks.st_mode))
    return "cannot be written";
  if (about.st_uid != geteuid()) return "belongs to another user";
  return only_mine(about) && only_mine(locks) ? "" : "can be written by other users";
}

}  // namespace

Cache::Cache(const std::string& folder) : folder_(folder.empty() ? choose_folder() : folder), limit_(choose_limit()) {
  if (env("INGOT_CACHE") == "off" || env("INGOT_CACHE") == "0") folder_.clear();
  if (folder_.empty()) return;
  const std::string why = why_not(folder_);
  if (why.empty()) return;
  if (!folder.empty())
    throw Error(ErrorKind::Io, fmt::format("the cache folder {} {}", folder, why),
                "compiled code is kept there: it has to be a folder of your own that others cannot write to");
  folder_.clear();
}

std::optional<std::string> Cache::read(const std::string& key) const {
  if (!enabled()) return std::nullopt;
  std::string all;
  try {
    InputFile file(path(key));
    if (!only_mine(file.state())) fail(ErrorKind::Io, "{}: can be written by other users", path(key));
    all.resize(file.size());
    all.resize(file.read(std::as_writable_bytes(std::span(all))));
  } catch (const Error&) {
    return std::nullopt;
  }
  const size_t size = all.size() < kChecksumDigits ? 0 : all.size() - kChecksumDigits;
  if (size == 0 || all.substr(size) != checksum(std::as_bytes(std::span(all.data(), size)))) {
    remove(key);
    return std::nullopt;
  }
  all.resize(size);
  mark_used(path(key));
  return all;
}

bool Cache::whole(const std::string& key) const {
  try {
    InputFile file(path(key));
    if (!only_mine(file.state()) || file.size() <= kChecksumDigits) return false;
    HashStream hash;
    std::vector<std::byte> piece(size_t{1} << 20);
    for (size_t left = file.size() - kChecksumDigits; left > 0;) {
      const size_t got = file.read(std::span(piece).first(std::min(left, piece.size())));
      if (got == 0) return false;
      hash.add(std::span(piece).first(got));
      left -= got;
    }
    std::string digits(kChecksumDigits, '\0');
    file.read(std::as_writable_bytes(std::span(digits)));
    return digits == hash.hex();
  } catch (const Error&) {
    return false;
  }
}

std::optional<std::string> Cache::find(const std::string& key) const {
  std::error_code error;
  if (!enabled() || !fs::exists(path(key), error)) return std::nullopt;
  if (!whole(key)) {
    remove(key);
    return std::nullopt;
  }
  mark_used(path(key));
  return path(key);
}

void Cache::write(const std::string& key, const std::string& bytes) const {
  if (!enabled()) return;
  try {
    AtomicFile file(path(key), Durable::kProcess, 0600);
    file.write(bytes);
    file.write(checksum(std::as_bytes(std::span(bytes))));
    file.commit();
  } catch (const Error&) {
    return;  // the next process compiles again
  }
  made_room_for(static_cast<int64_t>(bytes.size()));
}

std::string Cache::add_file(const std::string& key, const std::string& source) const {
  if (!enabled()) fail(ErrorKind::Io, "there is no cache folder to keep {} in", source);
  const auto content = FileContent::read(source);
  AtomicFile file(path(key), Durable::kProcess, 0600);
  file.write(content->bytes());
  file.write(checksum(content->bytes()));
  file.commit();
  made_room_for(static_cast<int64_t>(content->bytes().size()));
  return path(key);
}

Cache::Lock Cache::lock(const std::string& key) const {
  if (!enabled()) return {};
  const uint64_t which = hash64(std::as_bytes(std::span(key))) % kLockFiles;
  return Lock(fmt::format("{}/{}/{:02}", folder_, kLockFolder, which));
}

std::vector<Cache::Entry> Cache::entries() const {
  std::vector<Entry> out;
  if (!enabled()) return out;
  std::vector<std::string> names;
  try {
    names = names_in(folder_);
  } catch (const Error&) {  // there is none yet, or none that can be read
  }
  for (const std::string& name : names) {
    struct stat about{};
    const fs::path file = fs::path(folder_) / name;
    if (!is_entry(file) || stat(file.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    out.push_back({name, about.st_size, about.st_mtim.tv_sec * kSecond + about.st_mtim.tv_nsec});
  }
  std::sort(out.begin(), out.end(),
            [](const Entry& a, const Entry& b) { return a.used != b.used ? a.used > b.used : a.key < b.key; });
  return out;
}

bool Cache::remove(const std::string& key) const {
  std::error_code error;
  return fs::remove(path(key), error);
}

// Looks at the folder only now and then: it may hold thousands of kernels.
void Cache::made_room_for(int64_t bytes) const {
  static std::atomic<int64_t> since{-1};
  if (since >= 0 && (since += bytes) < limit_ / 16) return;
  since = 0;
  const Lock lock(fmt::format("{}/{}/limit", folder_, kLockFolder));
  remove_leftovers(folder_ + "/");
  int64_t total = 0;
  for (const Entry& e : entries())
    if ((total += e.bytes) > limit_) remove(e.key);
}

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "ingot-XXXXXX").string();
  if (error || !mkdtemp(pattern.data()))
    fail(ErrorKind::Io, "cannot make a temporary folder: {}", std::strerror(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() { remove_tree(path_.c_str()); }

}  // namespace ingot
