// ImageDecoder: BMP and TIFF without compression, binary PNM, PNG, and JPEG (jpeg.cpp).
#include <array>
#include <map>

#include "ops/host.h"
#include "ops/jpeg.h"

namespace ingot {
namespace {

Image read_bmp(ImageReader in) {
  in.seek(10);
  const int64_t data = in.little(4);
  in.seek(18);
  const auto width = static_cast<int32_t>(in.little(4)), height = static_cast<int32_t>(in.little(4));
  in.seek(28);
  const int64_t bits = in.little(2), compression = in.little(4);
  if ((bits != 24 && bits != 32) || compression != 0)
    unsupported("a BMP of {} bits with compression {}: only 24 and 32 bits without are read", bits, compression);
  Image out = sized_image(height < 0 ? -int64_t{height} : height, width, 3);
  const int64_t step = bits / 8, row = (width * step + 3) / 4 * 4;
  in.seek(data);
  for (int64_t y = 0; y < out.height; y++) {
    const auto line = in.take(row);
    uint8_t* to = out.pixels.data() + (height < 0 ? y : out.height - 1 - y) * width * 3;
    for (int64_t x = 0; x < width; x++)
      for (int64_t c = 0; c < 3; c++) to[x * 3 + c] = line[static_cast<size_t>(x * step + 2 - c)];
  }
  return out;
}

Image read_pnm(ImageReader in) {
  in.byte();
  const bool colour = in.byte() == '6';
  auto number = [&] {
    uint8_t c = in.byte();
    while (c == '#' || std::isspace(c)) {
      if (c == '#')
        while (in.byte() != '\n') continue;
      c = in.byte();
    }
    int64_t v = 0;
    for (; std::isdigit(c) && v < 1 << 30; c = in.byte()) v = v * 10 + (c - '0');
    return v;
  };
  const int64_t width = number(), height = number(), most = number();
  if (most != 255) unsupported("a PNM with values up to {}: only 255 is read", most);
  Image out = sized_image(height, width, colour ? 3 : 1);
  const auto data = in.take(std::ssize(out.pixels));
  out.pixels.assign(data.begin(), data.end());
  return out;
}

// Deflate, as zlib wraps it (RFC 1950, 1951).
class Inflate {
 public:
  Inflate(std::span<const uint8_t> bytes, size_t expected) : in_(bytes), expected_(expected) {}

  std::vector<uint8_t> run() {
    if ((in_.big(2) & 0x0f20) != 0x0800) invalid_input("the image's data are not deflated");
    for (bool last = false; !last;) {
      last = bits(1);
      switch (bits(2)) {
        case 0:
          stored();
          break;
        case 1:
          compressed(fixed_lengths(), std::vector<uint8_t>(30, 5));
          break;
        case 2:
          dynamic();
          break;
        default:
          invalid_input("the image's data are corrupt");
      }
    }
    return std::move(out_);
  }

 private:
  struct Codes {
    std::array<uint16_t, 16> count{};
    std::vector<uint16_t> symbols;
    explicit Codes(const std::vector<uint8_t>& lengths) {
      for (uint8_t l : lengths) count[l]++;
      count[0] = 0;
      for (uint8_t l = 1; l < 16; l++)
        for (size_t s = 0; s < lengths.size(); s++)
          if (lengths[s] == l) symbols.push_back(static_cast<uint16_t>(s));
    }
  };

  uint32_t bits(int n) {
    while (held_ < n) {
      hold_ |= static_cast<uint32_t>(in_.byte()) << held_;
      held_ += 8;
    }
    const uint32_t v = hold_ & ((1u << n) - 1);
    hold_ >>= n;
    held_ -= n;
    return v;
  }
  uint16_t symbol(const Codes& codes) {
    int code = 0, first = 0, index = 0;
    for (size_t length = 1; length < 16; length++) {
      code |= static_cast<int>(bits(1));
      const int count = codes.count[length];
      if (code - count < first) return codes.symbols[static_cast<size_t>(index + code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    invalid_input("the image's data are corrupt");
  }
  void put(uint8_t byte) {
    if (out_.size() >= expected_) invalid_input("the image has more data than pixels");
    out_.push_back(byte);
  }
  void stored() {
    hold_ = 0, held_ = 0;
    const int64_t length = in_.little(2), inverse = in_.little(2);
    if (length != (~inverse & 0xffff)) invalid_input("the image's data are corrupt");
    for (uint8_t b : in_.take(length)) put(b);
  }
  static std::vector<uint8_t> fixed_lengths() {
    std::vector<uint8_t> l(288, 8);
    std::fill(l.begin() + 144, l.begin() + 256, 9);
    std::fill(l.begin() + 256, l.begin() + 280, 7);
    return l;
  }
  void dynamic() {
    static constexpr uint8_t kOrder[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const size_t literals = bits(5) + 257, distances = bits(5) + 1, lengths = bits(4) + 4;
    std::vector<uint8_t> order(19);
    for (size_t i = 0; i < lengths; i++) order[kOrder[i]] = static_cast<uint8_t>(bits(3));
    const Codes codes(order);
    std::vector<uint8_t> all;
    while (all.size() < literals + distances) {
      const uint16_t s = symbol(codes);
      if (s == 16 && all.empty()) invalid_input("the image's data are corrupt");
      const uint8_t value = s < 16 ? static_cast<uint8_t>(s) : s == 16 ? all.back() : uint8_t{0};
      const size_t times = s < 16 ? 1 : s == 16 ? 3 + bits(2) : s == 17 ? 3 + bits(3) : 11 + bits(7);
      all.insert(all.end(), times, value);
    }
    all.resize(literals + distances);
    compressed({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(literals)},
               {all.begin() + static_cast<std::ptrdiff_t>(literals), all.end()});
  }
  void compressed(const std::vector<uint8_t>& literal_lengths, const std::vector<uint8_t>& distance_lengths) {
    const Codes literals(literal_lengths), distances(distance_lengths);
    for (;;) {
      const uint16_t s = symbol(literals);
      if (s == 256) return;
      if (s < 256) {
        put(static_cast<uint8_t>(s));
        continue;
      }
      if (s > 285) invalid_input("the image's data are corrupt");
      const int l = s - 257;
      const int extra = l < 8 || l == 28 ? 0 : (l - 4) / 4;
      const size_t length = l == 28 ? 258
                            : l < 8 ? 3 + static_cast<size_t>(l)
                                    : 3 + ((4 + static_cast<size_t>(l) % 4) << extra) + bits(extra);
      const uint16_t d = symbol(distances);
      if (d > 29) invalid_input("the image's data are corrupt");
      const int more = d < 4 ? 0 : (d - 2) / 2;
      const size_t distance = d < 4 ? 1u + d : 1 + ((2 + static_cast<size_t>(d) % 2) << more) + bits(more);
      if (distance > out_.size()) invalid_input("the image's data are corrupt");
      for (size_t i = 0; i < length; i++) put(out_[out_.size() - distance]);
    }
  }

  ImageReader in_;
  size_t expected_;
  uint32_t hold_ = 0;
  int held_ = 0;
  std::vector<uint8_t> out_;
};

// Undoes the filter of each row in place: what a byte was predicted from is added again.
void unfilter(std::vector<uint8_t>& data, int64_t rows, int64_t row, int64_t step) {
  for (int64_t y = 0; y < rows; y++) {
    uint8_t* line = data.data() + y * (row + 1);
    const uint8_t kind = *line++;
    const uint8_t* above = y ? line - (row + 1) : nullptr;
    for (int64_t x = 0; x < row; x++) {
      const int a = x >= step ? line[x - step] : 0, b = above ? above[x] : 0,
                c = above && x >= step ? above[x - step] : 0;
      const int pa = std::abs(b - c), pb = std::abs(a - c), pc = std::abs(a + b - 2 * c);
      const int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      const int guess = kind == 1 ? a : kind == 2 ? b : kind == 3 ? (a + b) / 2 : kind == 4 ? paeth : 0;
      line[x] = static_cast<uint8_t>(line[x] + guess);
    }
  }
}

Image read_png(ImageReader in) {
  in.seek(8);
  int64_t width = 0, height = 0, depth = 0, type = -1, interlaced = 0;
  std::vector<uint8_t> compressed, palette;
  for (bool end = false; !end;) {
    const int64_t length = in.big(4);
    const auto tag = in.take(4);
    ImageReader chunk(in.take(length));
    in.take(4);  // checksum
    const std::string name(tag.begin(), tag.end());
    if (name == "IHDR") {
      width = chunk.big(4), height = chunk.big(4), depth = chunk.byte(), type = chunk.byte();
      chunk.take(2);
      interlaced = chunk.byte();
    } else if (name == "PLTE" || name == "IDAT") {
      const auto bytes = chunk.take(length);
      (name == "PLTE" ? palette : compressed)
          .insert((name == "PLTE" ? palette : compressed).end(), bytes.begin(), bytes.end());
    }
    end = name == "IEND";
  }
  static constexpr int64_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  if (depth != 8 || interlaced || type < 0 || type > 6 || !kChannels[type])
    unsupported("a PNG of {} bits, colour type {}, {}interlaced: only 8 bits, not interlaced, are read", depth, type,
                interlaced ? "" : "not ");
  const int64_t channels = kChannels[type];
  Image out = sized_image(height, width, channels);
  const int64_t row = width * channels;
  std::vector<uint8_t> data = Inflate(compressed, static_cast<size_t>(height * (row + 1))).run();
  if (std::ssize(data) != height * (row + 1)) invalid_input("the image is truncated");
  unfilter(data, height, row, channels);
  for (int64_t y = 0; y < height; y++) std::copy_n(data.data() + y * (row + 1) + 1, row, out.pixels.data() + y * row);
  if (type != 3) return out;
  Image coloured = sized_image(height, width, 3);
  for (size_t i = 0; i < out.pixels.size(); i++)
    for (size_t c = 0; c < 3; c++) {
      const size_t at = out.pixels[i] * 3u + c;
      if (at >= palette.size()) invalid_input("the image names a colour it does not have");
      coloured.pixels[i * 3 + c] = palette[at];
    }
  return coloured;
}

// Baseline TIFF: strips of pixels, one directory.
Image read_tiff(ImageReader in) {
  const bool little = in.starts_with("II");
  auto number = [&](int bytes) { return little ? in.little(bytes) : in.big(bytes); };
  in.seek(4);
  in.seek(number(4));
  std::map<int64_t, std::vector<int64_t>> tags;
  for (int64_t entries = number(2), i = 0; i < entries; i++) {
    const int64_t tag = number(2), type = number(2), count = number(4), bytes = type == 3 ? 2 : 4;
    ImageReader after = in;
    after.take(4);
    if ((type == 3 || type == 4) && count <= std::ssize(in.all())) {
      if (count * bytes > 4) in.seek(number(4));
      for (int64_t k = 0; k < count; k++) tags[tag].push_back(number(static_cast<int>(bytes)));
    }
    in = after;
  }
  auto first = [&](int64_t tag, int64_t fallback) { return tags[tag].empty() ? fallback : tags[tag][0]; };
  const int64_t channels = first(277, 1);
  if (first(259, 1) != 1 || first(258, 1) != 8 || first(284, 1) != 1 ||
      (channels != 1 && channels != 3 && channels != 4))
    unsupported("a TIFF that is compressed, planar or not of 8 bits is not read");
  Image out = sized_image(first(257, 0), first(256, 0), channels);
  std::vector<uint8_t> data;
  for (size_t strip = 0; strip < tags[273].size() && strip < tags[279].size(); strip++) {
    in.seek(tags[273][strip]);
    const auto bytes = in.take(tags[279][strip]);
    data.insert(data.end(), bytes.begin(), bytes.end());
    if (data.size() > out.pixels.size()) break;
  }
  if (data.size() < out.pixels.size()) invalid_input("the image is truncated");
  out.pixels.assign(data.begin(), data.begin() + std::ssize(out.pixels));
  return out;
}

Image read_image(std::span<const uint8_t> bytes) {
  const ImageReader in(bytes);
  if (in.starts_with("BM")) return read_bmp(in);
  if (in.starts_with("P5") || in.starts_with("P6")) return read_pnm(in);
  if (in.starts_with("\xff\xd8\xff")) return read_jpeg(in);
  if (in.starts_with("\x89PNG\r\n\x1a\n")) return read_png(in);
  if (in.starts_with(std::string_view("II*\0", 4)) || in.starts_with(std::string_view("MM\0*", 4)))
    return read_tiff(in);
  unsupported("the image is not a BMP, JPEG, PNM, PNG or TIFF: other formats are not read");
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, DType::U8);
  ctx.require(ctx.dtype(0) == DType::U8, "the image is {}, expected u8", name(ctx.dtype(0)));
  const bool grey = ctx.node.get_string("pixel_format", "RGB") == "Grayscale";
  ctx.set_shape(0, {Dim::unknown(), Dim::unknown(), Dim(grey ? 1 : 3)});
}

void run(HostContext& ctx) {
  const Image image = read_image(ctx.tensor(0)->as<uint8_t>());
  const std::string format = ctx.node.get_string("pixel_format", "RGB");
  const bool grey = format == "Grayscale", reversed = format == "BGR";
  if (!grey && !reversed && format != "RGB") ctx.fail("pixel_format '{}' is not known", format);
  const auto step = static_cast<size_t>(image.channels);
  std::vector<uint8_t> out;
  for (size_t i = 0; i < image.pixels.size(); i += step) {
    const uint8_t* p = image.pixels.data() + i;
    const uint8_t red = p[0], green = step >= 3 ? p[1] : p[0], blue = step >= 3 ? p[2] : p[0];
    if (grey)
      out.push_back(step >= 3 ? static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16) : red);
    else
      out.insert(out.end(), {reversed ? blue : red, green, reversed ? red : blue});
  }
  ctx.set(0, DType::U8, {image.height, image.width, grey ? 1 : 3}, out);
}

}  // namespace

void register_image_decoder(OpRegistry& r) { r.add(host_op("ImageDecoder", 1, 1, 1, infer, run)); }

}  // namespace ingot
