// Transposes: composed, recognised between reshapes, and moved through element-wise nodes where two can meet.
#include <algorithm>
#include <numeric>

#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {

std::vector<int64_t> transpose_perm(const Editor& e, const Node& n) {
  if (n.has("perm")) return n.get_ints("perm");
  if (!e.info(n.inputs[0]).shape) return {};
  std::vector<int64_t> perm(e.info(n.inputs[0]).shape->size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  return perm;
}

bool is_identity(const std::vector<int64_t>& perm) {
  for (size_t i = 0; i < perm.size(); i++)
    if (perm[i] != static_cast<int64_t>(i)) return false;
  return true;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> out(perm.size());
  for (size_t i = 0; i < perm.size(); i++) out[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return out;
}

std::vector<int64_t> compose(const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
  std::vector<int64_t> out;
  for (int64_t p : second) out.push_back(first[static_cast<size_t>(p)]);
  return out;
}

Shape permuted(const Shape& s, const std::vector<int64_t>& perm) {
  Shape out;
  for (int64_t p : perm) out.push_back(s[static_cast<size_t>(p)]);
  return out;
}

bool moves_only_ones(const Shape& in, const std::vector<int64_t>& perm) {
  int64_t last = -1;
  for (int64_t p : perm) {
    if (in[static_cast<size_t>(p)].is(1)) continue;
    if (p < last) return false;
    last = p;
  }
  return true;
}

namespace {

using Handle = Editor::Handle;
using Perm = std::vector<int64_t>;

void set_transpose(Editor& e, Handle h, TensorId x, Perm perm) {
  if (is_identity(perm))
    e.replace_uses(e.node(h).outputs[0], x);
  else
    e.replace(h, Node{.op = "Transpose", .inputs = {x}, .attrs = {{"perm", std::move(perm)}}});
}

// Transpose(x, identity) -> x
bool no_move(Editor& e, Handle h) {
  const Node& n = e.node(h);
  Perm perm = transpose_perm(e, n);
  return !perm.empty() && is_identity(perm) && e.replace_uses(n.outputs[0], n.inputs[0]);
}

// Transpose(Transpose(x, p), q) -> Transpose(x, p then q)
bool twice(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* inner = e.maker(n.inputs[0], "Transpose");
  if (!inner) return false;
  Perm p = transpose_perm(e, *inner), q = transpose_perm(e, n);
  if (p.empty() || p.size() != q.size()) return false;
  set_transpose(e, h, inner->inputs[0], compose(p, q));
  return true;
}

// Transpose(x) that only moves axes of size 1 -> Reshape(x)
bool only_ones(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const auto& s = e.info(n.inputs[0]).shape;
  Perm perm = transpose_perm(e, n);
  if (!s || perm.size() != s->size() || !moves_only_ones(*s, perm)) return false;
  auto spec = reshape_spec(*s, permuted(*s, perm));
  if (!spec) return false;
  TensorId shape = e.add_ints(n.name + "/shape", *spec);
  e.replace(h, Node{.op = "Reshape", .inputs = {n.inputs[0], shape}});
  return true;
}

// How the axes of `fine` group into those of `coarse`: group i is [first[i], first[i+1]). Every axis of `coarse` must
// be the product of neighbours in `fine`.
bool axis_groups(const Shape& fine, const Shape& coarse, std::vector<size_t>& first) {
  size_t at = 0;
  first.clear();
  for (const Dim& d : coarse) {
    first.push_back(at);
    Dim p = 1;
    bool some = false;
    while (at < fine.size() && !(some && p == d)) {
      p = p * fine[at++];
      some = true;
    }
    if (!(p == d)) return false;
  }
  while (at < fine.size() && fine[at].is(1)) at++;
  first.push_back(at);
  return at == fine.size();
}

Shape without_ones(Shape s) {
  std::erase_if(s, [](const Dim& d) { return d.is(1); });
  return s;
}

// Reshape(Transpose(Reshape(x, a), p), b) -> Transpose(Reshape(x, c), q) when b only splits axes: c splits them before.
// torch swaps the last two axes of any tensor in this way, and then c is the shape x has already. A Reshape that only
// inserts axes of size 1 stays where it is unless the first one goes.
bool between_reshapes(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* t = e.maker(n.inputs[0], "Transpose");
  const Node* r = t ? e.maker(t->inputs[0], "Reshape") : nullptr;
  if (!r || !e.info(t->outputs[0]).shape || !e.info(n.outputs[0]).shape) return false;
  const Shape& out = *e.info(n.outputs[0]).shape;
  std::vector<size_t> first;  // axes of `out` that each axis of the transposed tensor is split into
  Perm p = transpose_perm(e, *t), q(out.size());
  if (p.size() != e.info(t->outputs[0]).shape->size() || !axis_groups(out, *e.info(t->outputs[0]).shape, first))
    return false;
  const bool only_inserts = same_shape(without_ones(out), without_ones(*e.info(t->outputs[0]).shape));
  Shape split;
  for (int64_t j : inverse(p))
    for (size_t a = first[static_cast<size_t>(j)]; a < first[static_cast<size_t>(j) + 1]; a++) {
      q[a] = static_cast<int64_t>(split.size());
      split.push_back(out[a]);
    }
  TensorId x = r->inputs[0];
  if (!e.info(x).shape) return false;
  if (!same_shape(*e.info(x).shape, split)) {
    if (only_inserts) return false;
    auto reshaped = emit_reshape(e, n, x, split);
    if (!reshaped) return false;
    x = *reshaped;
  }
  set_transpose(e, h, x, q);
  return true;
}

// Transpose(Reshape(Transpose(x, p), a), q) -> Reshape(x, b) when a only joins neighbouring axes and the transposes
// undo each other.
bool around_reshape(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* r = e.maker(n.inputs[0], "Reshape");
  const Node* t = r ? e.maker(r->inputs[0], "Transpose") : nullptr;
  if (!t || !e.info(t->outputs[0]).shape || !e.info(r->outputs[0]).shape || !e.info(n.outputs[0]).shape) return false;
  std::vector<size_t> first;
  const Perm p = transpose_perm(e, *t), q = transpose_perm(e, n);
  const Shape& joined = *e.info(r->outputs[0]).shape;
  if (q.size() != joined.size() || !axis_groups(*e.info(t->outputs[0]).shape, joined, first)) return false;
  Perm fine;
  for (int64_t group : q)
    for (size_t a = first[static_cast<size_t>(group)]; a < first[static_cast<size_t>(group) + 1]; a++)
      fine.push_back(static_cast<int64_t>(a));
  if (fine.size() != p.size()) return false;
  const Perm both = compose(p, fine);
  TensorId x = t->inputs[0];
  if (!e.info(x).shape || !is_identity(both)) return false;
  auto spec = reshape_spec(*e.info(x).shape, *e.info(n.outputs[0]).shape);
  if (!spec) return false;
  TensorId shape = e.add_ints(n.name + "/shape", *spec);
  e.replace(h, Node{.op = "Reshape", .inputs = {x, shape}});
  return true;
}

bool one_element(const Editor& e, TensorId t) {
  const auto& s = e.info(t).shape;
  return s && product(*s).is(1);
}

// Can t come out permuted without a new transpose? Yes for a transpose that perm undoes, small constants, and
// element-wise nodes over such operands that nobody else reads.
bool absorbs(const Editor& e, TensorId t, const Perm& perm, int depth, bool& meets) {
  if (depth > 8 || !e.info(t).shape) return false;
  if (one_element(e, t) && e.info(t).shape->size() <= 1) return true;
  if (e.is_constant(t)) return e.info(t).shape->size() <= perm.size() && bits(e.info(t).dtype) % 8 == 0;
  if (e.info(t).shape->size() != perm.size()) return false;
  const Node* n = e.maker(t);
  if (!n) return false;
  if (n->is("Transpose")) {
    bool undone = is_identity(compose(transpose_perm(e, *n), perm));
    meets |= undone;
    return undone || e.single_use(t);
  }
  if (!is_elementwise(*n) || n->outputs.size() != 1 || !e.single_use(t)) return false;
  return std::all_of(n->inputs.begin(), n->inputs.end(),
                     [&](TensorId in) { return in == kNoTensor || absorbs(e, in, perm, depth + 1, meets); });
}

TensorId absorb(Editor& e, TensorId t, const Perm& perm) {
  if (one_element(e, t) && e.info(t).shape->size() <= 1) return t;
  if (e.is_constant(t)) {
    const ConstantPtr& c = e.info(t).constant;
    std::vector<int64_t> dims = numbers(padded_shape(*e.info(t).shape, perm.size()));
    return e.add_constant(e.graph.tensor(t).name + "/transposed", transposed(reshaped(c, dims), perm));
  }
  const Node n = *e.maker(t);
  Shape shape = permuted(*e.info(t).shape, perm);
  if (n.is("Transpose")) {
    Perm p = compose(transpose_perm(e, n), perm);
    if (is_identity(p)) return n.inputs[0];
    return e.emit(n, "Transpose", {n.inputs[0]}, {{"perm", p}}, e.info(t).dtype, shape);
  }
  std::vector<TensorId> inputs;
  for (TensorId in : n.inputs) inputs.push_back(in == kNoTensor ? in : absorb(e, in, perm));
  return e.emit(n, n.op, std::move(inputs), n.attrs, e.info(t).dtype, shape, n.domain);
}

// Transpose(f(Transpose(x, p), y), inverse p) -> f(x, Transpose(y, inverse p))
bool meet_through_elementwise(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* f = e.maker(n.inputs[0]);
  Perm perm = transpose_perm(e, n);
  bool meets = false;
  if (!f || !is_elementwise(*f) || perm.empty() || !absorbs(e, n.inputs[0], perm, 0, meets) || !meets) return false;
  TensorId y = n.outputs[0], moved = absorb(e, n.inputs[0], perm);
  return e.replace_uses(y, moved);
}

// Gemm(A, Transpose(W), C) -> Gemm(A, W, C), transB the other way
bool into_gemm(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* t = e.maker(n.inputs[1], "Transpose");
  if (!t || transpose_perm(e, *t) != Perm{1, 0}) return false;
  Node turned = n;
  turned.inputs[1] = t->inputs[0];
  turned.attrs["transB"] = int64_t{n.get_int("transB", 0) == 0};
  e.replace(h, std::move(turned));
  return true;
}

constexpr SimplifyRule kRules[] = {
    {"Transpose", no_move},
    {"Transpose", twice},
    {"Transpose", only_ones},
    {"Transpose", around_reshape},
    {"Transpose", meet_through_elementwise},
    {"Reshape", between_reshapes},
    {"Gemm", into_gemm},
};

}  // namespace

std::span<const SimplifyRule> simplify_transpose_rules() { return kRules; }

}  // namespace ingot
