// ingot.Conv(X, W, none, extra...) = epilogue(conv(X, W), extra...), with Conv's attributes and channels_last.
// ConvInteger(X, W, x_zero, w_zero) likewise: ingot.ConvInteger(X, W, x_zero, w_zero, extra...).
// The bias is an extra operand like any other: [C, 1, 1] in NCHW, [C] where channels come last. Extra operands are one
// element, one value per output channel, of the shape of the result, or, channels last, one value per pixel.
#include <algorithm>

#include "matcher/cluster.h"
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

bool channels_first_operand(const Editor& e, TensorId t, const Shape& out, EpilogueTypes types) {
  const TensorInfo& info = e.info(t);
  if ((types == EpilogueTypes::kF32 && info.dtype != DType::F32) || !info.shape || info.shape->size() > out.size())
    return false;
  if (product(*info.shape).is(1)) return true;
  Shape s = padded_shape(*info.shape, out.size());
  if (same_shape(s, out)) return true;
  for (size_t i = 0; i < s.size(); i++)
    if (i == 1 ? !(s[i] == out[i]) : !s[i].is(1)) return false;
  return true;
}

// The bias in the shape in which it broadcasts against the result.
TensorId bias_operand(Editor& e, const Node& n, size_t rank) {
  TensorId b = n.inputs[2];
  if (n.get_int("channels_last", 0) != 0) return b;
  const Dim channels = (*e.info(b).shape)[0];
  Shape shape(rank - 1, Dim(1));
  shape[0] = channels;
  if (e.is_constant(b))
    return e.add_constant(e.graph.tensor(b).name + "/channels", reshaped(e.info(b).constant, numbers(shape)));
  std::vector<int64_t> spec(rank - 1, 1);
  spec[0] = -1;
  return e.emit(n, "Reshape", {b, e.add_ints(n.name + "/shape", spec)}, {}, DType::F32, shape);
}

// The filter as it is stored: bf16 or f16 under a Cast to f32.
TensorId stored_filter(const Editor& e, TensorId w) {
  const Node* cast = e.maker(w, "Cast");
  if (!cast || !e.is_constant(cast->inputs[0])) return w;
  const DType t = e.info(cast->inputs[0]).dtype;
  return t == DType::F16 || t == DType::BF16 ? cast->inputs[0] : w;
}

std::string fuse(Editor& e, Handle h) {
  const Node n = e.node(h);
  const TensorId y = n.outputs[0];
  const bool integer = n.op == "ConvInteger";
  for (size_t i = 0; i < n.inputs.size(); i++)
    if (n.has_input(i) && ((!integer && e.info(n.inputs[i]).dtype != DType::F32) || !e.info(n.inputs[i]).shape))
      return "operands are not f32, or of unknown rank";
  if (!e.info(y).shape) return "the shape of the result is not known";
  const Shape out = *e.info(y).shape;
  const bool last = n.get_int("channels_last", 0) != 0;
  ClusterExpr cluster(e);
  int value = cluster.operand(y);  // x0
  if (!integer && n.has_input(2))
    value = cluster.expr().call("add", {value, cluster.operand(bias_operand(e, n, out.size()))});
  cluster.define(y, value);
  const EpilogueTypes types = integer ? EpilogueTypes::kAny : EpilogueTypes::kF32;
  EpilogueNodes epilogue = grow_epilogue(e, y, std::move(cluster), types, [&](TensorId t) {
    return last ? row_column_operand(e, t, out, types) : channels_first_operand(e, t, out, types);
  });

  Node fused{.op = n.op, .domain = "ingot", .name = n.name, .inputs = {n.inputs[0], n.inputs[1]}, .attrs = n.attrs};
  if (!integer) fused.inputs[1] = stored_filter(e, n.inputs[1]);
  if (integer) {
    fused.inputs.insert(fused.inputs.end(), {operand_or_none(n, 2), operand_or_none(n, 3)});
  } else if (!epilogue.operands.empty()) {
    fused.inputs.push_back(kNoTensor);
  }
  replace_with_epilogue(e, h, std::move(fused), epilogue);
  return "";
}

// Those that have no epilogue yet.
bool is_plain_conv(const Node& n) {
  if (n.op != "Conv" && n.op != "ConvInteger") return false;
  return n.domain.empty() || (n.domain == "ingot" && !n.has("epilogue"));
}

void run(Editor& e, const Explain& explain) { fuse_each(e, explain, is_plain_conv, fuse); }

}  // namespace

void register_conv(FusionRegistry& registry) {
  registry.add({.name = "conv",
                .formula = "f(conv(X, W) + b, ...) -> ingot.Conv(X, W, none, b, ...) with epilogue f",
                .pass = run});
}

}  // namespace ingot
