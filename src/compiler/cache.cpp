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
#include <fstream>
#include <sstream>
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
  if (auto d = env("XDG_CACHE_HOME"); !d.empty()) return d + "/ingot";
  if (auto d = env("HOME"); !d.empty()) return d + "/.cache/ingot";
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

Cache::Lock::Lock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  // Where the file system knows no locks, two processes may do the same work; the result is right all the same.
  while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

Cache::Lock::Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Cache::Lock::~Lock() {
  if (fd_ >= 0) close(fd_);
}

Cache::Cache(const std::string& folder) : folder_(folder.empty() ? choose_folder() : folder), limit_(choose_limit()) {
  if (env("INGOT_CACHE") == "off" || env("INGOT_CACHE") == "0") folder_.clear();
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(fs::path(folder_) / kLockFolder, error);
  if (error || access(folder_.c_str(), W_OK) != 0) {
    if (!folder.empty()) fail(ErrorKind::Io, "the cache folder {} cannot be written", folder);
    folder_.clear();
  }
}

std::optional<std::string> Cache::read(const std::string& key) const {
  if (!enabled()) return std::nullopt;
  std::ifstream in(path(key), std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  std::string all = text.str();
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
    const auto file = MappedFile::open(path(key));
    const std::string_view text = file->text();
    if (text.size() <= kChecksumDigits) return false;
    const size_t size = text.size() - kChecksumDigits;
    return text.substr(size) == checksum(file->bytes().first(size));
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
    AtomicFile file(path(key));
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
  const auto content = MappedFile::open(source);
  AtomicFile file(path(key));
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
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    struct stat about{};
    if (!is_entry(file.path()) || stat(file.path().c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    out.push_back(
        {file.path().filename().string(), about.st_size, about.st_mtim.tv_sec * kSecond + about.st_mtim.tv_nsec});
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

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ingot
