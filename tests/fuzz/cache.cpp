#include "compiler/cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/hash.h"
#include "targets.h"

namespace ingot {
namespace {

void put(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) abort();
  close(fd);
}

void expect(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "ERROR: %s\n", what);
  abort();
}

}  // namespace

// An entry is taken exactly when it ends with the checksum of what stands before it; a damaged one is removed. All of
// it is tried as it is and with a checksum, of which the first byte may change a digit.
void fuzz::cache(Bytes bytes) {
  static const TemporaryFolder folder;
  static const Cache cache(folder.file("cache"));
  if (bytes.empty()) return;
  const std::string body(bytes.begin() + 1, bytes.end());
  std::string sealed = body + hash64_hex(std::as_bytes(std::span(body)));
  const size_t digit = sealed.size() - 1 - bytes[0] % 16;
  const bool damaged = bytes[0] & 16;
  if (damaged) sealed[digit] = sealed[digit] == '0' ? '1' : '0';
  for (const std::string& entry : {body, sealed}) {
    const size_t size = entry.size() < 16 ? 0 : entry.size() - 16;
    const bool good = size > 0 && entry.substr(size) == hash64_hex(std::as_bytes(std::span(entry.data(), size)));
    for (const char* key : {"torch-x.so", "x.o"}) {
      put(cache.path(key), entry);
      expect(cache.whole(key) == good, "whole() is wrong");
      expect(cache.find(key).has_value() == good, "find() is wrong");
      expect((access(cache.path(key).c_str(), F_OK) == 0) == good, "find() left a damaged entry or removed a good one");
      put(cache.path(key), entry);
      const std::optional<std::string> read = cache.read(key);
      expect(read.has_value() == good && (!good || *read == entry.substr(0, size)), "read() is wrong");
    }
  }
  expect(damaged || cache.entries().size() == (body.empty() ? 0u : 2u), "entries() is wrong");
}

}  // namespace ingot
