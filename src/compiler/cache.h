// The disk cache: compiled kernels, and libraries made for PyTorch graphs, under a key that covers all they depend on.
// Entries are written beside and renamed, so that a reader never sees half of one, and end with a checksum of what
// stands before it; a damaged one is removed and made again. The entries used longest ago go when the folder grows over
// its limit. $INGOT_CACHE_DIR, else $XDG_CACHE_HOME/ingot, else ~/.cache/ingot; INGOT_CACHE=off, or a folder that
// cannot be written, belongs to another user or can be written by others, means no cache; INGOT_CACHE_SIZE is the limit
// in bytes, or as 500M, 4G. Entries that others could have written are not read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

class Cache {
 public:
  static constexpr int64_t kSecond = 1'000'000'000;

  struct Entry {
    std::string key;
    int64_t bytes = 0;
    int64_t used = 0;  // nanoseconds since 1970
  };

  // Held while one process makes an entry, so that others wait for it instead of making it too. Released when it goes
  // out of scope, and by the system when the process dies.
  class Lock {
   public:
    Lock() = default;
    explicit Lock(const std::string& path);
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int fd_ = -1;
  };

  explicit Cache(const std::string& folder = "");  // "": the folder that the environment names
  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  // The path an entry has, whether or not it is there.
  std::string path(const std::string& key) const { return folder_ + "/" + key; }
  std::optional<std::string> read(const std::string& key) const;
  // The path of an entry that is there and whole, now counted as used.
  std::optional<std::string> find(const std::string& key) const;
  void write(const std::string& key, const std::string& bytes) const;  // failures are ignored: it is only a cache
  // The file becomes an entry: copied, with its checksum. Its errors are thrown.
  std::string add_file(const std::string& key, const std::string& file) const;
  Lock lock(const std::string& key) const;

  std::vector<Entry> entries() const;  // used last first
  bool whole(const std::string& key) const;
  bool remove(const std::string& key) const;
  int64_t limit() const { return limit_; }

 private:
  void made_room_for(int64_t bytes) const;

  std::string folder_;
  int64_t limit_ = 0;
};

// Kernels that this process had to compile because no cache held them.
int64_t kernels_compiled();
void count_compiled_kernel();

// A folder for intermediate files, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace ingot
