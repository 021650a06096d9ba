// Identities of operators that only move or rename axes: Reshape is the canonical one.
#include <algorithm>

#include "passes/constants.h"
#include "passes/reduction.h"
#include "passes/simplify.h"

namespace ingot {

std::optional<std::vector<int64_t>> reshape_spec(const Shape& in, const Shape& out) {
  std::vector<int64_t> spec;
  bool rest = false;
  for (size_t i = 0; i < out.size(); i++) {
    if (out[i].is_const()) {
      if (out[i].value() == 0) return std::nullopt;  // 0 would mean: copy
      spec.push_back(out[i].value());
    } else if (i < in.size() && out[i] == in[i]) {
      spec.push_back(0);
    } else {
      if (rest || out[i].is_unknown()) return std::nullopt;
      rest = true;
      spec.push_back(-1);
    }
  }
  return spec;
}

std::optional<TensorId> emit_reshape(Editor& e, const Node& from, TensorId x, const Shape& out) {
  if (!e.info(x).shape) return std::nullopt;
  auto spec = reshape_spec(*e.info(x).shape, out);
  if (!spec) return std::nullopt;
  return e.emit(from, "Reshape", {x, e.add_ints(from.name + "/shape", *spec)}, {}, e.info(x).dtype, out);
}

namespace {

using Handle = Editor::Handle;

bool known(const Editor& e, const Node& n) { return e.info(n.inputs[0]).shape && e.info(n.outputs[0]).shape; }
const Shape& in_shape(const Editor& e, const Node& n) { return *e.info(n.inputs[0]).shape; }
const Shape& out_shape(const Editor& e, const Node& n) { return *e.info(n.outputs[0]).shape; }

// f(x) -> x for an f that keeps all elements in order, when the shape is the same
bool keeps_shape(Editor& e, Handle h) {
  const Node& n = e.node(h);
  return known(e, n) && same_shape(in_shape(e, n), out_shape(e, n)) && e.replace_uses(n.outputs[0], n.inputs[0]);
}

void to_reshape(Editor& e, Handle h, TensorId x, const std::vector<int64_t>& spec) {
  TensorId shape = e.add_ints(e.node(h).name + "/shape", spec);
  e.replace(h, Node{.op = "Reshape", .inputs = {x, shape}});
}

// Squeeze(x), Unsqueeze(x), Flatten(x) -> Reshape(x, shape). Not for shape arithmetic, which is folded or symbolic, and
// not for a Squeeze of an axis whose size is not known: it has to see that it is 1.
bool to_canonical_reshape(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (!known(e, n) || e.info(n.outputs[0]).values) return false;
  const auto ones = [](const Shape& s) {
    return std::count_if(s.begin(), s.end(), [](const Dim& d) { return d.is(1); });
  };
  const Shape &in = in_shape(e, n), &out = out_shape(e, n);
  if (n.op == "Squeeze" && ones(in) - ones(out) != std::ssize(in) - std::ssize(out)) return false;
  auto spec = reshape_spec(in, out);
  if (spec) to_reshape(e, h, n.inputs[0], *spec);
  return spec.has_value();
}

// Reshape(x, computed shape) -> Reshape(x, constant shape)
bool constant_shape(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (!known(e, n) || e.is_constant(n.inputs[1])) return false;
  auto spec = reshape_spec(in_shape(e, n), out_shape(e, n));
  if (spec) to_reshape(e, h, n.inputs[0], *spec);
  return spec.has_value();
}

// Reshape(Reshape(x, a), b) -> Reshape(x, b)
bool reshape_twice(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* inner = e.maker(n.inputs[0], "Reshape");
  if (!inner || !known(e, n) || !e.info(inner->inputs[0]).shape) return false;
  TensorId x = inner->inputs[0];
  if (auto spec = reshape_spec(*e.info(x).shape, out_shape(e, n))) {
    to_reshape(e, h, x, *spec);
    return true;
  }
  // A computed shape serves as it is unless it copies dims (0) of what is between.
  auto values = dim_values(e.info(n.inputs[1]));
  bool copies = !values || std::any_of(values->begin(), values->end(), [](const Dim& d) { return d.is(0); });
  if (copies && n.get_int("allowzero", 0) == 0) return false;
  e.set_input(h, 0, x);
  return true;
}

// Reshape(Reduce(x) without dims, shape with them) -> Reduce(x) that keeps them
bool reduce_keeps_dims(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* r = e.maker(n.inputs[0]);
  if (!r || !r->domain.empty() || !r->op.starts_with("Reduce") || r->get_int("keepdims", 1) != 0 || !known(e, n))
    return false;
  auto axes = known_axes(e, *r);
  if (!axes || !e.single_use(n.inputs[0])) return false;
  Shape kept = *e.info(r->inputs[0]).shape;
  for (int64_t a : *axes) kept[static_cast<size_t>(a)] = 1;
  if (!same_shape(kept, out_shape(e, n))) return false;
  Node with = *r;
  with.attrs["keepdims"] = int64_t{1};
  with.outputs.clear();
  e.replace(h, std::move(with));
  return true;
}

Shape broadcast_of(const Editor& e, const std::vector<TensorId>& operands, bool& exact) {
  Shape out;
  for (TensorId t : operands) {
    if (t == kNoTensor) continue;
    if (!e.info(t).shape) exact = false;
    if (!exact) return out;
    const Shape& s = *e.info(t).shape;
    out = padded_shape(out, std::max(out.size(), s.size()));
    for (size_t i = 0; i < s.size(); i++) {
      Dim &a = out[out.size() - 1 - i], b = s[s.size() - 1 - i];
      if (a.is(1))
        a = b;
      else if (!b.is(1) && !(a == b))
        exact = false;
    }
  }
  return out;
}

// f(Expand(x), y) -> f(x, y) where y alone already gives the shape
bool expand_before_elementwise(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (!known(e, n)) return false;
  bool any = false;
  TensorId y = n.outputs[0], x = n.inputs[0];
  std::vector<Handle> users = e.consumers(y);
  for (Handle user : users) {
    const Node& u = e.node(user);
    if (!broadcasts_all(u) || u.inputs.size() < 2 || !e.info(u.outputs[0]).shape) continue;
    std::vector<TensorId> inputs = u.inputs;
    std::replace(inputs.begin(), inputs.end(), y, x);
    bool exact = true;
    Shape shape = broadcast_of(e, inputs, exact);
    if (!exact || !same_shape(shape, *e.info(u.outputs[0]).shape)) continue;
    e.set_inputs(user, std::move(inputs));
    any = true;
  }
  return any;
}

constexpr int64_t kMaxTableBytes = 16 << 20;  // of a table computed at compile time

// A constant, or element-wise of constants, which will be folded.
bool is_fixed(const Editor& e, TensorId t, int depth = 0) {
  if (e.is_constant(t)) return true;
  const Node* n = e.maker(t);
  return n && depth < 16 && is_elementwise(*n) &&
         std::all_of(
             n->inputs.begin(), n->inputs.end(),
             [&](TensorId in) { return in == kNoTensor || is_fixed(e, in, depth + 1); });
}

// f(Gather(table, i), c) -> Gather(f(table, c), i) for a constant table and c along a row: f is then computed once,
// when the model is compiled. Not where that would widen the table.
bool elementwise_of_gather(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const TensorId table = n.inputs[0], rows = n.outputs[0];
  if (!is_fixed(e, table) || n.get_int("axis", 0) != 0 || e.is_output(rows) || e.consumers(rows).empty()) return false;
  const Shape shape = *e.info(table).shape;
  if (!is_const(shape) || byte_size(e.info(table).dtype, product(shape).value()) > kMaxTableBytes) return false;
  const Handle user = e.consumers(rows)[0];
  const Node f = e.node(user);
  if (shape.size() < 2 || !broadcasts_all(f) || f.outputs.size() != 1 || !e.info(f.outputs[0]).shape) return false;
  for (Handle other : e.consumers(rows))
    if (other != user) return false;
  std::vector<TensorId> inputs = f.inputs;
  for (TensorId& t : inputs) {
    if (t != rows && (!e.is_constant(t) || e.info(t).shape->size() >= shape.size())) return false;
    if (t == rows) t = table;
  }
  if (!same_shape(e.info(f.outputs[0]), e.info(rows))) return false;
  if (bits(e.info(f.outputs[0]).dtype) > bits(e.info(table).dtype)) return false;
  const Node gather = n;
  TensorId mapped = e.emit(f, f.op, std::move(inputs), f.attrs, e.info(f.outputs[0]).dtype, shape);
  e.replace(user,
            Node{.op = "Gather", .name = gather.name, .inputs = {mapped, gather.inputs[1]}, .attrs = gather.attrs});
  return true;
}

// One axis is kept whole by a slice to an end that no axis reaches: with the other axes, the tensor would not fit into
// any memory. Exporters write "to the end" as 10^9 or as the largest integer.
bool ends_nowhere(const Shape& in, size_t axis, const Dim& size) {
  constexpr double kMemory = 1099511627776.0, kFar = 1e9;
  double others = 1;
  for (size_t i = 0; i < in.size(); i++)
    if (i != axis && in[i].is_const()) others *= static_cast<double>(in[i].value());
  return others * kFar > kMemory && size == min(in[axis], Dim(1000000000));
}

// Slice(x) that keeps everything -> x. Equal sizes with positive steps leave no other slice.
bool slice_all(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (n.has_input(4)) {
    auto steps = integer_values(e.info(n.inputs[4]));
    if (!steps || std::any_of(steps->begin(), steps->end(), [](int64_t s) { return s < 1; })) return false;
  }
  if (!known(e, n)) return false;
  const Shape &in = in_shape(e, n), &out = out_shape(e, n);
  for (size_t i = 0; i < in.size(); i++)
    if (!(in[i] == out[i]) && !ends_nowhere(in, i, out[i])) return false;
  return e.replace_uses(n.outputs[0], n.inputs[0]);
}

// Pad(x, 0) -> x. Equal sizes alone may still shift (a negative pad on one side).
bool pad_nothing(Editor& e, Handle h) {
  const Node& n = e.node(h);
  auto pads = integer_values(e.info(n.inputs[1]));
  if (!pads || std::any_of(pads->begin(), pads->end(), [](int64_t p) { return p != 0; })) return false;
  return e.replace_uses(n.outputs[0], n.inputs[0]);
}

// Concat(a, empty, b) -> Concat(a, b)
bool concat_empty(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (!e.info(n.outputs[0]).shape) return false;
  const auto rank = static_cast<int64_t>(out_shape(e, n).size());
  int64_t axis = n.get_int("axis", 0);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return false;
  std::vector<TensorId> kept;
  for (TensorId t : n.inputs) {
    const auto& s = e.info(t).shape;
    if (!s || static_cast<int64_t>(s->size()) != rank || !(*s)[static_cast<size_t>(axis)].is(0)) kept.push_back(t);
  }
  if (kept.size() == n.inputs.size() || kept.empty()) return false;
  e.set_inputs(h, std::move(kept));
  return true;
}

// Split(x) into one -> x
bool split_once(Editor& e, Handle h) { return e.node(h).outputs.size() == 1 && keeps_shape(e, h); }

// Reduce*(x, [-1]) -> Reduce*(x, [2]): axes from the front and ascending, so that equal reductions look equal.
bool canonical_axes(Editor& e, Handle h) {
  const Node& n = e.node(h);
  if (!n.has_input(1)) return false;
  const auto axes = known_axes(e, n);
  if (!axes || axes == integer_values(e.info(n.inputs[1]))) return false;
  std::vector<TensorId> inputs = n.inputs;
  inputs[1] = e.add_ints(n.name + "/axes", *axes);
  e.set_inputs(h, std::move(inputs));
  return true;
}

constexpr SimplifyRule kRules[] = {
    {"Reshape", keeps_shape},
    {"Reshape", reshape_twice},
    {"Reshape", reduce_keeps_dims},
    {"Reshape", constant_shape},
    {"Squeeze", keeps_shape},
    {"Squeeze", to_canonical_reshape},
    {"Unsqueeze", to_canonical_reshape},
    {"Flatten", keeps_shape},
    {"Flatten", to_canonical_reshape},
    {"Expand", keeps_shape},
    {"Expand", expand_before_elementwise},
    {"Tile", keeps_shape},
    {"Gather", elementwise_of_gather},
    {"Slice", slice_all},
    {"Pad", pad_nothing},
    {"Concat", concat_empty},
    {"Split", split_once},
    {"ReduceL1", canonical_axes},
    {"ReduceL2", canonical_axes},
    {"ReduceLogSum", canonical_axes},
    {"ReduceLogSumExp", canonical_axes},
    {"ReduceMax", canonical_axes},
    {"ReduceMean", canonical_axes},
    {"ReduceMin", canonical_axes},
    {"ReduceProd", canonical_axes},
    {"ReduceSum", canonical_axes},
    {"ReduceSumSquare", canonical_axes},
};

}  // namespace

std::span<const SimplifyRule> simplify_shape_rules() { return kRules; }

}  // namespace ingot
