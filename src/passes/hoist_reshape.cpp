// Reshape(f(x), [a..., N]) -> f(Reshape(x, [a..., K])) where f is a chain of linear layers over a matrix and
// element-wise nodes along the last axis, and the new Reshape meets one that is there already. Exporters flatten
// [batch, seq, K] to a matrix around Gemm; without the reshapes the residual added afterwards is seen to have the
// shape of the result.
#include <algorithm>

#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// The operand through which a row of the result depends on a row of it alone, or -1.
int row_operand(const Editor& e, const Node& n) {
  if (n.outputs.size() != 1 || !e.info(n.outputs[0]).shape) return -1;
  const Shape& out = *e.info(n.outputs[0]).shape;
  if (n.is("MatMulInteger")) {
    const auto &a = e.info(n.inputs[0]).shape, &w = e.info(n.inputs[1]).shape;
    const bool one_zero = !n.has_input(2) || (e.info(n.inputs[2]).shape && product(*e.info(n.inputs[2]).shape).is(1));
    return w && a && w->size() == 2 && a->size() >= 2 && one_zero ? 0 : -1;
  }
  if (n.is("Gemm") || n.is("MatMul") || n.is("MatMul", "ingot")) {
    const auto& w = e.info(n.inputs[1]).shape;
    const auto& a = e.info(n.inputs[0]).shape;
    if (!w || !a || w->size() != 2 || a->size() < 2 || n.get_int("transA", 0) != 0) return -1;
    if (n.is("Gemm") && n.has_input(2)) {
      const auto& c = e.info(n.inputs[2]).shape;
      if (!c || (c->size() > 1 && !(*c)[0].is(1)) || c->size() > 2) return -1;  // one bias for all rows
    }
    return 0;
  }
  if (!is_elementwise(n)) return -1;
  int main = -1;
  for (size_t i = 0; i < n.inputs.size(); i++) {
    if (n.inputs[i] == kNoTensor) continue;
    const auto& s = e.info(n.inputs[i]).shape;
    if (!s) return -1;
    if (same_shape(*s, out) && main < 0 && !e.is_constant(n.inputs[i]))
      main = static_cast<int>(i);
    else if (s->size() > 1 || (s->size() == 1 && !(*s)[0].is(1) && !((*s)[0] == out.back())))
      return -1;
  }
  return main;
}

// The chain of nodes from the Reshape upwards to another Reshape; empty when there is none.
std::vector<Handle> chain_to_reshape(const Editor& e, TensorId t) {
  std::vector<Handle> chain;
  while (chain.size() < 16) {
    Handle h = e.producer(t);
    if (h == Editor::kNone) return {};
    if (e.node(h).is("Reshape")) return chain;
    if (!e.single_use(t)) return {};
    int operand = row_operand(e, e.node(h));
    if (operand < 0) return {};
    chain.push_back(h);
    t = e.node(h).inputs[static_cast<size_t>(operand)];
  }
  return {};
}

// Gemm takes matrices only: with leading axes it is MatMul and an addition. Nothing when alpha or beta are in the way.
bool can_lift(const Node& n) {
  if (!n.is("Gemm")) return true;
  return n.get_float("alpha", 1.f) == 1.f && (!n.has_input(2) || n.get_float("beta", 1.f) == 1.f);
}

TensorId lift_gemm(Editor& e, const Node& n, TensorId x, const Shape& lead) {
  TensorId w = n.inputs[1];
  Shape ws = *e.info(w).shape;
  if (n.get_int("transB", 0) != 0) {
    std::vector<int64_t> perm = {1, 0};
    ws = permuted(ws, perm);
    w = e.emit(n, "Transpose", {w}, {{"perm", perm}}, e.info(w).dtype, ws);  // products read W where it lies
  }
  Shape out = lead;
  out.push_back(ws[1]);
  TensorId y = e.emit(n, "MatMul", {x, w}, {}, e.info(x).dtype, out);
  return n.has_input(2) ? e.emit(n, "Add", {y, n.inputs[2]}, {}, e.info(x).dtype, out) : y;
}

bool hoist(Editor& e, Handle h) {
  const Node n = e.node(h);
  const auto &from = e.info(n.inputs[0]).shape, &to = e.info(n.outputs[0]).shape;
  if (!from || !to || from->size() < 2 || to->size() < 2 || !(from->back() == to->back())) return false;
  std::vector<Handle> chain = chain_to_reshape(e, n.inputs[0]);
  bool linear = std::any_of(chain.begin(), chain.end(), [&](Handle c) { return !is_elementwise(e.node(c)); });
  if (!linear || !std::all_of(chain.begin(), chain.end(), [&](Handle c) { return can_lift(e.node(c)); })) return false;

  const Node& top = e.node(chain.back());
  TensorId start = top.inputs[static_cast<size_t>(row_operand(e, top))];
  const Shape lead(to->begin(), to->end() - 1);
  Shape start_shape = lead;
  start_shape.push_back(e.info(start).shape->back());
  // The shape of the Reshape above must be expressible from its own operand.
  TensorId source = e.maker(start, "Reshape")->inputs[0];
  std::optional<TensorId> x;
  if (e.info(source).shape && same_shape(*e.info(source).shape, start_shape)) x = source;
  if (!x) x = emit_reshape(e, n, source, start_shape);
  if (!x) return false;

  TensorId value = *x;
  for (size_t i = chain.size(); i-- > 0;) {
    const Node c = e.node(chain[i]);
    if (c.is("Gemm")) {
      value = lift_gemm(e, c, value, lead);
      continue;
    }
    std::vector<TensorId> inputs = c.inputs;
    inputs[static_cast<size_t>(row_operand(e, c))] = value;
    Shape out = lead;
    out.push_back(e.info(c.outputs[0]).shape->back());
    value = e.emit(c, c.op, std::move(inputs), c.attrs, e.info(c.outputs[0]).dtype, out, c.domain);
  }
  return e.replace_uses(n.outputs[0], value);
}

}  // namespace

void hoist_reshape(Graph& graph) {
  Editor e(graph);
  for (Handle h = 0, end = e.size(); h < end; h++)
    if (e.alive(h) && e.node(h).is("Reshape")) hoist(e, h);
  e.finish();
}

}  // namespace ingot
