// Quant of QONNX, which Brevitas and FINN write too: numbers rounded to a grid and back.
//   Quant(x, scale, zero, bits) = (clip(round(x / scale + zero), low, high) - zero) * scale
// A single bit with sign is 1 where x / scale + zero is at least 0, else -1.
// As QuantizeLinear and DequantizeLinear where the grid fits into 8 bits, with a Clip between them where it is smaller;
// elsewhere in floats.
#include <algorithm>
#include <cmath>
#include <optional>

#include "extractors/ml.h"

namespace ingot {
namespace {

struct Grid {
  double low, high;
};

Grid grid_of(const Rewriter& r, double bits) {
  if (!(bits >= 1 && bits <= 64)) r.fail(ErrorKind::InvalidModel, "has {} bits", bits);
  const bool is_signed = r.node.get_int("signed", 1) != 0, narrow = r.node.get_int("narrow", 0) != 0;
  const double steps = std::exp2(is_signed ? bits - 1 : bits);
  if (is_signed && bits == 1) return {-1, 1};
  return {is_signed ? narrow - steps : 0, steps - 1 - (narrow && !is_signed)};
}

// The only element of a constant of floats; nothing if there is none.
std::optional<float> known_number(const Rewriter& r, TensorId t) {
  const ConstantPtr c = r.value(t);
  if (!c || c->dtype != DType::F32 || c->elements() != 1) return std::nullopt;
  return c->as<float>()[0];
}

// The axis along which a constant has several numbers; -1: it has one. Nothing if there are several axes.
std::optional<int64_t> only_axis(const Constant& c, std::optional<int64_t> rank) {
  if (c.elements() == 1) return -1;
  std::optional<int64_t> axis;
  for (int64_t d = 0; d < std::ssize(c.dims); d++) {
    if (c.dims[static_cast<size_t>(d)] == 1) continue;
    if (axis) return std::nullopt;
    axis = d;
  }
  if (std::ssize(c.dims) != rank) return std::nullopt;  // of x: axes are counted from the front
  return axis;
}

// QuantizeLinear rounds before it adds the zero point, Quant after it: an even one makes no difference.
bool fits_in_8_bits(const Grid& g, float zero) {
  const bool whole = std::fmod(zero, 2.f) == 0;
  return whole && zero >= g.low && zero <= g.high && g.high - g.low <= 255 && g.low >= -128 && g.high <= 255;
}

bool as_qdq(Rewriter& r, const Grid& g) {
  const ConstantPtr scale = r.value(r.need_input(1));
  const auto zero = known_number(r, r.need_input(2));
  if (!scale || scale->dtype != DType::F32 || !zero || !fits_in_8_bits(g, *zero)) return false;
  const auto axis = only_axis(*scale, r.rank(r.need_input(0)));
  if (!axis || scale->elements() == 0) return false;
  const DType type = g.low < 0 ? DType::I8 : DType::U8;
  auto bytes = [&](double value, std::vector<int64_t> dims, const char* what) {
    const size_t count = dims.empty() ? 1 : static_cast<size_t>(dims[0]);
    const std::vector<uint8_t> all(count, static_cast<uint8_t>(static_cast<int>(value)));
    return r.constant(make_constant(type, std::move(dims), std::as_bytes(std::span(all))), what);
  };
  AttributeMap attrs;
  std::vector<int64_t> dims;
  if (*axis >= 0) {
    dims = {scale->elements()};
    attrs["axis"] = *axis;
  }
  const auto numbers = scale->as<float>();
  const TensorId scales =
      r.constant(make_constant(DType::F32, dims, std::vector<float>(numbers.begin(), numbers.end())), "scale");
  const TensorId zeros = bytes(*zero, dims, "zero");
  TensorId q = r.emit("QuantizeLinear", {r.need_input(0), scales, zeros}, attrs);
  const Grid all = type == DType::I8 ? Grid{-128, 127} : Grid{0, 255};
  if (g.low > all.low || g.high < all.high) q = r.emit("Clip", {q, bytes(g.low, {}, "low"), bytes(g.high, {}, "high")});
  r.become("DequantizeLinear", {q, scales, zeros}, attrs);
  return true;
}

TensorId rounded(Rewriter& r, TensorId x, const std::string& mode) {
  auto number = [&](float value) { return floats(r, {value}, {}, "number"); };
  if (mode == "ROUND" || mode == "HALF_EVEN") return r.emit("Round", {x});
  if (mode == "CEIL") return r.emit("Ceil", {x});
  if (mode == "FLOOR") return r.emit("Floor", {x});
  const TensorId sign = r.emit("Sign", {x}), size = r.emit("Abs", {x});
  auto with_sign = [&](TensorId t) { return r.emit("Mul", {sign, t}); };
  if (mode == "UP") return with_sign(r.emit("Ceil", {size}));
  if (mode == "DOWN" || mode == "ROUND_TO_ZERO") return with_sign(r.emit("Floor", {size}));
  if (mode == "HALF_UP") return with_sign(r.emit("Floor", {r.emit("Add", {size, number(0.5f)})}));
  if (mode == "HALF_DOWN") return with_sign(r.emit("Ceil", {r.emit("Sub", {size, number(0.5f)})}));
  r.fail(ErrorKind::Unsupported, "the rounding mode '{}' is not supported", mode);
}

void quant(Rewriter& r) {
  const auto bits = known_number(r, r.need_input(3));
  if (!bits) r.fail(ErrorKind::Unsupported, "the number of bits must be a constant of one float");
  const Grid grid = grid_of(r, *bits);
  const bool bipolar = *bits == 1 && grid.low < 0;
  std::string mode = r.node.get_string("rounding_mode", "ROUND");
  std::transform(mode.begin(), mode.end(), mode.begin(), [](unsigned char c) { return std::toupper(c); });
  if (mode == "ROUND" && !bipolar && as_qdq(r, grid)) return;
  const TensorId scale = r.need_input(1), zero = r.need_input(2);
  const TensorId x = r.emit("Add", {r.emit("Div", {r.need_input(0), scale}), zero});
  const TensorId low = floats(r, {static_cast<float>(grid.low)}, {}, "low");
  const TensorId high = floats(r, {static_cast<float>(grid.high)}, {}, "high");
  const TensorId q = bipolar ? r.emit("Where", {r.emit("GreaterOrEqual", {x, floats(r, {0}, {}, "zero")}), high, low})
                             : rounded(r, r.emit("Clip", {x, low, high}), mode);
  r.become("Mul", {r.emit("Sub", {q, zero}), scale});
}

constexpr Rule kRules[] = {{"Quant", 1, kAnyVersion, quant}};

}  // namespace

std::vector<RuleTable> qonnx_rules() {
  return {{"qonnx.custom_op.general", kRules}, {"finn.custom_op.general", kRules}, {"onnx.brevitas", kRules}};
}

}  // namespace ingot
