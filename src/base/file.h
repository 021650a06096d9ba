// Files: read-only mappings, and writes that are never seen half done.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

// A regular file mapped read-only, for as long as somebody holds it. At least 64 bytes past the end can be read (they
// are zero): kernels load whole vectors.
class MappedFile {
 public:
  // Io error naming the file when it is missing, unreadable, or not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0, mapped_ = 0;
};

// A file being written beside its destination. It takes the destination's place in commit(); without commit nothing
// is left behind.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte>);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  int64_t size() const { return size_; }
  const std::string& temporary() const { return temporary_; }  // for writers that want a path
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  int64_t size_ = 0;
};

void atomic_write(const std::string& path, std::span<const std::byte>);
void atomic_write(const std::string& path, std::string_view text);

// Fills a new folder beside `folder` through `fill(temporary path)` and then puts it in place. An existing folder is
// replaced only if it holds nothing but the files named in `may_hold`: never delete what is not ours.
void atomic_folder(const std::string& folder, std::span<const std::string_view> may_hold,
                   const std::function<void(const std::string&)>& fill);

}  // namespace ingot
