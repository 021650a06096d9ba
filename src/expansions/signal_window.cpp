// HannWindow, HammingWindow, BlackmanWindow:  w[i] = a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n),  i < size, where n
// is the size for a periodic window and one less for a symmetric one.
#include <numbers>

#include "expansions/expander.h"

namespace ingot {
namespace {

struct Cosines {
  double a0, a1, a2;
};

void expand_window(Expander& e, const Cosines& c) {
  const auto type = dtype_from_onnx(static_cast<int32_t>(e.node.get_int("output_datatype", 1)));
  e.require(type.has_value(), "attribute 'output_datatype' is {}, which is no element type",
            e.node.get_int("output_datatype", 1));
  auto number = [&](double v) { return e.scalar(v, DType::F64); };
  const TensorId size = e.reshape(e.cast(e.in(0), DType::I64), {});
  const TensorId i = e.cast(e.emit("Range", {e.scalar(0, DType::I64), size, e.scalar(1, DType::I64)}), DType::F64);
  TensorId n = e.cast(size, DType::F64);
  if (!e.node.get_int("periodic", 1)) n = e.emit("Sub", {n, number(1)});
  auto wave = [&](double turns, double amplitude) {
    const TensorId angle = e.emit("Div", {e.emit("Mul", {i, number(turns * 2 * std::numbers::pi)}), n});
    return e.emit("Mul", {e.emit("Cos", {angle}), number(amplitude)});
  };
  TensorId waves = wave(1, -c.a1);
  if (c.a2 != 0) waves = e.emit("Add", {waves, wave(2, c.a2)});
  e.result(0, e.cast(e.emit("Add", {waves, number(c.a0)}), *type));  // in this order the peak is 1 exactly
}

void expand_hann(Expander& e) { expand_window(e, {0.5, 0.5, 0}); }
void expand_hamming(Expander& e) { expand_window(e, {25.0 / 46, 21.0 / 46, 0}); }
void expand_blackman(Expander& e) { expand_window(e, {0.42, 0.5, 0.08}); }

}  // namespace

void register_signal_window(ExpansionRegistry& r) {
  r.add("HannWindow", expand_hann);
  r.add("HammingWindow", expand_hamming);
  r.add("BlackmanWindow", expand_blackman);
}

}  // namespace ingot
