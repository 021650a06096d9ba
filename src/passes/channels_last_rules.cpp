#include "passes/channels_last_rules.h"

#include <algorithm>
#include <numeric>

#include "passes/constants.h"
#include "passes/reduction.h"
#include "passes/simplify.h"

namespace ingot {

std::vector<int64_t> to_channels_last(size_t rank) {
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 1);
  perm[0] = 0;
  perm[rank - 1] = 1;
  for (size_t i = 1; i + 1 < rank; i++) perm[i] = static_cast<int64_t>(i) + 1;
  return perm;
}

std::vector<int64_t> to_channels_first(size_t rank) { return inverse(to_channels_last(rank)); }

namespace {

int64_t from_front(int64_t axis, size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; }
// Where axis `axis` of NCHW is in NHWC.
int64_t new_axis(int64_t axis, size_t rank) {
  return to_channels_first(rank)[static_cast<size_t>(from_front(axis, rank))];
}
std::vector<int64_t> new_axes(std::vector<int64_t> axes, size_t rank) {
  for (int64_t& a : axes) a = new_axis(a, rank);
  return axes;
}
bool valid_axis(int64_t axis, size_t rank) {
  const auto r = static_cast<int64_t>(rank);
  return axis >= -r && axis < r;
}

void set_channels_last(Editor&, Node& n, size_t) { n.attrs["channels_last"] = int64_t{1}; }
void rewrite_conv(Editor& e, Node& n, size_t rank) {
  n.domain = "ingot";
  set_channels_last(e, n, rank);
}
// W [C_in, C_out, kernel...] -> [C_in, kernel..., C_out]
void rewrite_conv_transpose(Editor& e, Node& n, size_t rank) {
  n.domain = "ingot";
  n.inputs[1] = e.add_constant(e.graph.tensor(n.inputs[1]).name + "/channels_last",
                               transposed(e.info(n.inputs[1]).constant, to_channels_last(rank)));
}
void rewrite_nothing(Editor&, Node&, size_t) {}
void rewrite_axis(Editor&, Node& n, size_t rank) {
  n.attrs["axis"] = new_axis(n.get_int("axis", n.is("Softmax") || n.is("LogSoftmax") ? -1 : 0), rank);
}

// GlobalAveragePool(x) -> ReduceMean(x, spatial axes)
void rewrite_global_pool(Editor& e, Node& n, size_t rank) {
  std::vector<int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 1);
  n.op = n.op == "GlobalAveragePool" ? "ReduceMean" : "ReduceMax";
  n.inputs = {n.inputs[0], e.add_ints(n.name + "/axes", axes)};
  n.attrs.clear();  // keepdims is 1 by default
}

void rewrite_reduce(Editor& e, Node& n, size_t rank) {
  std::vector<int64_t> axes = n.get_ints("axes");
  if (n.has_input(1)) axes = *integer_values(e.info(n.inputs[1]));
  if (axes.empty()) return;  // all of them
  n.attrs.erase("axes");
  axes = new_axes(axes, rank);
  std::sort(axes.begin(), axes.end());
  n.inputs = {n.inputs[0], e.add_ints(n.name + "/axes", axes)};
}

void rewrite_slice(Editor& e, Node& n, size_t rank) {
  std::vector<int64_t> axes(integer_values(e.info(n.inputs[1])) ? integer_values(e.info(n.inputs[1]))->size() : 0);
  std::iota(axes.begin(), axes.end(), 0);
  if (n.has_input(3)) axes = *integer_values(e.info(n.inputs[3]));
  if (n.inputs.size() < 4) n.inputs.resize(4, kNoTensor);
  n.inputs[3] = e.add_ints(n.name + "/axes", new_axes(axes, rank));
}

void rewrite_pad(Editor& e, Node& n, size_t rank) {
  if (n.has_input(3)) {
    n.inputs[3] = e.add_ints(n.name + "/axes", new_axes(*integer_values(e.info(n.inputs[3])), rank));
    return;
  }
  const std::vector<int64_t> old = *integer_values(e.info(n.inputs[1]));
  std::vector<int64_t> pads;
  for (size_t side = 0; side < 2; side++)
    for (int64_t axis : to_channels_last(rank)) pads.push_back(old[side * rank + static_cast<size_t>(axis)]);
  n.inputs[1] = e.add_ints(n.name + "/pads", pads);
}

// Axes of scales and sizes still count as in [N, C, spatial...]; only the kernel looks elsewhere.
void rewrite_resize(Editor& e, Node& n, size_t rank) { set_channels_last(e, n, rank); }

bool resize_moves(const Editor& e, const Node& n) {
  if (n.has_input(1) && e.info(n.inputs[1]).shape && !product(*e.info(n.inputs[1]).shape).is(0)) return false;  // roi
  return n.get_string("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize";
}

bool known_ints(const Editor& e, const Node& n, size_t i) {
  return !n.has_input(i) || integer_values(e.info(n.inputs[i]));
}

bool slice_moves(const Editor& e, const Node& n) {
  return known_ints(e, n, 3) && (n.has_input(3) || integer_values(e.info(n.inputs[1])));
}

bool pad_moves(const Editor& e, const Node& n, size_t rank) {
  if (n.has_input(3)) return known_ints(e, n, 3);
  auto pads = integer_values(e.info(n.inputs[1]));
  return pads && pads->size() == 2 * rank;
}

// Reductions that keep dims stay in the layout. Those that do not must leave axes whose order the layouts agree on.
bool reduce_moves(const Editor& e, const Node& n, size_t rank, bool& results_move) {
  auto axes = known_axes(e, n);
  if (!axes) return false;
  results_move = n.get_int("keepdims", 1) != 0;
  if (results_move) return true;
  auto left = [&](const std::vector<int64_t>& order) {
    std::vector<int64_t> out;
    for (int64_t a : order)
      if (std::find(axes->begin(), axes->end(), a) == axes->end()) out.push_back(a);
    return out;
  };
  std::vector<int64_t> plain(rank);
  std::iota(plain.begin(), plain.end(), 0);
  return left(plain) == left(to_channels_last(rank));
}

// Element-wise: all operands move; what broadcasts must have a known shape, and the result the common rank.
std::optional<LayoutMove> elementwise_move(const Editor& e, const Node& n) {
  const auto& out = e.info(n.outputs[0]).shape;
  if (!out || out->size() < 3 || out->size() > 5 || n.outputs.size() != 1) return std::nullopt;
  LayoutMove m{.rank = out->size(), .rewrite = rewrite_nothing};
  for (size_t i = 0; i < n.inputs.size(); i++) {
    if (!n.has_input(i)) continue;
    const TensorInfo& info = e.info(n.inputs[i]);
    if (!info.shape || info.shape->size() > out->size() || (info.constant && bits(info.dtype) % 8 != 0))
      return std::nullopt;
    m.operands.push_back(i);
  }
  return m;
}

}  // namespace

std::optional<LayoutMove> layout_move(const Editor& e, const Node& n) {
  if (n.is("ChannelShuffle", "ingot"))
    return LayoutMove{.rank = e.info(n.inputs[0]).shape->size(), .operands = {0}, .rewrite = set_channels_last};
  if (!n.domain.empty() || n.inputs.empty() || !n.has_input(0)) return std::nullopt;
  if (is_elementwise(n)) return elementwise_move(e, n);
  const TensorInfo& x = e.info(n.inputs[0]);
  if (!x.shape || x.shape->size() < 3 || x.shape->size() > 5) return std::nullopt;
  for (TensorId t : n.outputs)
    if (t != kNoTensor && !e.info(t).shape) return std::nullopt;
  const size_t rank = x.shape->size();
  LayoutMove m{.rank = rank, .operands = {0}};
  const bool f32 = x.dtype == DType::F32;
  if ((n.op == "Conv" && f32) || n.op == "ConvInteger") {
    m.wants = true;
    m.rewrite = rewrite_conv;
  } else if (n.op == "ConvTranspose" && f32 && e.is_constant(n.inputs[1])) {
    m.wants = true;
    m.rewrite = rewrite_conv_transpose;
  } else if (n.op == "MaxPool" && n.outputs.size() == 1 && (f32 || is_byte(x.dtype))) {
    m.rewrite = set_channels_last;
  } else if (n.op == "AveragePool" && f32) {
    m.rewrite = set_channels_last;
  } else if ((n.op == "LRN" || n.op == "BatchNormalization") && n.outputs.size() == 1 && f32) {
    m.rewrite = set_channels_last;
  } else if ((n.op == "GlobalAveragePool" || n.op == "GlobalMaxPool") && f32) {
    m.rewrite = rewrite_global_pool;
  } else if (n.op == "Concat" && valid_axis(n.get_int("axis", 0), rank)) {
    m.operands.resize(n.inputs.size());
    std::iota(m.operands.begin(), m.operands.end(), 0);
    for (TensorId t : n.inputs)
      if (!e.info(t).shape || e.info(t).shape->size() != rank) return std::nullopt;
    m.rewrite = rewrite_axis;
  } else if ((n.op == "Split" || n.op == "Softmax" || n.op == "LogSoftmax") &&
             valid_axis(n.get_int("axis", -1), rank)) {
    m.rewrite = rewrite_axis;
  } else if (n.op == "Slice" && slice_moves(e, n)) {
    m.rewrite = rewrite_slice;
  } else if (n.op == "Pad" && pad_moves(e, n, rank)) {
    m.rewrite = rewrite_pad;
  } else if (n.op == "Resize" && f32 && resize_moves(e, n)) {
    m.rewrite = rewrite_resize;
  } else if (n.op.starts_with("Reduce") && reduce_moves(e, n, rank, m.results_move)) {
    m.rewrite = rewrite_reduce;
  } else {
    return std::nullopt;
  }
  return m;
}

}  // namespace ingot
