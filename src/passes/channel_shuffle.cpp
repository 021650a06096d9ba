#include "passes/channel_shuffle.h"

#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// [N, C, S...] with the channels split in two factors, in this layout.
Shape split_channels(const Shape& s, const Dim& outer, bool last) {
  const size_t axis = last ? s.size() - 1 : 1;
  Shape out = s;
  out[axis] = outer;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis) + 1, floor_div(s[axis], outer));
  return out;
}

std::vector<int64_t> swap_factors(size_t rank, bool last) {
  std::vector<int64_t> perm(rank + 1);
  for (size_t i = 0; i <= rank; i++) perm[i] = static_cast<int64_t>(i);
  const size_t axis = last ? rank - 1 : 1;
  std::swap(perm[axis], perm[axis + 1]);
  return perm;
}

bool find(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const Node* t = e.maker(n.inputs[0], "Transpose");
  const Node* r = t ? e.maker(t->inputs[0], "Reshape") : nullptr;
  if (!r || !e.single_use(n.inputs[0]) || !e.single_use(t->inputs[0])) return false;
  const auto &x = e.info(r->inputs[0]).shape, &split = e.info(r->outputs[0]).shape;
  if (!x || !split || x->size() < 3 || split->size() != x->size() + 1 || !(*split)[1].is_const()) return false;
  if (!same_shape(e.info(r->inputs[0]), e.info(n.outputs[0])) ||
      transpose_perm(e, *t) != swap_factors(x->size(), false))
    return false;
  const Dim groups = (*split)[1];
  // Both spellings must be expressible when it is written out again.
  if (groups.is(0) || !same_shape(*split, split_channels(*x, groups, false)) || !reshape_spec(*x, *split)) return false;
  e.replace(
      h,
      Node{.op = "ChannelShuffle", .domain = "ingot", .inputs = {r->inputs[0]}, .attrs = {{"groups", groups.value()}}});
  return true;
}

void expand(Editor& e, Handle h) {
  const Node n = e.node(h);
  const TensorId x = n.inputs[0];
  const Shape shape = *e.info(x).shape;
  const bool last = n.get_int("channels_last", 0) != 0;
  const Shape split = split_channels(shape, n.need_int("groups"), last);
  const auto perm = swap_factors(shape.size(), last);
  TensorId parts = *emit_reshape(e, n, x, split);
  TensorId swapped = e.emit(n, "Transpose", {parts}, {{"perm", perm}}, e.info(x).dtype, permuted(split, perm));
  TensorId spec = e.add_ints(n.name + "/shape", *reshape_spec(permuted(split, perm), shape));
  e.replace(h, Node{.op = "Reshape", .inputs = {swapped, spec}});
}

}  // namespace

void find_channel_shuffles(Editor& e) {
  for (Handle h = 0, end = e.size(); h < end; h++)
    if (e.alive(h) && e.node(h).is("Reshape")) find(e, h);
}

void expand_channel_shuffles(Editor& e) {
  for (Handle h = 0, end = e.size(); h < end; h++)
    if (e.alive(h) && e.node(h).is("ChannelShuffle", "ingot")) expand(e, h);
}

}  // namespace ingot
