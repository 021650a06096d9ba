// QLinearMatMul and QLinearConv: a product of integers and what makes 8 bits of it again.
//   Y = saturate( round( ((A - a_zero) (B - b_zero) + bias) * (a_scale b_scale / y_scale) ) + y_zero )
// Products of 8-bit floats are those of the numbers they stand for.
#include "expansions/expander.h"
#include "ops/quantize.h"

namespace ingot {
namespace {

constexpr size_t kA = 0, kAScale = 1, kAZero = 2, kB = 3, kBScale = 4, kBZero = 5, kYScale = 6, kYZero = 7, kBias = 8;

// One number for each row, or for each channel, as a tensor that broadcasts to the result.
TensorId with_ones(Expander& e, TensorId t, int64_t behind) {
  if (e.rank(t) != 1 || e.shape(t)[0].is(1) || behind == 0) return t;
  std::vector<int64_t> axes;
  for (int64_t i = 1; i <= behind; i++) axes.push_back(i);
  return e.unsqueeze(t, axes);
}

void check_types(const Expander& e) {
  for (auto [x, zero] : {std::pair{kA, kAZero}, std::pair{kB, kBZero}}) {
    const DType t = e.dtype(e.in(x)), z = e.dtype(e.in(zero));
    e.require(is_byte(t) || (is_float(t) && bits(t) == 8), "operand {} is {}, which is no quantized type", x, name(t));
    e.require(t == z, "operand {} is {} and its zero point {}", x, name(t), name(z));
  }
  for (size_t i : {kAScale, kBScale, kYScale}) {
    const DType t = e.dtype(e.in(i));
    e.require(is_float(t) && bits(t) >= 16 && t != DType::F64, "operand {} is {}, expected a scale of f32, f16 or bf16",
              i, name(t));
    if (auto wrong = wrong_scale(e.info(e.in(i)))) e.fail(ErrorKind::InvalidModel, "operand {}: {}", i, *wrong);
  }
}

// x divided by the result's scale, to the result's type. The rows' parameters get `behind` axes of one.
TensorId requantized(Expander& e, TensorId x, int64_t behind) {
  const DType to = e.dtype(e.in(kYZero));
  e.require(is_byte(to), "the result would be {}, expected u8 or i8", name(to));
  const double low = to == DType::I8 ? -128 : 0;
  const TensorId zero = e.cast(with_ones(e, e.in(kYZero), behind), DType::F32);
  const TensorId y = e.emit("Add", {e.emit("Round", {x}), zero});
  return e.cast(e.emit("Clip", {y, e.scalar(low, DType::F32), e.scalar(low + 255, DType::F32)}), to);
}

TensorId scale(Expander& e, size_t i, int64_t behind) { return e.cast(with_ones(e, e.in(i), behind), DType::F32); }

// rows, columns: axes of one behind parameters of A's side and of B's side.
void finish(Expander& e, TensorId acc, int64_t rows, int64_t columns) {
  const TensorId product = e.emit("Mul", {scale(e, kAScale, rows), scale(e, kBScale, columns)});
  const TensorId factor = e.emit("Div", {product, scale(e, kYScale, rows)});
  e.result(0, requantized(e, e.emit("Mul", {e.cast(acc, DType::F32), factor}), rows));
}

void expand_matmul(Expander& e) {
  check_types(e);
  if (is_byte(e.dtype(e.in(kA))) && is_byte(e.dtype(e.in(kB))))
    return finish(e, e.emit("MatMulInteger", {e.in(kA), e.in(kB), e.in(kAZero), e.in(kBZero)}), 1, 0);
  auto number = [&](size_t x, size_t s, size_t z) { return e.emit("DequantizeLinear", {e.in(x), e.in(s), e.in(z)}); };
  const TensorId y = e.emit("MatMul", {number(kA, kAScale, kAZero), number(kB, kBScale, kBZero)});
  e.result(0, e.emit("QuantizeLinear", {y, e.in(kYScale), e.in(kYZero)}));
}

void expand_conv(Expander& e) {
  check_types(e);
  for (size_t i : {kAScale, kAZero, kYScale, kYZero}) {
    const Dim count = product(e.shape(e.in(i)));
    e.require(!count.is_const() || count.is(1), "operand {} is {}, expected a scalar", i, str(e.shape(e.in(i))));
  }
  for (size_t i : {kBScale, kBZero})
    e.require(e.rank(e.in(i)) <= 1, "operand {} is {}, expected a scalar or one number for each channel of Y", i,
              str(e.shape(e.in(i))));
  const int64_t spatial = e.rank(e.in(kB)) - 2;  // that of X, which is not always known
  e.require(spatial >= 1, "W is {}, expected [M, C/group, spatial...]", str(e.shape(e.in(kB))));
  TensorId acc = e.emit("ConvInteger", {e.in(kA), e.in(kB), e.in(kAZero), e.in(kBZero)}, e.node.attrs);
  if (e.has(kBias)) {
    e.require(e.dtype(e.in(kBias)) == DType::I32 && e.rank(e.in(kBias)) == 1,
              "B is {} {}, expected one i32 for each channel of Y", name(e.dtype(e.in(kBias))),
              str(e.shape(e.in(kBias))));
    acc = e.emit("Add", {acc, with_ones(e, e.in(kBias), spatial)});
  }
  finish(e, acc, 0, spatial);
}

}  // namespace

void register_qlinear(ExpansionRegistry& r) {
  r.add("QLinearMatMul", expand_matmul);
  r.add("QLinearConv", expand_conv);
}

}  // namespace ingot
