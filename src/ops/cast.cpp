// Cast and CastLike. Between the types expressions compute with they are element-wise operators like any other; from
// and to the smaller types (8-bit and 4-bit floats, integers below a byte) there is a kernel of their own.
#include "kernels/cast_small.h"
#include "kernels/minifloat.h"
#include "ops/elementwise.h"
#include "ops/layout.h"
#include "ops/strings.h"

namespace ingot {
namespace {

bool in_expressions(DType t) {
  if (t == DType::Bool || t == DType::F16 || t == DType::BF16 || t == DType::F32 || t == DType::F64) return true;
  return is_integer(t) && bits(t) >= 8;
}

DType target(const Node& node, DType like) {
  if (node.op == "CastLike") return like;
  auto to = dtype_from_onnx(static_cast<int32_t>(node.need_int("to")));
  if (!to) invalid_model("{}: attribute 'to' is {}, which is no element type", node.label(), node.need_int("to"));
  return *to;
}

Expr expr(const Node& node, const std::vector<DType>& types) {
  const DType to = target(node, types.back());
  Expr e;
  e.input_types = types;
  if (!in_expressions(types[0]) || !in_expressions(to)) return e;
  int r = e.input(0);
  if (value_type(types[0]) != value_type(to)) r = e.call("cast_" + std::string(name(value_type(to))), {r});
  e.results = {r};
  e.result_types = {to};
  return e;
}

void infer(InferContext& ctx) {
  const DType from = ctx.dtype(0), to = target(ctx.node, ctx.dtype(ctx.input_count() - 1));
  if (in_expressions(from) && in_expressions(to)) return infer_like_first(ctx);
  ctx.set_dtype(0, to);
  if (from == DType::String || to == DType::String) return ctx.set_shape(0, ctx.shape(0));
  for (DType t : {from, to})
    if (bits(t) == 0 || t == DType::C64 || t == DType::C128)
      throw Error(ErrorKind::Unsupported, fmt::format("{}: casts {} to {}", ctx.node.label(), name(from), name(to)),
                  "there are no casts of complex numbers");
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) {
  const DType from = ctx.in(0).dtype, to = ctx.out(0).dtype;
  if (in_expressions(from) && in_expressions(to)) return lower_elementwise(ctx);
  const std::string round = ctx.node.get_string("round_mode", "up");
  CastSmallParams p{};
  p.from = static_cast<int64_t>(from);
  p.to = static_cast<int64_t>(to);
  p.saturate = ctx.node.get_int("saturate", 1);
  p.round = round == "down" ? kernel::kRoundDown : round == "nearest" ? kernel::kRoundNearest : kernel::kRoundUp;
  p.count = product_of(ctx.dims(0));
  Step& s = ctx.step(ingot_cast_small_kernel);
  s.operands = {ctx.input(0), ctx.output(0)};
  s.params = params_of(p);
  s.units = (p.count + kCastChunk - 1) / kCastChunk;
}

void run(HostContext& ctx) {
  cast_strings(ctx, target(ctx.node, ctx.node.op == "CastLike" ? ctx.tensor(1)->dtype : DType::Undefined));
}

}  // namespace

void register_cast(OpRegistry& r) {
  r.add({"Cast", "", 1, 1, 1, 1, infer, lower, expr, run});
  r.add({"CastLike", "", 2, 2, 1, 1, infer, lower, expr, run}).like_first = true;
}

}  // namespace ingot
