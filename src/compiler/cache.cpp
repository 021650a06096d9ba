#include "compiler/cache.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

std::string choose_folder() {
  auto env = [](const char* n) { return std::string(std::getenv(n) ? std::getenv(n) : ""); };
  if (env("INGOT_CACHE") == "off" || env("INGOT_CACHE") == "0") return "";
  if (auto d = env("INGOT_CACHE_DIR"); !d.empty()) return d;
  if (auto d = env("XDG_CACHE_HOME"); !d.empty()) return d + "/ingot";
  if (auto d = env("HOME"); !d.empty()) return d + "/.cache/ingot";
  return "";
}

std::string checksum(const std::string& bytes) { return hash64_hex(std::as_bytes(std::span(bytes))); }

}  // namespace

Cache::Cache() : folder_(choose_folder()) {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || access(folder_.c_str(), W_OK) != 0) folder_.clear();
}

std::optional<std::string> Cache::read(const std::string& key) const {
  if (!enabled()) return std::nullopt;
  std::ifstream in(path(key), std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  std::string all = text.str();
  // The last 16 characters are the checksum of what stands before them.
  if (all.size() < 16) return std::nullopt;
  std::string sum = all.substr(all.size() - 16);
  all.resize(all.size() - 16);
  if (sum != checksum(all)) return std::nullopt;
  return all;
}

void Cache::write(const std::string& key, const std::string& bytes) const {
  if (!enabled()) return;
  try {
    AtomicFile file(path(key));
    file.write(bytes);
    file.write(checksum(bytes));
    file.commit();
  } catch (const Error&) {
    return;  // the next process compiles again
  }
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
