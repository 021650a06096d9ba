#include "ops/window.h"

#include <algorithm>

namespace ingot {
namespace {

std::vector<int64_t> sizes(const Node& node, const char* attr, size_t rank, int64_t fallback, int64_t least) {
  std::vector<int64_t> out = node.get_ints(attr, std::vector<int64_t>(rank, fallback));
  if (out.size() != rank)
    invalid_model("{}: attribute '{}' has {} elements, expected {}", node.label(), attr, out.size(), rank);
  for (int64_t v : out)
    if (v < least || v > (int64_t{1} << 31))
      invalid_model("{}: attribute '{}' holds {}, expected at least {}", node.label(), attr, v, least);
  return out;
}

}  // namespace

Window window_of(const Node& node, size_t rank, const std::vector<int64_t>& kernel) {
  Window w;
  w.kernel = node.has("kernel_shape") || kernel.empty() ? sizes(node, "kernel_shape", rank, 0, 1) : kernel;
  if (!kernel.empty() && w.kernel != kernel)
    invalid_model("{}: kernel_shape is {}, the weights have {}", node.label(), str(to_shape(w.kernel)),
                  str(to_shape(kernel)));
  w.stride = sizes(node, "strides", rank, 1, 1);
  w.dilation = sizes(node, "dilations", rank, 1, 1);
  w.ceil = node.get_int("ceil_mode", 0) != 0;
  w.begin.assign(rank, 0);
  w.end.assign(rank, 0);
  const std::string mode = node.get_string("auto_pad", "NOTSET");
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    w.same = true;
    w.same_lower = mode == "SAME_LOWER";
  } else if (mode == "NOTSET" || mode.empty()) {
    const auto pads = sizes(node, "pads", 2 * rank, 0, 0);
    std::copy_n(pads.begin(), rank, w.begin.begin());
    std::copy_n(pads.begin() + static_cast<int64_t>(rank), rank, w.end.begin());
  } else if (mode != "VALID") {
    invalid_model("{}: auto_pad is '{}', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", node.label(), mode);
  }
  return w;
}

void resolve_pads(Window& w, const std::vector<int64_t>& in) {
  for (size_t d = 0; w.same && d < w.rank(); d++) {
    const int64_t out = (in[d] + w.stride[d] - 1) / w.stride[d];
    const int64_t total = std::max<int64_t>(0, (out - 1) * w.stride[d] + w.extent(d) - in[d]);
    w.begin[d] = (total + w.same_lower) / 2;
    w.end[d] = total - w.begin[d];
  }
}

Dim window_count(const Window& w, size_t d, const Dim& in) {
  const Dim stride = w.stride[d];
  if (w.same) return ceil_div(in, stride);
  const Dim room = in + w.begin[d] + w.end[d] - w.extent(d);
  if (room.is_const() && room.value() < 0) return 0;
  if (!w.ceil) return floor_div(room, stride) + 1;
  const Dim count = ceil_div(room, stride) + 1;
  if (count.is_const() && in.is_const())
    return (count.value() - 1) * w.stride[d] >= in.value() + w.begin[d] ? count - 1 : count;
  // Whether the last window starts in the padding depends on the size, unless the stride is short.
  return w.stride[d] <= w.extent(d) - w.end[d] ? count : Dim::unknown();
}

void spread(int64_t (&to)[3], const std::vector<int64_t>& from, int64_t fill) {
  for (size_t d = 0; d < 3; d++) to[d] = d + from.size() < 3 ? fill : from[d + from.size() - 3];
}

}  // namespace ingot
