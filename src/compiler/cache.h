// The disk cache: compiled kernels under a key that covers all they depend on. Entries are written beside and renamed,
// so that a reader never sees half of one, and carry a checksum. $INGOT_CACHE_DIR, else $XDG_CACHE_HOME/ingot, else
// ~/.cache/ingot; INGOT_CACHE=off, or a folder that cannot be written, means no cache.
#pragma once
#include <optional>
#include <string>

namespace ingot {

class Cache {
 public:
  Cache();
  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  // The path an entry has, whether or not it is there.
  std::string path(const std::string& key) const { return folder_ + "/" + key; }
  std::optional<std::string> read(const std::string& key) const;
  void write(const std::string& key, const std::string& bytes) const;  // failures are ignored: it is only a cache

 private:
  std::string folder_;
};

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
