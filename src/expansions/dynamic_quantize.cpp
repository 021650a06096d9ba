// DynamicQuantizeLinear: u8 numbers with the scale and the zero point that the data's range, which 0 is taken to be in,
// asks for.  scale = (max - min) / 255,  zero = round(-min / scale),  y = round(x / scale) + zero.
#include "expansions/expander.h"

namespace ingot {
namespace {

void expand_dynamic_quantize(Expander& e) {
  const TensorId x = e.in(0);
  e.require(e.dtype(x) == DType::F32, "the data is {}, expected f32", name(e.dtype(x)));
  auto number = [&](double v) { return e.scalar(v, DType::F32); };
  const TensorId zero = number(0), top = number(255);
  const std::map<std::string, Attribute> to_scalar = {{"keepdims", int64_t{0}}};
  const TensorId high = e.emit("Max", {e.emit("ReduceMax", {x}, to_scalar), zero});
  const TensorId low = e.emit("Min", {e.emit("ReduceMin", {x}, to_scalar), zero});
  const TensorId range = e.emit("Sub", {high, low});
  // Data that is zero throughout has a scale all the same.
  const TensorId scale = e.emit("Where", {e.emit("Equal", {range, zero}), number(1), e.emit("Div", {range, top})});
  const TensorId origin = e.emit("Div", {e.emit("Neg", {low}), scale});
  const TensorId zero_point = e.emit("Round", {e.emit("Clip", {origin, zero, top})});
  const TensorId y = e.emit("Add", {e.emit("Round", {e.emit("Div", {x, scale})}), zero_point});
  e.result(0, e.cast(e.emit("Clip", {y, zero, top}), DType::U8));
  e.result(1, scale);
  e.result(2, e.cast(zero_point, DType::U8));
}

}  // namespace

void register_dynamic_quantize(ExpansionRegistry& r) { r.add("DynamicQuantizeLinear", expand_dynamic_quantize); }

}  // namespace ingot
