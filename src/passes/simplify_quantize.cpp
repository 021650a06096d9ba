// Quantized tensors stay quantized: what only moves elements, or picks the largest, is done before DequantizeLinear and
// so on the integers; a QuantizeLinear that undoes a DequantizeLinear is nothing.
#include <algorithm>

#include "ops/op.h"
#include "passes/constants.h"
#include "passes/qdq.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// QuantizeLinear(DequantizeLinear(x, s, z), s, z) -> x
bool undone(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const auto outer = read_qdq(e, n);
  if (!outer) return false;
  const auto inner = read_dequantized(e, outer->x);
  if (!inner || !same_qdq(e, *inner, *outer) || e.info(inner->x).dtype != e.info(n.outputs[0]).dtype) return false;
  return e.replace_uses(n.outputs[0], inner->x);
}

// node(..., x, ...) in place of node h, which had dequantized operands, and a DequantizeLinear after it, along `axis`.
void sink(Editor& e, Handle h, const QdqNode& q, std::vector<TensorId> inputs, int64_t axis = QdqNode::kPerTensor) {
  const Node n = e.node(h);
  const TensorId y = e.emit(n, n.op, std::move(inputs), n.attrs, e.info(q.x).dtype, e.info(n.outputs[0]).shape);
  Node after{.op = "DequantizeLinear", .inputs = {y, q.scale}};
  if (q.zero != kNoTensor) after.inputs.push_back(q.zero);
  if (axis != QdqNode::kPerTensor) after.attrs["axis"] = axis;
  e.replace(h, std::move(after));
}

// f(DequantizeLinear(x)) -> DequantizeLinear(f(x)) for f that moves elements of its first operand.
bool moves(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (n.outputs.size() != 1) return false;
  const auto q = read_dequantized(e, n.inputs[0]);
  if (!q || q->axis != QdqNode::kPerTensor) return false;
  if (n.is("MaxPool") && bits(e.info(q->x).dtype) != 8) return false;
  std::vector<TensorId> inputs = n.inputs;
  inputs[0] = q->x;
  sink(e, h, *q, std::move(inputs));
  return true;
}

// The same of Transpose where scales lie along an axis, which moves with it.
bool transposed_axis(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const auto q = read_dequantized(e, n.inputs[0]);
  const std::vector<int64_t> perm = transpose_perm(e, n);
  if (!q || q->axis == QdqNode::kPerTensor || perm.empty()) return false;
  const auto at = std::find(perm.begin(), perm.end(), q->axis) - perm.begin();
  sink(e, h, *q, {q->x}, at);
  return true;
}

// The node that makes t, where it moves all elements of its first operand and nobody else reads t.
const Node* mover(const Editor& e, TensorId t) {
  const Node* f = e.maker(t);
  if (!f || traits(*f).movement < Movement::kAll || !e.single_use(t) || !e.info(f->inputs[0]).shape) return nullptr;
  return f;
}

// QuantizeLinear(f(x)) -> f(QuantizeLinear(x)) for f that moves all elements of its first operand: bytes are moved, and
// quantizing meets what made x.
bool quantized_before(Editor& e, Handle h) {
  const Node n = e.node(h);
  const auto q = read_qdq(e, n);
  const Node* f = q ? mover(e, q->x) : nullptr;
  if (!f || q->axis != QdqNode::kPerTensor) return false;
  Node moved = *f;
  std::vector<TensorId> inputs = n.inputs;
  inputs[0] = moved.inputs[0];
  moved.inputs[0] = e.emit(n, n.op, inputs, n.attrs, e.info(n.outputs[0]).dtype, e.info(moved.inputs[0]).shape);
  e.replace(h, Node{.op = moved.op, .inputs = moved.inputs, .attrs = moved.attrs});
  return true;
}

// DynamicQuantizeLinear(Reshape(x)) -> Reshape of the first result of DynamicQuantizeLinear(x). A Transpose stays: it
// may yet become a layout of what made x.
bool dynamically_quantized_before(Editor& e, Handle h) {
  const Node n = e.node(h);
  const Node* f = mover(e, n.inputs[0]);
  if (!f || f->op != "Reshape" || n.outputs.size() != 3 || n.outputs[0] == kNoTensor) return false;
  Node moved = *f, quantize{.op = n.op, .name = n.name, .inputs = {f->inputs[0]}, .origins = n.origins};
  for (size_t i = 0; i < n.outputs.size(); i++) {
    if (n.outputs[i] == kNoTensor) {
      quantize.outputs.push_back(kNoTensor);
      continue;
    }
    const TensorInfo old = e.info(n.outputs[i]);
    const auto shape = i == 0 ? e.info(f->inputs[0]).shape : old.shape;
    quantize.outputs.push_back(e.add_value(e.graph.tensor(n.outputs[i]).name, old.dtype, shape));
  }
  e.add(quantize);
  moved.inputs[0] = quantize.outputs[0];
  const TensorId y = e.emit(n, moved.op, moved.inputs, moved.attrs, DType::U8, e.info(n.outputs[0]).shape);
  e.replace_uses(n.outputs[0], y);
  for (size_t i = 1; i < n.outputs.size(); i++)
    if (n.outputs[i] != kNoTensor) e.replace_uses(n.outputs[i], quantize.outputs[i]);
  return true;
}

// Concat(DequantizeLinear(x), DequantizeLinear(y)) with one scale and zero point -> DequantizeLinear(Concat(x, y))
bool concat(Editor& e, Handle h) {
  const Node& n = e.node(h);
  std::vector<TensorId> inputs;
  std::optional<QdqNode> first;
  for (TensorId t : n.inputs) {
    const auto q = read_dequantized(e, t);
    if (!q || q->axis != QdqNode::kPerTensor) return false;
    if (!first) first = q;
    if (!same_qdq(e, *first, *q) || e.info(q->x).dtype != e.info(first->x).dtype) return false;
    inputs.push_back(q->x);
  }
  if (!first) return false;
  sink(e, h, *first, std::move(inputs));
  return true;
}

// Relu(DequantizeLinear(x, s, lowest)) -> DequantizeLinear(x, s, lowest): nothing is below zero.
bool relu(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const auto q = read_dequantized(e, n.inputs[0]);
  if (!q) return false;
  const DType t = e.info(q->x).dtype;
  const auto zero = known_zero_point(e, *q);
  const double lowest = t == DType::I8 ? -128 : t == DType::I16 ? -32768 : 0;
  if (!zero || *zero != lowest || t == DType::I32) return false;
  return e.replace_uses(n.outputs[0], n.inputs[0]);
}

constexpr SimplifyRule kRules[] = {
    {"QuantizeLinear", undone},
    {"QuantizeLinear", quantized_before},
    {"DynamicQuantizeLinear", dynamically_quantized_before},
    {"Concat", concat},
    {"Relu", relu},
    {"Reshape", moves},
    {"Transpose", transposed_axis},
    {"Transpose", moves},
    {"Squeeze", moves},
    {"Unsqueeze", moves},
    {"Flatten", moves},
    {"Slice", moves},
    {"Gather", moves},
    {"Expand", moves},
    {"Tile", moves},
    {"DepthToSpace", moves},
    {"SpaceToDepth", moves},
    {"MaxPool", moves},
};

}  // namespace

std::span<const SimplifyRule> simplify_quantize_rules() { return kRules; }

}  // namespace ingot
