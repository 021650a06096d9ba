// TensorScatter: the cache with element s of the update, along the axis, written at write_indices[batch] + s; with mode
// "circular" modulo the length of the cache.
#include "expansions/expander.h"

namespace ingot {
namespace {

void expand_tensor_scatter(Expander& e) {
  const TensorId cache = e.in(0), update = e.in(1);
  const int64_t rank = e.rank(cache), axis = e.axis(e.node.get_int("axis", -2), rank);
  e.require(axis != 0, "axis 0 is the batch");
  e.require(e.rank(update) == rank, "the cache is of rank {} and the update of rank {}", rank, e.rank(update));
  const std::string mode = e.node.get_string("mode", "linear");
  e.require(mode == "linear" || mode == "circular", "attribute 'mode' is '{}', expected linear or circular", mode);

  auto axes_but = [&](int64_t kept) {
    std::vector<int64_t> axes;
    for (int64_t d = 0; d < rank; d++)
      if (d != kept) axes.push_back(d);
    return axes;
  };
  TensorId at = e.unsqueeze(e.count_up(e.size(update, axis)), axes_but(axis));
  if (e.has(2)) at = e.emit("Add", {at, e.unsqueeze(e.in(2), axes_but(0))});
  if (mode == "circular") at = e.emit("Mod", {at, e.scalar_size(e.size(cache, axis))});
  at = e.emit("Expand", {at, e.emit("Shape", {update})});
  e.result(0, e.emit("ScatterElements", {cache, at, update}, {{"axis", axis}}));
}

}  // namespace

void register_tensor_scatter(ExpansionRegistry& r) { r.add("TensorScatter", expand_tensor_scatter); }

}  // namespace ingot
