// Tensors made from a rule (kernels/fill.h): ConstantOfShape, EyeLike, Trilu, OneHot.
#include "kernels/fill.h"

#include <algorithm>
#include <cmath>

#include "ops/layout.h"

namespace ingot {
namespace {

void infer_constant_of_shape(InferContext& ctx) {
  const ConstantPtr value = ctx.node.get_constant("value");
  ctx.require(!value || value->dtype != DType::String, "fills with strings");
  ctx.require(!value || value->elements() == 1, "the value has {} elements, it must have one",
              value ? value->elements() : 0);
  ctx.set_dtype(0, value ? value->dtype : DType::F32);
  const auto dims = ctx.values(0);
  if (!dims) {
    const Shape& s = ctx.shape(0);
    ctx.require(s.size() == 1, "the shape operand must have rank 1, it has shape {}", str(s));
    if (s[0].is_const()) ctx.set_shape(0, unknown_shape(ctx, s[0].value()));
    return;
  }
  const Dim n = product(*dims);
  ctx.set_shape(0, *dims);
  if (!value || !n.is_const() || n.value() > static_cast<int64_t>(kMaxValues)) return;
  auto fill = [&](int64_t v) { ctx.set_values(0, std::vector<Dim>(static_cast<size_t>(n.value()), Dim(v))); };
  if (value->dtype == DType::I64) fill(value->as<int64_t>()[0]);
  if (value->dtype == DType::I32) fill(value->as<int32_t>()[0]);
  if (value->dtype == DType::Bool) fill(value->as<uint8_t>()[0]);
}

void lower_constant_of_shape(LowerContext& ctx) {
  const DType dtype = ctx.out(0).dtype;
  const ConstantPtr value = ctx.node.get_constant("value");
  FillParams p{};
  p.size = element_bytes(ctx, dtype);
  if (value) std::memcpy(&p.low, value->bytes.data(), static_cast<size_t>(p.size));
  Step& step = ctx.step(ingot_fill_kernel);
  step.operands = {ctx.output(0)};
  step.units = product_of(ctx.out_dims(0));
  step.grain = grain_for(p.size);
  step.params = params_of(p);
}

void infer_eye_like(InferContext& ctx) {
  const int64_t wanted = ctx.node.get_int("dtype", static_cast<int64_t>(ctx.dtype(0)));
  const auto dtype = dtype_from_onnx(static_cast<int32_t>(wanted));
  ctx.require(dtype.has_value(), "dtype {} is not an element type", wanted);
  ctx.set_dtype(0, *dtype);
  ctx.require(ctx.rank(0) == 2, "the input must have rank 2, it has shape {}", str(ctx.shape(0)));
  ctx.set_shape(0, ctx.shape(0));
}

int64_t bits_of_one(const LowerContext& ctx, DType t) {
  switch (t) {
    case DType::F32:
      return 0x3f800000;
    case DType::F64:
      return 0x3ff0000000000000;
    case DType::F16:
      return 0x3c00;
    case DType::BF16:
      return 0x3f80;
    default:
      if (!is_integer(t) && t != DType::Bool) ctx.fail("there is no diagonal of type {}", name(t));
      return 1;
  }
}

void lower_eye_like(LowerContext& ctx) {
  const auto dims = ctx.out_dims(0);
  EyeParams p{};
  p.size = element_bytes(ctx, ctx.out(0).dtype);
  p.columns = dims[1];
  p.k = std::clamp(ctx.node.get_int("k", 0), -dims[0], dims[1]);
  p.one = bits_of_one(ctx, ctx.out(0).dtype);
  Step& step = ctx.step(ingot_eye_kernel);
  step.operands = {ctx.output(0)};
  step.units = dims[1] == 0 ? 0 : dims[0];
  step.grain = grain_for(p.columns * p.size);
  step.params = params_of(p);
}

void infer_trilu(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  ctx.require(in.size() >= 2, "the input needs at least rank 2, it has shape {}", str(in));
  ctx.set_shape(0, in);
  if (ctx.has(1) && ctx.in(1).shape)
    ctx.require(!product(ctx.shape(1)).is_const() || product(ctx.shape(1)).is(1), "k must be a scalar, it has shape {}",
                str(ctx.shape(1)));
}

void lower_trilu(LowerContext& ctx) {
  const auto dims = ctx.dims(0);
  TriluParams p{};
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  p.rows = dims[dims.size() - 2];
  p.columns = dims.back();
  p.upper = ctx.node.get_int("upper", 1) != 0;
  Step& step = ctx.step(ingot_trilu_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.columns == 0 ? 0 : product_of(dims) / p.columns;
  step.grain = grain_for(p.columns * p.size);
  step.params = params_of(p);
  step.in_place = 0;
}

void infer_one_hot(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(2));
  const Shape& in = ctx.shape(0);
  Dim depth = Dim::unknown();
  if (is_float(ctx.dtype(1))) {
    const auto given = ctx.scalar(1);
    if (!given && ctx.at_run_time()) throw ValuesNeeded{1};
    ctx.require(!given || std::abs(*given) < 0x1p62, "a depth of {} is too large", *given);
    if (given) depth = static_cast<int64_t>(*given);
  } else if (const auto given = ctx.values(1)) {
    ctx.require(given->size() == 1, "depth must be a scalar, it has {} elements", given->size());
    depth = (*given)[0];
  }
  ctx.require(!depth.is_const() || depth.value() >= 0, "depth {} is negative", depth.str());
  const Dim two = product(ctx.shape(2));
  ctx.require(!two.is_const() || two.is(2), "values must be [off, on], they have shape {}", str(ctx.shape(2)));
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", -1), ctx.rank(0) + 1);
  Shape out = in;
  out.insert(out.begin() + axis, depth);
  ctx.set_shape(0, std::move(out));
}

void lower_one_hot(LowerContext& ctx) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  const int64_t given = ctx.node.get_int("axis", -1);
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(out.size()) : given);
  OneHotParams p{};
  p.size = element_bytes(ctx, ctx.out(0).dtype);
  p.index_dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.depth = out[axis];
  p.inner = product_of(in, axis);
  Step& step = ctx.step(ingot_one_hot_kernel);
  step.operands = {ctx.input(0), ctx.input(2), ctx.output(0)};
  step.units = p.depth * p.inner == 0 ? 0 : product_of(in, 0, axis);
  step.grain = grain_for(p.depth * p.inner * p.size);
  step.params = params_of(p);
}

}  // namespace

void register_fill(OpRegistry& r) {
  r.add({"ConstantOfShape", "", 1, 1, 1, 1, infer_constant_of_shape, lower_constant_of_shape});
  r.add({"EyeLike", "", 1, 1, 1, 1, infer_eye_like, lower_eye_like});
  r.add({"Trilu", "", 1, 2, 1, 1, infer_trilu, lower_trilu});
  r.add({"OneHot", "", 3, 3, 1, 1, infer_one_hot, lower_one_hot});
}

}  // namespace ingot
