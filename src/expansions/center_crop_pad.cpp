// CenterCropPad: axes that are too long lose what surrounds the middle, axes that are too short get zeros around it.
// With an odd difference the smaller half comes first.
#include "expansions/expander.h"

namespace ingot {
namespace {

void expand_center_crop_pad(Expander& e) {
  const TensorId data = e.in(0);
  const int64_t rank = e.rank(data);
  std::vector<int64_t> axes = e.node.get_ints("axes");
  if (!e.node.has("axes"))
    for (int64_t d = 0; d < rank; d++) axes.push_back(d);
  for (int64_t& a : axes) a = e.axis(a, rank);
  if (axes.empty()) return e.result(0, data);
  const auto count = static_cast<int64_t>(axes.size());
  const TensorId shape = e.in(1);
  e.require(e.rank(shape) == 1 && (!e.size(shape, 0).is_number() || e.number(shape, 0) == count),
            "shape {} does not tell the sizes of {} axes", str(e.shape(shape)), count);
  const TensorId wanted = e.reshape(e.cast(shape, DType::I64), {count});

  std::vector<Size> sizes;
  for (int64_t a : axes) sizes.push_back(e.size(data, a));
  const TensorId present = e.sizes(sizes), zero = e.scalar(0, DType::I64), two = e.scalar(2, DType::I64);
  const TensorId surplus = e.emit("Max", {e.emit("Sub", {present, wanted}), zero});
  const TensorId lack = e.emit("Max", {e.emit("Sub", {wanted, present}), zero});
  const TensorId first = e.emit("Div", {surplus, two}), before = e.emit("Div", {lack, two});
  const TensorId last = e.emit("Add", {first, e.emit("Min", {present, wanted})});
  const TensorId cropped = e.emit("Slice", {data, first, last, e.ints(axes)});
  const TensorId pads = e.concat({before, e.emit("Sub", {lack, before})}, 0);
  e.result(0, e.emit("Pad", {cropped, pads, kNoTensor, e.ints(axes)}));
}

}  // namespace

void register_center_crop_pad(ExpansionRegistry& r) { r.add("CenterCropPad", expand_center_crop_pad); }

}  // namespace ingot
