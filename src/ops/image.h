// What the formats of images share: the pixels they give and the bytes they are read from.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "base/error.h"

namespace ingot {

struct Image {
  int64_t height = 0, width = 0, channels = 0;  // 1 grey, 3 RGB, 4 RGB with alpha, 2 grey with alpha
  std::vector<uint8_t> pixels;
};

// Bytes with a place to read from; reading past the end is an error of the file.
class ImageReader {
 public:
  explicit ImageReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool starts_with(std::string_view magic) const {
    return bytes_.size() >= magic.size() && !std::memcmp(bytes_.data(), magic.data(), magic.size());
  }
  void seek(int64_t at) {
    if (at < 0 || at > std::ssize(bytes_)) invalid_input("the image is truncated");
    at_ = static_cast<size_t>(at);
  }
  std::span<const uint8_t> all() const { return bytes_; }
  size_t left() const { return bytes_.size() - at_; }
  std::span<const uint8_t> take(int64_t count) {
    if (count < 0 || static_cast<size_t>(count) > left()) invalid_input("the image is truncated");
    auto out = bytes_.subspan(at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return out;
  }
  uint8_t byte() { return take(1)[0]; }
  int64_t little(int count) {
    int64_t v = 0;
    const auto b = take(count);
    for (int i = count; i-- > 0;) v = v << 8 | b[static_cast<size_t>(i)];
    return v;
  }
  int64_t big(int count) {
    int64_t v = 0;
    for (uint8_t b : take(count)) v = v << 8 | b;
    return v;
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

inline Image sized_image(int64_t height, int64_t width, int64_t channels) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (height <= 0 || width <= 0 || height > kMost || width > kMost) invalid_input("an image of {} x {}", height, width);
  const int64_t bytes = checked_mul(checked_mul(height, width), channels);
  if (bytes > kMost) invalid_input("an image of {} x {} is too large", height, width);
  return {height, width, channels, std::vector<uint8_t>(static_cast<size_t>(bytes))};
}

}  // namespace ingot
