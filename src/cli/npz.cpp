// The zip side of .npz files, and whole-file input and output.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/checked.h"
#include "base/error.h"
#include "cli/npy.h"

namespace ingot {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kEnd64Locator = 0x07064b50;
constexpr uint64_t kMaxEntry = uint64_t{1} << 40;  // what a header may claim before memory is asked for

// Reads little-endian numbers at any offset; past the end is an error of the file.
struct Reader {
  std::span<const std::byte> file;
  const std::string& place;

  [[noreturn]] void bad(const std::string& why) const {
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: not a valid .npz file: {}", place, why));
  }
  std::span<const std::byte> bytes(uint64_t at, uint64_t size) const {
    if (at > file.size() || size > file.size() - at) bad("cut off, or an entry points outside the file");
    return file.subspan(at, size);
  }
  uint64_t number(uint64_t at, int size) const {
    uint64_t n = 0;
    const auto b = bytes(at, static_cast<uint64_t>(size));
    for (size_t i = b.size(); i-- > 0;) n = n << 8 | static_cast<uint64_t>(b[i]);
    return n;
  }
};

struct Entry {
  std::string name;
  int method = 0;
  uint32_t crc = 0;
  uint64_t compressed = 0, size = 0, offset = 0;
};

// The sizes and the offset that did not fit 32 bits stand in the "extra" field, in this order.
void read_zip64(const Reader& r, uint64_t at, uint64_t length, Entry& e) {
  const uint64_t end = at + length;
  while (at + 4 <= end) {
    const uint64_t id = r.number(at, 2), size = r.number(at + 2, 2);
    at += 4;
    if (id == 1) {
      for (uint64_t* field : {&e.size, &e.compressed, &e.offset})
        if (*field == 0xffffffff) {
          *field = r.number(at, 8);
          at += 8;
        }
      return;
    }
    at += size;
  }
}

std::vector<Entry> read_directory(const Reader& r) {
  if (r.file.size() < 22) r.bad("too short for a zip archive");
  // The end record is followed by a comment of up to 64 KiB.
  uint64_t end = r.file.size() - 22;
  const uint64_t last = end > 0xffff ? end - 0xffff : 0;
  while (r.number(end, 4) != kEnd) {
    if (end == last) r.bad("no zip directory at its end");
    end--;
  }
  uint64_t count = r.number(end + 10, 2), at = r.number(end + 16, 4);
  if ((count == 0xffff || at == 0xffffffff) && end >= 20 && r.number(end - 20, 4) == kEnd64Locator) {
    const uint64_t end64 = r.number(end - 12, 8);
    if (r.number(end64, 4) != kEnd64) r.bad("its zip64 directory is missing");
    count = r.number(end64 + 32, 8);
    at = r.number(end64 + 48, 8);
  }
  std::vector<Entry> out;
  for (uint64_t i = 0; i < count; i++) {
    if (r.number(at, 4) != kCentral) r.bad("its directory is damaged");
    Entry e;
    if (r.number(at + 8, 2) & 1) r.bad("it is encrypted");
    e.method = static_cast<int>(r.number(at + 10, 2));
    e.crc = static_cast<uint32_t>(r.number(at + 16, 4));
    e.compressed = r.number(at + 20, 4);
    e.size = r.number(at + 24, 4);
    e.offset = r.number(at + 42, 4);
    const uint64_t name = r.number(at + 28, 2), extra = r.number(at + 30, 2), comment = r.number(at + 32, 2);
    const auto text = r.bytes(at + 46, name);
    e.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
    read_zip64(r, at + 46 + name, extra, e);
    at += 46 + name + extra + comment;
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<std::byte> extract(const Reader& r, const Entry& e) {
  if (r.number(e.offset, 4) != kLocal) r.bad(fmt::format("entry '{}' has no header", e.name));
  const uint64_t start = e.offset + 30 + r.number(e.offset + 26, 2) + r.number(e.offset + 28, 2);
  const auto compressed = r.bytes(start, e.compressed);
  // Deflate cannot do better than 1032:1: a larger claim is a lie, and is not worth its memory.
  if (e.size > kMaxEntry || e.size / 1032 > e.compressed + 1)
    r.bad(fmt::format("entry '{}' claims {} bytes", e.name, e.size));
  std::vector<std::byte> out(e.size);
  if (e.method == 0) {
    if (e.size != e.compressed) r.bad(fmt::format("entry '{}' is stored with two sizes", e.name));
    std::copy(compressed.begin(), compressed.end(), out.begin());
  } else if (e.method == 8) {
    z_stream z{};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    auto* in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data()));
    auto* to = reinterpret_cast<Bytef*>(out.data());
    uint64_t fed = 0, room = 0;
    int status = Z_OK;
    while (status == Z_OK) {  // zlib counts in 32 bits
      const auto feed = static_cast<uInt>(std::min<uint64_t>(e.compressed - fed, 1u << 30));
      const auto give = static_cast<uInt>(std::min<uint64_t>(e.size - room, 1u << 30));
      z.next_in = in + fed, z.avail_in = feed, z.next_out = to + room, z.avail_out = give;
      status = inflate(&z, Z_NO_FLUSH);
      fed += feed - z.avail_in;
      room += give - z.avail_out;
    }
    inflateEnd(&z);
    if (status != Z_STREAM_END || room != e.size) r.bad(fmt::format("entry '{}' does not unpack", e.name));
  } else {
    r.bad(fmt::format("entry '{}' uses compression method {}; stored and deflate are read", e.name, e.method));
  }
  if (crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size()) != e.crc)
    r.bad(fmt::format("entry '{}' has a wrong checksum", e.name));
  return out;
}

struct Writer {
  std::vector<std::byte> out;
  void number(uint64_t n, int size) {
    for (int i = 0; i < size; i++) out.push_back(static_cast<std::byte>(n >> (8 * i) & 0xff));
  }
  void bytes(const void* data, size_t size) {
    const auto* p = static_cast<const std::byte*>(data);
    out.insert(out.end(), p, p + size);
  }
};

}  // namespace

NamedArrays parse_npz(std::span<const std::byte> file, const std::string& place) {
  const Reader reader{file, place};
  NamedArrays out;
  for (const Entry& e : read_directory(reader)) {
    std::string name = e.name;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const std::vector<std::byte> content = extract(reader, e);
    out.emplace_back(name, parse_npy(content, place + ":" + e.name));
  }
  return out;
}

std::vector<std::byte> format_npz(const NamedArrays& arrays) {
  Writer file, directory;
  for (const auto& [name, array] : arrays) {
    const std::vector<std::byte> content = format_npy(array);
    const std::string entry = name + ".npy";
    if (content.size() + file.out.size() > 0xfffffffe)
      throw Error(ErrorKind::Unsupported, "an .npz file of more than 4 GiB is not written", "write one output as .npy");
    const uint64_t crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    const uint64_t offset = file.out.size();
    auto common = [&](Writer& w) {  // version 2.0, UTF-8 names, stored, no time, 1980-01-01
      w.number(20, 2), w.number(0x800, 2), w.number(0, 2), w.number(0, 2), w.number(0x21, 2);
      w.number(crc, 4), w.number(content.size(), 4), w.number(content.size(), 4);
      w.number(entry.size(), 2), w.number(0, 2);
    };
    file.number(kLocal, 4);
    common(file);
    file.bytes(entry.data(), entry.size());
    file.bytes(content.data(), content.size());
    directory.number(kCentral, 4), directory.number(20, 2);
    common(directory);
    directory.number(0, 2), directory.number(0, 2), directory.number(0, 2), directory.number(0, 4);
    directory.number(offset, 4);
    directory.bytes(entry.data(), entry.size());
  }
  const uint64_t start = file.out.size();
  file.bytes(directory.out.data(), directory.out.size());
  file.number(kEnd, 4), file.number(0, 4), file.number(arrays.size(), 2), file.number(arrays.size(), 2);
  file.number(directory.out.size(), 4), file.number(start, 4), file.number(0, 2);
  return std::move(file.out);
}

std::vector<std::byte> read_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw Error(ErrorKind::Io, fmt::format("{}: is a folder", path));
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw Error(ErrorKind::Io, fmt::format("{}: {}", path, std::strerror(errno)));
  std::vector<std::byte> out(static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0)));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  if (!file) throw Error(ErrorKind::Io, fmt::format("{}: cannot be read", path));
  return out;
}

void write_file(const std::string& path, std::span<const std::byte> content) {
  const std::string beside = fmt::format("{}.{}.tmp", path, getpid());
  auto give_up = [&] {
    const Error error(ErrorKind::Io, fmt::format("{}: {}", path, std::strerror(errno)),
                      "choose a place that can be written");
    unlink(beside.c_str());
    throw error;
  };
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) give_up();
  for (size_t at = 0; at < content.size();) {
    const ssize_t n = write(fd, content.data() + at, content.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      close(fd);
      give_up();
    }
    at += static_cast<size_t>(n);
  }
  if (close(fd) != 0 || rename(beside.c_str(), path.c_str()) != 0) give_up();
}

}  // namespace ingot
