// DFT and STFT (kernels/dft.h).
#include "kernels/dft.h"

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 24;

void check_type(const InferContext& ctx) {
  const DType t = ctx.dtype(0);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "the signal is {}, expected f16, bf16, f32 or f64",
              name(t));
}

// The value of a scalar operand, which shapes depend on; unknown where only execution can tell.
Dim scalar_value(const InferContext& ctx, size_t i, const char* what) {
  const auto v = ctx.values(i);
  if (!v) return Dim::unknown();
  ctx.require(v->size() == 1, "{} must be a scalar, it has {} elements", what, v->size());
  return (*v)[0];
}

void check_length(const InferContext& ctx, const Dim& n) {
  ctx.require(!n.is_const() || (n.value() >= 1 && n.value() <= kMaxLength), "a transform of length {} is not possible",
              n.str());
}

void infer_dft(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  check_type(ctx);
  Shape out = ctx.shape(0);
  const int64_t rank = ctx.rank(0);
  ctx.require(rank >= 2 && (!out.back().is_const() || out.back().is(1) || out.back().is(2)),
              "the input is {}, expected [..., 1] for real numbers or [..., 2] for complex ones", str(out));
  const bool onesided = ctx.node.get_int("onesided", 0) != 0, inverse = ctx.node.get_int("inverse", 0) != 0;
  if (onesided)
    ctx.require(!out.back().is(inverse ? 1 : 2), "the input is {}, but onesided needs {} numbers", str(out),
                inverse ? "complex" : "real");
  const Dim real = onesided && inverse ? 1 : 2;
  Dim axis = ctx.has(2) ? scalar_value(ctx, 2, "axis") : Dim(-2);
  if (!axis.is_const()) {
    for (Dim& d : out) d = Dim::unknown();
    out.back() = real;
    return ctx.set_shape(0, out);
  }
  const int64_t a = ctx.axis(axis.value(), rank);
  ctx.require(a != rank - 1, "axis {} is that of real and imaginary parts", axis.value());
  Dim& d = out[static_cast<size_t>(a)];
  Dim n = d;
  if (ctx.has(1))
    n = scalar_value(ctx, 1, "dft_length");
  else if (onesided && inverse)
    n = (d - 1) * 2;
  check_length(ctx, n);
  d = onesided && !inverse ? floor_div(n, 2) + 1 : n;
  out.back() = real;
  ctx.set_shape(0, std::move(out));
}

// Fills the table and transforms `lines` lines with it.
void emit_dft(LowerContext& ctx, DftParams p, int64_t lines, Operand window) {
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.padded = dft_padded(p.n);
  if (lines == 0) return;
  const Operand table = ctx.shared_temporary(8 * dft_table_doubles(p.n, p.padded));
  Step& fill = ctx.step(ingot_dft_table_kernel);
  fill.operands = {table};
  fill.params = params_of(p);
  fill.scratch = p.padded ? 8 * dft_scratch_doubles(p.n, p.padded) : 0;
  Step& s = ctx.step(ingot_dft_kernel);
  s.operands = {ctx.input(0), window, table, ctx.output(0)};
  s.params = params_of(p);
  s.units = lines;
  s.grain = grain_for(p.n * 64);
  s.scratch = 8 * dft_scratch_doubles(p.n, p.padded);
}

void lower_dft(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  const int64_t rank = static_cast<int64_t>(in.size());
  int64_t axis = ctx.has(2) ? ctx.values(2)[0] : -2;
  if (axis < 0) axis += rank;
  const auto a = static_cast<size_t>(axis);
  const bool onesided = ctx.node.get_int("onesided", 0) != 0;
  DftParams p{};
  p.inverse = ctx.node.get_int("inverse", 0) != 0;
  p.hermitian = onesided && p.inverse;
  p.n = ctx.has(1) ? ctx.values(1)[0] : p.hermitian ? 2 * (in[a] - 1) : in[a];
  p.in = std::min(in[a], p.hermitian ? p.n / 2 + 1 : p.n);
  p.out = out[a];
  p.in_parts = in.back();
  p.out_parts = out.back();
  p.minor = product_of(in, a + 1, in.size() - 1);
  p.in_minor = p.in_parts;
  p.in_step = p.minor * p.in_parts;
  p.in_major = in[a] * p.in_step;
  p.out_minor = p.out_parts;
  p.out_step = p.minor * p.out_parts;
  p.out_major = out[a] * p.out_step;
  emit_dft(ctx, p, product_of(in, 0, a) * p.minor, {});
}

// ONNX wants [batch, length, 1] of real signals; exporters write [batch, length], and onnxruntime takes it.
void infer_stft(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  check_type(ctx);
  Shape x = ctx.shape(0);
  if (x.size() == 2) x.push_back(1);
  ctx.require(x.size() == 3 && (!x[2].is_const() || x[2].is(1) || x[2].is(2)),
              "the signal is {}, expected [batch, length], [batch, length, 1] or, for complex numbers, "
              "[batch, length, 2]",
              str(x));
  const Dim step = scalar_value(ctx, 1, "frame_step");
  ctx.require(!step.is_const() || step.value() > 0, "frame_step is {}", step.str());
  Dim n = x[1];
  if (ctx.has(2)) {
    const Shape& w = ctx.shape(2);
    ctx.require(w.size() == 1 && ctx.dtype(2) == ctx.dtype(0), "the window is {} {}, expected {} of rank 1",
                name(ctx.dtype(2)), str(w), name(ctx.dtype(0)));
    n = w[0];
  }
  if (ctx.has(3)) {
    const Dim length = scalar_value(ctx, 3, "frame_length");
    ctx.require(!ctx.has(2) || !length.is_const() || !n.is_const() || length == n,
                "frame_length is {}, the window has {} elements", length.str(), n.str());
    if (!ctx.has(2) || !n.is_const()) n = length;
  }
  check_length(ctx, n);
  ctx.require(!n.is_const() || !x[1].is_const() || n.value() <= x[1].value(),
              "a frame of {} is longer than the signal {}", n.str(), str(x));
  const bool onesided = ctx.node.get_int("onesided", 1) != 0;
  ctx.require(!onesided || !x[2].is(2), "the signal {} is complex, but onesided needs real numbers", str(x));
  ctx.set_shape(0, {x[0], floor_div(x[1] - n, step) + 1, onesided ? floor_div(n, 2) + 1 : n, 2});
}

void lower_stft(LowerContext& ctx) {
  auto in = ctx.dims(0);
  const auto out = ctx.out_dims(0);
  if (in.size() == 2) in.push_back(1);
  DftParams p{};
  p.n = ctx.has(2) ? ctx.dims(2)[0] : ctx.has(3) ? ctx.values(3)[0] : in[1];
  p.in = p.n;
  p.out = out[2];
  p.in_parts = p.in_step = in[2];
  p.out_parts = p.out_step = 2;
  p.minor = out[1];
  p.in_major = in[1] * in[2];
  p.in_minor = ctx.values(1)[0] * in[2];
  p.out_minor = out[2] * 2;
  p.out_major = out[1] * p.out_minor;
  emit_dft(ctx, p, out[0] * out[1], ctx.input(2));
}

}  // namespace

void register_dft(OpRegistry& r) {
  r.add({"DFT", "", 1, 3, 1, 1, infer_dft, lower_dft});
  r.add({"STFT", "", 2, 4, 1, 1, infer_stft, lower_stft});
}

}  // namespace ingot
