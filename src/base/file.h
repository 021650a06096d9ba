// Files: read as a whole, and writes that are never seen half done.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// A regular file, open for reading. Io errors name it.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  size_t size() const { return static_cast<size_t>(state_.st_size); }  // when it was opened
  const struct stat& state() const { return state_; }
  // Fills the span, less only at the end of the file; how much it was.
  size_t read(std::span<std::byte>);
  // Has somebody written to it since it was opened?
  bool has_changed() const;

 private:
  std::string path_;
  int fd_ = -1;
  struct stat state_;
};

// The bytes of a regular file, in memory of their own: whoever changes or truncates the file later changes nothing
// here (docs/decisions/0017). At least 64 bytes past the end can be read: kernels load whole vectors.
class FileContent {
 public:
  // Io error naming the file when it is missing, unreadable, not a regular file, or changes while it is read.
  static std::shared_ptr<const FileContent> read(const std::string& path);
  ~FileContent();
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  FileContent() = default;
  std::string path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// kDisk: what commit() has put in place survives a power cut. kProcess: it may be lost then, which a cache can bear.
enum class Durable { kDisk, kProcess };

// A file being written beside its destination, under a random name. It takes the destination's place in commit();
// without commit nothing is left behind, and what a killed process left is removed by a later write to the same path.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, Durable = Durable::kDisk, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte>);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  int64_t size() const { return size_; }
  void commit();

 private:
  std::string path_, temporary_;
  Durable durable_;
  int fd_ = -1;
  int64_t size_ = 0;
};

void atomic_write(const std::string& path, std::span<const std::byte>);
void atomic_write(const std::string& path, std::string_view text);

// Names of what is in a folder, in no order; Io where it cannot be read. std::filesystem's iterators end the process
// where there is no memory for a name.
std::vector<std::string> names_in(const std::string& folder);

// Removes a file or a folder with all in it, as far as that can be done.
void remove_tree(const char* path) noexcept;

// Removes what killed processes left of writes to `path`, or, for a folder's name ending in "/", to anything in it.
void remove_leftovers(const std::string& path);

// Fills a new folder beside `folder` through `fill(temporary path)` and then puts it in place. An existing folder is
// replaced only if it holds nothing but the files named in `may_hold`: never delete what is not ours.
void atomic_folder(const std::string& folder, std::span<const std::string_view> may_hold,
                   const std::function<void(const std::string&)>& fill);

}  // namespace ingot
