// ReverseSequence:  out[b, t, :] = in[b, length_b - 1 - t, :] for t < length_b, else in[b, t, :]; time and batch are
// axes 0 and 1 in either order.
#include "kernels/gather.h"
#include "ops/layout.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape &in = ctx.shape(0), &lengths = ctx.shape(1);
  ctx.require(in.size() >= 2, "the input needs at least rank 2, it has shape {}", str(in));
  const int64_t time = ctx.node.get_int("time_axis", 0), batch = ctx.node.get_int("batch_axis", 1);
  ctx.require((time == 0 && batch == 1) || (time == 1 && batch == 0),
              "time_axis {} and batch_axis {} must be 0 and 1, or 1 and 0", time, batch);
  const Dim& n = in[static_cast<size_t>(batch)];
  ctx.require(lengths.size() == 1 && (!lengths[0].is_const() || !n.is_const() || lengths[0] == n),
              "sequence_lens has shape {}; the input {} has a batch of {}", str(lengths), str(in), n.str());
  ctx.set_shape(0, in);
}

void lower(LowerContext& ctx) {
  const auto in = ctx.dims(0);
  ReverseSequenceParams p{};
  p.rows[0] = in[0];
  p.rows[1] = in[1];
  p.row = product_of(in, 2) * element_bytes(ctx, ctx.in(0).dtype);
  p.time = ctx.node.get_int("time_axis", 0);
  Step& step = ctx.step(ingot_reverse_sequence_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.row == 0 ? 0 : in[0] * in[1];
  step.grain = grain_for(p.row);
  step.params = params_of(p);
}

}  // namespace

void register_reverse_sequence(OpRegistry& r) { r.add({"ReverseSequence", "", 2, 2, 1, 1, infer, lower}); }

}  // namespace ingot
