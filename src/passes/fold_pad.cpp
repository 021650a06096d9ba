// Conv(Pad(x, p, 0), pads q) -> Conv(x, pads p + q), for spatial axes; AveragePool likewise, counting the padding;
// MaxPool where the padding is -inf.
#include <algorithm>
#include <cmath>

#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Begin and end pads of the spatial axes of a constant Pad with this value; nothing for any other Pad.
std::optional<std::vector<int64_t>> spatial_pads(const Editor& e, const Node& pad, double value) {
  const auto& shape = e.info(pad.inputs[0]).shape;
  if (pad.get_string("mode", "constant") != "constant" || !shape || shape->size() < 3) return std::nullopt;
  double found = 0;
  if (pad.has_input(2)) {
    auto v = scalar_value(e.info(pad.inputs[2]));
    if (!v) return std::nullopt;
    found = *v;
  }
  if (found != value) return std::nullopt;
  auto given = integer_values(e.info(pad.inputs[1]));
  if (!given) return std::nullopt;
  const size_t rank = shape->size();
  std::vector<int64_t> all(2 * rank, 0);
  if (pad.has_input(3)) {
    auto axes = integer_values(e.info(pad.inputs[3]));
    if (!axes || given->size() != 2 * axes->size()) return std::nullopt;
    for (size_t i = 0; i < axes->size(); i++) {
      int64_t axis = (*axes)[i] < 0 ? (*axes)[i] + static_cast<int64_t>(rank) : (*axes)[i];
      if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
      all[static_cast<size_t>(axis)] = (*given)[i];
      all[rank + static_cast<size_t>(axis)] = (*given)[axes->size() + i];
    }
  } else {
    if (given->size() != 2 * rank) return std::nullopt;
    all = *given;
  }
  std::vector<int64_t> out;
  for (size_t side = 0; side < 2; side++)
    for (size_t axis = 0; axis < rank; axis++) {
      int64_t p = all[side * rank + axis];
      if (p < 0 || (axis < 2 && p != 0)) return std::nullopt;
      if (axis >= 2) out.push_back(p);
    }
  return out;
}

bool fold(Editor& e, Handle h) {
  const Node& n = e.node(h);
  const bool average = n.is("AveragePool"), maximum = n.is("MaxPool");
  if ((!n.is("Conv") && !average && !maximum) || n.get_string("auto_pad", "NOTSET") != "NOTSET") return false;
  const Node* pad = e.maker(n.inputs[0], "Pad");
  if (!pad || (maximum && n.outputs.size() > 1) || (!n.is("Conv") && n.get_int("ceil_mode", 0) != 0)) return false;
  auto more = spatial_pads(e, *pad, maximum ? -INFINITY : 0.0);
  if (!more) return false;
  std::vector<int64_t> pads = n.get_ints("pads", std::vector<int64_t>(more->size(), 0));
  if (pads.size() != more->size()) return false;
  const bool padded = std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; });
  if (average && padded && n.get_int("count_include_pad", 0) == 0) return false;
  for (size_t i = 0; i < pads.size(); i++) pads[i] += (*more)[i];
  if (!n.is("Conv")) {  // pooling may not pad by a whole window
    std::vector<int64_t> kernel = n.get_ints("kernel_shape");
    for (size_t i = 0; i < pads.size(); i++)
      if (kernel.empty() || pads[i] >= kernel[i % kernel.size()]) return false;
  }
  TensorId x = pad->inputs[0];
  Node& edited = e.edit(h);
  edited.attrs["pads"] = pads;
  if (average) edited.attrs["count_include_pad"] = int64_t{1};
  e.set_input(h, 0, x);
  return true;
}

}  // namespace

void fold_pad(Graph& graph) {
  Editor e(graph);
  for (Handle h = 0, end = e.size(); h < end; h++)
    while (fold(e, h)) {
    }
  e.finish();
}

}  // namespace ingot
