// f(Squeeze(conv(x)), c) -> Squeeze(f(conv(x), c')): a convolution over one axis written as one over two leaves an axis
// of size 1, which is dropped before bias and activation. Below them it stands in nobody's way.
#include <algorithm>

#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Axes of `full` that are of size 1 and missing in `squeezed`; nothing when the shapes differ in other ways. Of several
// neighbouring ones the last are taken, after the channels.
std::optional<std::vector<size_t>> dropped_axes(const Shape& full, const Shape& squeezed) {
  std::vector<size_t> dropped;
  size_t j = squeezed.size();
  for (size_t i = full.size(); i-- > 0;) {
    if (full[i].is(1) && i > 1 && i + 1 > j) {
      dropped.insert(dropped.begin(), i);
    } else {
      if (j == 0 || !(full[i] == squeezed[j - 1])) return std::nullopt;
      j--;
    }
  }
  if (j != 0 || dropped.empty()) return std::nullopt;
  return dropped;
}

// The constant with ones where axes were dropped.
TensorId with_axes(Editor& e, TensorId t, const std::vector<size_t>& dropped, size_t rank) {
  if (e.info(t).shape->size() <= 1 && product(*e.info(t).shape).is(1)) return t;
  std::vector<int64_t> dims = numbers(padded_shape(*e.info(t).shape, rank - dropped.size()));
  for (size_t axis : dropped) dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return e.add_constant(e.graph.tensor(t).name + "/unsqueezed", reshaped(e.info(t).constant, dims));
}

bool movable(const Editor& e, const Node& f, TensorId squeezed) {
  if (f.is("GlobalAveragePool") || f.is("GlobalMaxPool")) return true;
  return is_elementwise(f) && f.outputs.size() == 1 && std::all_of(f.inputs.begin(), f.inputs.end(), [&](TensorId t) {
           return t == kNoTensor || t == squeezed || e.is_constant(t);
         });
}

// One step: the Reshape h changes places with the node that reads it.
bool sink(Editor& e, Handle& h) {
  const Node r = e.node(h);
  const TensorId x = r.inputs[0], y = r.outputs[0];
  if (e.is_output(y) || e.consumers(y).empty() || !e.info(x).shape || !e.info(y).shape) return false;
  const Handle user = e.consumers(y)[0];
  for (Handle other : e.consumers(y))
    if (other != user) return false;
  const Node f = e.node(user);
  auto dropped = dropped_axes(*e.info(x).shape, *e.info(y).shape);
  if (!dropped || !movable(e, f, y)) return false;
  const auto& out = e.info(f.outputs[0]).shape;
  if (!out || out->size() != e.info(y).shape->size()) return false;
  Shape full = *out;
  for (size_t axis : *dropped) full.insert(full.begin() + static_cast<std::ptrdiff_t>(axis), Dim(1));
  auto spec = reshape_spec(full, *out);
  if (!spec) return false;
  std::vector<TensorId> inputs = f.inputs;
  for (TensorId& t : inputs)
    if (t != kNoTensor) t = t == y ? x : with_axes(e, t, *dropped, full.size());
  TensorId moved = e.emit(f, f.op, std::move(inputs), f.attrs, e.info(f.outputs[0]).dtype, full, f.domain);
  TensorId shape = e.add_ints(r.name + "/shape", *spec);
  h = e.replace(user, Node{.op = "Reshape", .name = r.name, .inputs = {moved, shape}});
  return true;
}

}  // namespace

void sink_squeeze(Graph& graph) {
  Editor e(graph);
  for (Handle start = 0, end = e.size(); start < end; start++) {
    Handle h = start;
    if (!e.alive(h) || !e.node(h).is("Reshape") || !e.maker(e.node(h).inputs[0], "Conv")) continue;
    while (sink(e, h)) {
    }
  }
  e.finish();
}

}  // namespace ingot
