#include "ops/jpeg.h"

#include <algorithm>
#include <array>

namespace ingot {
namespace {

constexpr int kMaxScans = 500;  // a file of a few bytes each could ask for any amount of work

constexpr std::array<uint8_t, 64> kZigzag = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                             12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                             35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                             58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

[[noreturn]] void corrupt() { invalid_input("the JPEG's data are corrupt"); }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
uint8_t clamped(int64_t v) { return static_cast<uint8_t>(std::clamp<int64_t>(v, 0, 255)); }

// ---- entropy-coded bits ----

struct HuffmanCodes {
  std::array<int, 17> count{};  // by length
  std::vector<uint8_t> symbols;
  bool defined() const { return !symbols.empty(); }
};

class BitReader {
 public:
  explicit BitReader(ImageReader& in) : in_(in) {}

  int bit() {
    if (held_ == 0) {
      byte_ = in_.byte();
      if (byte_ == 0xff && in_.byte() != 0) invalid_input("the image is truncated");  // a marker
      held_ = 8;
    }
    return byte_ >> --held_ & 1;
  }
  int bits(int n) {
    int v = 0;
    for (int i = 0; i < n; i++) v = v << 1 | bit();
    return v;
  }
  // A number of n bits, whose upper half stands for positive values.
  int signed_bits(int n) {
    const int v = bits(n);
    return n == 0 || v >> (n - 1) ? v : v - (1 << n) + 1;
  }
  uint8_t symbol(const HuffmanCodes& codes) {
    int code = 0, first = 0, index = 0;
    for (size_t length = 1; length <= 16; length++) {
      code |= bit();
      const int count = codes.count[length];
      if (code - first < count) return codes.symbols[static_cast<size_t>(index + code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    corrupt();
  }
  // Goes over the marker that stands between two intervals.
  void restart() {
    held_ = 0;
    uint8_t b = in_.byte();
    if (b != 0xff) corrupt();
    while (b == 0xff) b = in_.byte();
    if (b < 0xd0 || b > 0xd7) corrupt();
  }

 private:
  ImageReader& in_;
  uint8_t byte_ = 0;
  int held_ = 0;
};

// ---- planes of samples ----

struct Plane {
  int64_t width = 0, height = 0, stride = 0;
  std::vector<uint8_t> samples;
  const uint8_t* row(int64_t y) const { return samples.data() + std::clamp<int64_t>(y, 0, height - 1) * stride; }
};

// Eight values from the coefficients c[0], c[step], ... of a row or column, times 2^13.
void transform(const int64_t* c, int64_t step, int64_t* out) {
  // cos(i pi / 16) sqrt(2) 2^13 of the coefficients 1, 3, 5, 7. That of one cosine is not the same everywhere: each is
  // the sum of constants that are rounded themselves.
  static constexpr int64_t kOdd[4][4] = {
      {11363, 9633, 6437, 2260}, {9633, -2259, -11362, -6436}, {6437, -11362, 2261, 9633}, {2260, -6436, 9633, -11363}};
  const int64_t sum = (c[0] + c[4 * step]) << 13, difference = (c[0] - c[4 * step]) << 13;
  const int64_t outer = 10703 * c[2 * step] + 4433 * c[6 * step], inner = 4433 * c[2 * step] - 10704 * c[6 * step];
  const int64_t even[4] = {sum + outer, difference + inner, difference - inner, sum - outer};
  for (int i = 0; i < 4; i++) {
    int64_t odd = 0;
    for (int k = 0; k < 4; k++) odd += kOdd[i][k] * c[(2 * k + 1) * step];
    out[i] = even[i] + odd;
    out[7 - i] = even[i] - odd;
  }
}

int64_t rounded_shift(int64_t v, int bits) { return (v + (int64_t{1} << (bits - 1))) >> bits; }

// Samples of one block. Two bits of fraction are kept between columns and rows.
void inverse_dct(const int16_t* coefficients, const std::array<uint16_t, 64>& quantization, uint8_t* out,
                 int64_t stride) {
  int64_t values[64], line[8];
  for (size_t i = 0; i < 64; i++) values[i] = int64_t{coefficients[i]} * quantization[i];
  for (int64_t x = 0; x < 8; x++) {
    transform(values + x, 8, line);
    for (int64_t y = 0; y < 8; y++) values[y * 8 + x] = rounded_shift(line[y], 11);
  }
  for (int64_t y = 0; y < 8; y++) {
    transform(values + y * 8, 1, line);
    for (int64_t x = 0; x < 8; x++) out[y * stride + x] = clamped(rounded_shift(line[x], 18) + 128);
  }
}

// One row of twice the width: a pixel is three parts the sample it lies in and one part the neighbour it is nearer to.
template <class T>
void widen(const T* in, int64_t n, int shift, int left_bias, int right_bias, uint8_t* out) {
  for (int64_t x = 0; x < n; x++) {
    const int left = in[std::max<int64_t>(x - 1, 0)], right = in[std::min(x + 1, n - 1)];
    out[2 * x] = static_cast<uint8_t>((3 * in[x] + left + left_bias) >> shift);
    out[2 * x + 1] = static_cast<uint8_t>((3 * in[x] + right + right_bias) >> shift);
  }
}

// The plane as large as the image, [height, width]; across and down: how many pixels a sample stands for. Linear
// between samples where that is two of them, otherwise repeated.
std::vector<uint8_t> enlarge(const Plane& p, int64_t across, int64_t down, int64_t width, int64_t height) {
  const bool smooth_across = across == 2 && down <= 2 && p.width > 2;
  const bool smooth_down = down == 2 && (across == 1 || smooth_across);
  std::vector<uint8_t> out(static_cast<size_t>(width * height)), line(static_cast<size_t>(p.width * across));
  std::vector<int> mixed(static_cast<size_t>(p.width));
  for (int64_t y = 0; y < height; y++) {
    const uint8_t *near = p.row(y / down), *far = p.row(y / down + (y % 2 ? 1 : -1));
    if (smooth_down)
      for (int64_t x = 0; x < p.width; x++) mixed[static_cast<size_t>(x)] = 3 * near[x] + far[x];
    if (smooth_down && smooth_across)
      widen(mixed.data(), p.width, 4, 8, 7, line.data());
    else if (smooth_across)
      widen(near, p.width, 2, 1, 2, line.data());
    else if (smooth_down)
      for (size_t x = 0; x < mixed.size(); x++) line[x] = static_cast<uint8_t>((mixed[x] + (y % 2 ? 2 : 1)) >> 2);
    else
      for (size_t x = 0; x < line.size(); x++) line[x] = near[x / static_cast<size_t>(across)];
    std::copy_n(line.data(), width, out.data() + y * width);
  }
  return out;
}

void to_rgb(uint8_t* p) {
  constexpr int kHalf = 1 << 15;
  const int y = p[0], cb = p[1] - 128, cr = p[2] - 128;
  p[0] = clamped(y + ((91881 * cr + kHalf) >> 16));
  p[1] = clamped(y + ((-22554 * cb - 46802 * cr + kHalf) >> 16));
  p[2] = clamped(y + ((116130 * cb + kHalf) >> 16));
}

// ---- the file ----

struct Component {
  uint8_t id = 0;
  int64_t across = 1, down = 1;               // samples per unit of the frame
  int64_t width = 0, height = 0;              // in samples
  int64_t block_columns = 0, block_rows = 0;  // up to whole units
  size_t quantization = 0;
  std::array<uint16_t, 64> steps{};  // those in force when its first scan began
  bool seen = false;
  std::vector<int16_t> coefficients;
  // Of the scan at hand.
  const HuffmanCodes *dc = nullptr, *ac = nullptr;
  int predicted = 0;

  int16_t* block(int64_t row, int64_t column) { return coefficients.data() + (row * block_columns + column) * 64; }
};

struct Scan {
  std::vector<Component*> components;
  int first = 0, last = 63;  // coefficients
  int high = 0, low = 0;     // bits of them: known before, and left for later
};

class JpegFile {
 public:
  explicit JpegFile(ImageReader in) : in_(in) {}

  Image read() {
    in_.seek(2);
    for (int scans = 0;;) {
      const uint8_t marker = next_marker();
      if (marker == 0xd9) break;
      const int64_t length = in_.big(2);
      if (length < 2) corrupt();
      ImageReader segment(in_.take(length - 2));
      if (marker == 0xda && ++scans > kMaxScans) invalid_input("the JPEG has more than {} scans", kMaxScans);
      read_segment(marker, segment);
    }
    return make_image();
  }

 private:
  uint8_t next_marker() {
    uint8_t b = in_.byte();
    for (;; b = in_.byte()) {
      while (b != 0xff) b = in_.byte();
      while (b == 0xff) b = in_.byte();
      if (b != 0 && (b < 0xd0 || b > 0xd8)) return b;
    }
  }

  void read_segment(uint8_t marker, ImageReader& s) {
    switch (marker) {
      case 0xc0:
      case 0xc1:
      case 0xc2:
        return read_frame(marker == 0xc2, s);
      case 0xc4:
        return read_huffman(s);
      case 0xda:
        return read_scan(s);
      case 0xdb:
        return read_quantization(s);
      case 0xdd:
        interval_ = s.big(2);
        return;
      case 0xe0:
        jfif_ |= s.starts_with(std::string_view("JFIF\0", 5));
        return;
      case 0xee:
        if (s.starts_with("Adobe") && s.left() >= 12) adobe_transform_ = s.take(12)[11];
        return;
      default:
        if (marker > 0xc4 && marker < 0xd0 && marker != 0xcc) unsupported_kind();
        if (marker == 0xc3 || marker == 0xcc) unsupported_kind();
    }
  }
  [[noreturn]] static void unsupported_kind() {
    unsupported("a JPEG that is lossless, hierarchical or arithmetically coded is not read");
  }

  void read_quantization(ImageReader& s) {
    while (s.left()) {
      const uint8_t head = s.byte();
      if ((head & 15) > 3 || head >> 4 > 1) corrupt();
      for (uint8_t at : kZigzag) quantization_[head & 15][at] = static_cast<uint16_t>(s.big(1 + (head >> 4)));
    }
  }

  void read_huffman(ImageReader& s) {
    while (s.left()) {
      const uint8_t head = s.byte();
      if ((head & 15) > 3 || head >> 4 > 1) corrupt();
      HuffmanCodes codes;
      int total = 0;
      for (size_t length = 1; length <= 16; length++) total += codes.count[length] = s.byte();
      const auto symbols = s.take(total);
      codes.symbols.assign(symbols.begin(), symbols.end());
      huffman_[head >> 4][head & 15] = std::move(codes);
    }
  }

  void read_frame(bool progressive, ImageReader& s) {
    if (!components_.empty()) corrupt();
    progressive_ = progressive;
    const int precision = s.byte();
    height_ = s.big(2), width_ = s.big(2);
    const int count = s.byte();
    if (precision != 8) unsupported("a JPEG of {} bits: only 8 are read", precision);
    if (count != 1 && count != 3) unsupported("a JPEG of {} components: only grey and three colours are read", count);
    if (width_ == 0 || height_ == 0) invalid_input("an image of {} x {}", height_, width_);
    components_.resize(static_cast<size_t>(count));
    for (Component& c : components_) {
      c.id = s.byte();
      const uint8_t sampling = s.byte();
      c.across = sampling >> 4, c.down = sampling & 15, c.quantization = s.byte();
      if (c.across < 1 || c.across > 4 || c.down < 1 || c.down > 4 || c.quantization > 3) corrupt();
      across_ = std::max(across_, c.across), down_ = std::max(down_, c.down);
    }
    make_room();
  }

  void make_room() {
    units_across_ = divide_up(width_, 8 * across_), units_down_ = divide_up(height_, 8 * down_);
    int64_t blocks = 0;
    for (Component& c : components_) {
      if (across_ % c.across || down_ % c.down)
        unsupported("a JPEG with {}x{} samples of a colour for {}x{} of another is not read", c.across, c.down, across_,
                    down_);
      c.width = divide_up(width_ * c.across, across_), c.height = divide_up(height_ * c.down, down_);
      c.block_columns = units_across_ * c.across, c.block_rows = units_down_ * c.down;
      blocks += divide_up(c.width, 8) * divide_up(c.height, 8);
    }
    // A block takes a bit at least: what a short file says of its size is not believed.
    if (static_cast<size_t>(blocks) > 8 * in_.all().size()) invalid_input("the image is truncated");
    for (Component& c : components_) c.coefficients.assign(static_cast<size_t>(c.block_columns * c.block_rows * 64), 0);
  }

  void read_scan(ImageReader& s) {
    if (components_.empty()) corrupt();
    Scan scan;
    const int count = s.byte();
    for (int i = 0; i < count; i++) {
      const uint8_t id = s.byte(), tables = s.byte();
      const auto c = std::find_if(components_.begin(), components_.end(), [&](auto& x) { return x.id == id; });
      if (c == components_.end() || (tables & 15) > 3 || tables >> 4 > 3) corrupt();
      if (std::find(scan.components.begin(), scan.components.end(), &*c) != scan.components.end()) corrupt();
      c->dc = &huffman_[0][tables >> 4], c->ac = &huffman_[1][tables & 15];
      if (!c->seen) c->steps = quantization_[c->quantization];
      c->seen = true;
      scan.components.push_back(&*c);
    }
    scan.first = s.byte(), scan.last = s.byte();
    const uint8_t bits = s.byte();
    scan.high = bits >> 4, scan.low = bits & 15;
    if (!progressive_) scan.first = scan.high = scan.low = 0, scan.last = 63;
    check(scan);
    decode(scan);
  }

  void check(const Scan& scan) const {
    const bool dc = scan.first == 0;
    if (scan.components.empty() || scan.last > 63 || scan.first > scan.last || scan.low > 13) corrupt();
    if (progressive_ && (dc ? scan.last != 0 : scan.components.size() != 1)) corrupt();
    for (const Component* c : scan.components) {
      if (dc && scan.high == 0 && !c->dc->defined()) corrupt();
      if (scan.last > 0 && !c->ac->defined()) corrupt();
    }
  }

  // Calls decode_block for every block of the scan: unit by unit, or those of the one component in its own order.
  void decode(const Scan& scan) {
    BitReader bits(in_);
    run_ = 0;
    for (Component* c : scan.components) c->predicted = 0;
    const bool single = scan.components.size() == 1;
    Component& only = *scan.components[0];
    const int64_t columns = single ? divide_up(only.width, 8) : units_across_;
    const int64_t units = columns * (single ? divide_up(only.height, 8) : units_down_);
    for (int64_t unit = 0; unit < units; unit++) {
      if (interval_ && unit && unit % interval_ == 0) {
        bits.restart();
        run_ = 0;
        for (Component* c : scan.components) c->predicted = 0;
      }
      const int64_t row = unit / columns, column = unit % columns;
      if (single) {
        decode_block(bits, scan, only, only.block(row, column));
        continue;
      }
      for (Component* c : scan.components)
        for (int64_t y = 0; y < c->down; y++)
          for (int64_t x = 0; x < c->across; x++)
            decode_block(bits, scan, *c, c->block(row * c->down + y, column * c->across + x));
    }
  }

  void decode_block(BitReader& bits, const Scan& scan, Component& c, int16_t* block) {
    if (scan.first == 0) {
      if (scan.high == 0)
        first_dc(bits, scan, c, block);
      else if (bits.bit())
        block[0] = static_cast<int16_t>(block[0] | 1 << scan.low);
    }
    if (!progressive_)
      sequential_ac(bits, c, block);
    else if (scan.first > 0)
      scan.high == 0 ? first_ac(bits, scan, c, block) : refine_ac(bits, scan, c, block);
  }

  static void first_dc(BitReader& bits, const Scan& scan, Component& c, int16_t* block) {
    const int size = bits.symbol(*c.dc);
    if (size > 15) corrupt();
    c.predicted = static_cast<int16_t>(c.predicted + bits.signed_bits(size));
    block[0] = static_cast<int16_t>(c.predicted * (1 << scan.low));
  }

  static void sequential_ac(BitReader& bits, const Component& c, int16_t* block) {
    for (int k = 1; k < 64; k++) {
      const uint8_t symbol = bits.symbol(*c.ac);
      const int zeros = symbol >> 4, size = symbol & 15;
      if (size == 0 && zeros != 15) return;
      k += zeros;
      if (size == 0) continue;
      if (k > 63) corrupt();
      block[kZigzag[static_cast<size_t>(k)]] = static_cast<int16_t>(bits.signed_bits(size));
    }
  }

  // Of a symbol without bits: the number of blocks, this one included, that have no more coefficients.
  static int run_length(BitReader& bits, int zeros) { return (1 << zeros) + bits.bits(zeros); }

  void first_ac(BitReader& bits, const Scan& scan, const Component& c, int16_t* block) {
    if (run_ > 0) {
      run_--;
      return;
    }
    for (int k = scan.first; k <= scan.last; k++) {
      const uint8_t symbol = bits.symbol(*c.ac);
      const int zeros = symbol >> 4, size = symbol & 15;
      if (size == 0 && zeros != 15) {
        run_ = run_length(bits, zeros) - 1;
        return;
      }
      k += zeros;
      if (size == 0) continue;
      if (k > scan.last) corrupt();
      block[kZigzag[static_cast<size_t>(k)]] = static_cast<int16_t>(bits.signed_bits(size) * (1 << scan.low));
    }
  }

  // One more bit of what is not zero, and new coefficients between, of which only the sign and the place are told.
  void refine_ac(BitReader& bits, const Scan& scan, const Component& c, int16_t* block) {
    const int bit = 1 << scan.low;
    auto refine = [&](int16_t& v) {
      if (bits.bit() && !(v & bit)) v = static_cast<int16_t>(v + (v >= 0 ? bit : -bit));
    };
    int k = scan.first;
    while (run_ == 0 && k <= scan.last) {
      const uint8_t symbol = bits.symbol(*c.ac);
      int zeros = symbol >> 4;
      const int size = symbol & 15;
      if (size > 1) corrupt();
      if (size == 0 && zeros != 15) {
        run_ = run_length(bits, zeros);
        break;
      }
      const int fresh = size == 0 ? 0 : bits.bit() ? bit : -bit;
      for (; k <= scan.last; k++) {
        int16_t& v = block[kZigzag[static_cast<size_t>(k)]];
        if (v != 0)
          refine(v);
        else if (zeros-- == 0) {
          v = static_cast<int16_t>(fresh);
          break;
        }
      }
      if (fresh && k > scan.last) corrupt();
      k++;
    }
    if (run_ == 0) return;
    for (; k <= scan.last; k++)
      if (int16_t& v = block[kZigzag[static_cast<size_t>(k)]]; v != 0) refine(v);
    run_--;
  }

  static Plane make_plane(Component& c) {
    Plane p{c.width, c.height, c.block_columns * 8, {}};
    p.samples.resize(static_cast<size_t>(p.stride * c.block_rows * 8));
    for (int64_t y = 0; y < c.block_rows; y++)
      for (int64_t x = 0; x < c.block_columns; x++)
        inverse_dct(c.block(y, x), c.steps, p.samples.data() + y * 8 * p.stride + x * 8, p.stride);
    c.coefficients = {};
    return p;
  }

  bool is_rgb() const {
    if (jfif_) return false;
    if (adobe_transform_ >= 0) return adobe_transform_ == 0;
    return components_[0].id == 'R' && components_[1].id == 'G' && components_[2].id == 'B';
  }

  Image make_image() {
    if (components_.empty()) invalid_input("the JPEG has no image");
    const auto channels = components_.size();
    Image out = sized_image(height_, width_, std::ssize(components_));
    for (size_t i = 0; i < channels; i++) {
      Component& c = components_[i];
      if (!c.seen) invalid_input("the image is truncated");
      const auto samples = enlarge(make_plane(c), across_ / c.across, down_ / c.down, width_, height_);
      for (size_t k = 0; k < samples.size(); k++) out.pixels[k * channels + i] = samples[k];
    }
    if (channels == 3 && !is_rgb())
      for (size_t k = 0; k < out.pixels.size(); k += 3) to_rgb(out.pixels.data() + k);
    return out;
  }

  ImageReader in_;
  std::array<std::array<uint16_t, 64>, 4> quantization_{};
  HuffmanCodes huffman_[2][4];  // DC and AC
  int64_t interval_ = 0;        // units between restarts; 0: there are none
  bool progressive_ = false, jfif_ = false;
  int adobe_transform_ = -1;
  int64_t width_ = 0, height_ = 0;
  int64_t across_ = 1, down_ = 1;  // the most samples of a component per unit
  int64_t units_across_ = 0, units_down_ = 0;
  int run_ = 0;  // blocks to come without coefficients
  std::vector<Component> components_;
};

}  // namespace

Image read_jpeg(ImageReader in) { return JpegFile(in).read(); }

}  // namespace ingot
