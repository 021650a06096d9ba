#include "ops/via_f32.h"

#include <algorithm>
#include <map>

#include "ops/elementwise.h"

namespace ingot {
namespace {

Expr conversion(DType from, DType to) {
  Expr e;
  e.input_types = {from};
  e.results = {e.input(0)};
  e.result_types = {to};
  return e;
}

}  // namespace

void lower_via_f32(LowerContext& ctx, void (*lower)(LowerContext&), const std::vector<size_t>& as_they_are) {
  std::map<TensorId, Operand> widened;
  std::vector<TensorInfo> ins(ctx.node.inputs.size()), outs(ctx.node.outputs.size());
  std::vector<const TensorInfo*> in_pointers, out_pointers;
  auto as_f32 = [&](const TensorInfo& info, TensorId id) {
    TensorInfo wide = info;
    if (!is_half(info.dtype)) return wide;
    wide.dtype = DType::F32;
    wide.constant = nullptr;
    if (!widened.contains(id)) widened[id] = ctx.shared_temporary(4 * product(*info.shape).value());
    return wide;
  };
  for (size_t i = 0; i < ins.size(); i++) {
    const TensorId id = ctx.node.inputs[i];
    const bool kept = std::find(as_they_are.begin(), as_they_are.end(), i) != as_they_are.end();
    const bool fresh = ctx.has(i) && !kept && is_half(ctx.in(i).dtype) && !widened.contains(id);
    if (ctx.has(i)) ins[i] = kept ? ctx.in(i) : as_f32(ctx.in(i), id);
    if (fresh)
      emit_elementwise(ctx, conversion(ctx.in(i).dtype, DType::F32), {{ctx.input(i), ctx.dims(i)}}, {widened[id]},
                       ctx.dims(i));
    in_pointers.push_back(ctx.has(i) ? &ins[i] : nullptr);
  }
  for (size_t i = 0; i < outs.size(); i++) {
    if (ctx.has_out(i)) outs[i] = as_f32(ctx.out(i), ctx.node.outputs[i]);
    out_pointers.push_back(ctx.has_out(i) ? &outs[i] : nullptr);
  }

  LowerContext inner(ctx.node, ctx.target, std::move(in_pointers), std::move(out_pointers));
  inner.next_temporary = ctx.next_temporary;
  lower(inner);
  if (!inner.views.empty()) ctx.fail("a view cannot change the element type");
  ctx.next_temporary = inner.next_temporary;
  for (Step& s : inner.steps) {
    for (Operand& o : s.operands)
      if (auto it = widened.find(o.id); o.kind == Operand::kTensor && it != widened.end()) o = it->second;
    ctx.steps.push_back(std::move(s));
  }
  for (size_t i = 0; i < outs.size(); i++)
    if (ctx.has_out(i) && is_half(ctx.out(i).dtype))
      emit_elementwise(ctx, conversion(DType::F32, ctx.out(i).dtype), {{widened[ctx.node.outputs[i]], ctx.out_dims(i)}},
                       {ctx.output(i)}, ctx.out_dims(i));
}

}  // namespace ingot
