// Random operators (kernels/random.h). With the attribute seed they give the same numbers every time.
#include "kernels/random.h"

#include <bit>

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

DType type_attribute(const InferContext& ctx, DType fallback) {
  if (!ctx.node.has("dtype")) return fallback;
  const int64_t number = ctx.node.get_int("dtype", 0);
  const auto t = dtype_from_onnx(static_cast<int32_t>(number));
  ctx.require(t.has_value(), "attribute 'dtype' is {}, which is no element type", number);
  return *t;
}
bool is_common_float(DType t) { return is_half(t) || t == DType::F32 || t == DType::F64; }
void require_float(const InferContext& ctx, DType t) {
  ctx.require(is_common_float(t), "random numbers of type {}, expected f16, bf16, f32 or f64", name(t));
}

int64_t seed_of(const Node& node) { return static_cast<int64_t>(std::bit_cast<uint32_t>(node.get_float("seed", 0))); }
// The key as the kernels' first operand: none where there is a seed.
Operand draw_key(LowerContext& ctx, bool seeded) {
  if (seeded) return {};
  const Operand key = ctx.shared_temporary(8);
  ctx.step(ingot_random_key_kernel).operands = {key};
  return key;
}
Operand draw_key(LowerContext& ctx) { return draw_key(ctx, ctx.node.has("seed")); }

int64_t chunks(int64_t count) { return (count + kRandomChunk - 1) / kRandomChunk; }

void infer_shaped(InferContext& ctx) {
  const DType t = type_attribute(ctx, DType::F32);
  ctx.set_dtype(0, t);
  require_float(ctx, t);
  const auto dims = ctx.node.get_ints("shape");
  ctx.set_shape(0, Shape(dims.begin(), dims.end()));
}
void infer_like(InferContext& ctx) {
  const DType t = type_attribute(ctx, ctx.dtype(0));
  ctx.set_dtype(0, t);
  require_float(ctx, t);
  ctx.set_shape(0, ctx.shape(0));
}
void infer_bernoulli(InferContext& ctx) {
  const DType t = type_attribute(ctx, ctx.dtype(0));
  ctx.set_dtype(0, t);
  ctx.require(is_common_float(ctx.dtype(0)), "the probabilities are {}, expected f16, bf16, f32 or f64",
              name(ctx.dtype(0)));
  ctx.require(is_common_float(t) || t == DType::Bool || (is_integer(t) && bits(t) >= 8), "cannot draw {}", name(t));
  ctx.set_shape(0, ctx.shape(0));
}

void lower_random(LowerContext& ctx) {
  const Node& node = ctx.node;
  RandomParams p{};
  p.kind = node.op == "Bernoulli"                ? kRandomBernoulli
           : node.op.starts_with("RandomNormal") ? kRandomNormal
                                                 : kRandomUniform;
  p.in_type = p.kind == kRandomBernoulli ? static_cast<int64_t>(ctx.in(0).dtype) : 0;
  p.out_type = static_cast<int64_t>(ctx.out(0).dtype);
  p.seed = seed_of(node);
  p.count = product_of(ctx.out_dims(0));
  const bool is_normal = p.kind == kRandomNormal;
  p.a = static_cast<double>(node.get_float(is_normal ? "mean" : "low", 0));
  p.b = static_cast<double>(node.get_float(is_normal ? "scale" : "high", 1));
  const Operand key = draw_key(ctx);
  Step& s = ctx.step(ingot_random_kernel);
  s.operands = {key, p.kind == kRandomBernoulli ? ctx.input(0) : Operand{}, ctx.output(0)};
  s.params = params_of(p);
  s.units = chunks(p.count);
}

void infer_multinomial(InferContext& ctx) {
  const DType t = type_attribute(ctx, DType::I32);
  ctx.set_dtype(0, t);
  ctx.require(t == DType::I32 || t == DType::I64, "cannot draw {}, expected i32 or i64", name(t));
  require_float(ctx, ctx.dtype(0));
  const Shape& x = ctx.shape(0);
  ctx.require(x.size() == 2 && !x[1].is(0), "the input is {}, expected [batch, classes]", str(x));
  ctx.set_shape(0, {x[0], ctx.node.get_int("sample_size", 1)});
}

void lower_multinomial(LowerContext& ctx) {
  const auto in = ctx.dims(0);
  const MultinomialParams p{static_cast<int64_t>(ctx.in(0).dtype), static_cast<int64_t>(ctx.out(0).dtype),
                            seed_of(ctx.node), in[1], ctx.out_dims(0)[1]};
  const Operand key = draw_key(ctx);
  Step& s = ctx.step(ingot_multinomial_kernel);
  s.operands = {key, ctx.input(0), ctx.output(0)};
  s.params = params_of(p);
  s.units = in[0];
  s.scratch = 8 * p.classes;
}

// In inference Dropout is nothing, which the extractors see where training_mode is not given or false.
void infer_dropout(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_dtype(1, DType::Bool);
  require_float(ctx, ctx.dtype(0));
  if (ctx.has(1)) require_float(ctx, ctx.dtype(1));
  for (size_t i : {1u, 2u})
    if (ctx.has(i)) {
      const Dim count = product(ctx.shape(i));
      ctx.require(!count.is_const() || count.is(1), "operand {} is {}, expected a scalar", i, str(ctx.shape(i)));
    }
  ctx.require(!ctx.has(2) || ctx.dtype(2) == DType::Bool, "training_mode is {}, expected bool",
              ctx.has(2) ? name(ctx.dtype(2)) : "");
  ctx.set_shape(0, ctx.shape(0));
  ctx.set_shape(1, ctx.shape(0));
}

void lower_dropout(LowerContext& ctx) {
  const int64_t count = product_of(ctx.dims(0));
  const DropoutParams p{static_cast<int64_t>(ctx.in(0).dtype),
                        static_cast<int64_t>(ctx.has(1) ? ctx.in(1).dtype : DType::F32), ctx.node.get_int("seed", 0),
                        count};
  const Operand y = ctx.has_out(0) ? ctx.output(0) : ctx.shared_temporary(byte_size(ctx.in(0).dtype, count));
  const Operand key = draw_key(ctx);
  Step& s = ctx.step(ingot_dropout_kernel);
  s.operands = {key, ctx.input(0), ctx.input(1), ctx.input(2), y, ctx.output(1)};
  s.params = params_of(p);
  s.units = key.kind == Operand::kNull ? 1 : chunks(count);
}

}  // namespace

void register_random(OpRegistry& r) {
  r.add({"RandomNormal", "", 0, 0, 1, 1, infer_shaped, lower_random}).random = true;
  r.add({"RandomUniform", "", 0, 0, 1, 1, infer_shaped, lower_random}).random = true;
  r.add({"RandomNormalLike", "", 1, 1, 1, 1, infer_like, lower_random}).random = true;
  r.add({"RandomUniformLike", "", 1, 1, 1, 1, infer_like, lower_random}).random = true;
  r.add({"Bernoulli", "", 1, 1, 1, 1, infer_bernoulli, lower_random}).random = true;
  r.add({"Multinomial", "", 1, 1, 1, 1, infer_multinomial, lower_multinomial}).random = true;
  r.add({"Dropout", "", 1, 3, 1, 2, infer_dropout, lower_dropout}).random = true;
}

}  // namespace ingot
