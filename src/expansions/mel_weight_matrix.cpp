// MelWeightMatrix: column i is a triangle over the bins of a spectrum, rising from edge[i] to edge[i + 1] and falling
// to edge[i + 2]. The edges are evenly spaced on the mel scale, mel(f) = 2595 log10(1 + f / 700), and rounded down to
// bins.
#include <cmath>

#include "expansions/expander.h"

namespace ingot {
namespace {

constexpr DType kWide = DType::F64;

class Mel {
 public:
  explicit Mel(Expander& expander) : e(expander) {}

  // Bins of the n + 2 edges, as numbers.
  TensorId edges(TensorId bands) {
    const TensorId count = e.emit("Add", {bands, e.scalar(2, DType::I64)});
    const TensorId low = mel(operand(3, kWide)), high = mel(operand(4, kWide));
    const TensorId step = e.emit("Div", {e.emit("Sub", {high, low}), e.cast(count, kWide)});
    const TensorId at = e.emit("Add", {e.emit("Mul", {up_to(count), step}), low});
    const TensorId power = e.emit("Exp", {e.emit("Mul", {at, number(std::log(10.0) / 2595)})});
    const TensorId hertz = e.emit("Mul", {e.emit("Sub", {power, number(1)}), number(700)});
    const TensorId length = e.emit("Add", {operand(1, kWide), number(1)});
    return e.emit("Floor", {e.emit("Div", {e.emit("Mul", {length, hertz}), operand(2, kWide)})});
  }

  TensorId operand(size_t i, DType type) { return e.reshape(e.cast(e.in(i), type), {}); }
  TensorId number(double v) { return e.scalar(v, kWide); }
  // 0, 1, ... as numbers
  TensorId up_to(TensorId n) {
    return e.cast(e.emit("Range", {e.scalar(0, DType::I64), n, e.scalar(1, DType::I64)}), kWide);
  }

  // (x - from) / (to - from) in [from, to], 1 where both are one, 0 elsewhere.
  TensorId ramp(TensorId x, TensorId from, TensorId to) {
    const TensorId one = number(1), zero = number(0), width = e.emit("Sub", {to, from});
    const TensorId flat = e.emit("Equal", {width, zero});
    const TensorId slope = e.emit("Div", {e.emit("Sub", {x, from}), e.emit("Where", {flat, one, width})});
    return e.emit("Where", {flat, one, slope});
  }
  TensorId between(TensorId low, TensorId x, TensorId high) {
    return e.emit("And", {e.emit("LessOrEqual", {low, x}), e.emit("LessOrEqual", {x, high})});
  }

 private:
  TensorId mel(TensorId hertz) {
    const TensorId ratio = e.emit("Add", {e.emit("Div", {hertz, number(700)}), number(1)});
    return e.emit("Mul", {e.emit("Log", {ratio}), number(2595 / std::log(10.0))});
  }

  Expander& e;
};

void expand_mel_weight_matrix(Expander& e) {
  const auto type = dtype_from_onnx(static_cast<int32_t>(e.node.get_int("output_datatype", 1)));
  e.require(type.has_value(), "attribute 'output_datatype' is {}, which is no element type",
            e.node.get_int("output_datatype", 1));
  Mel m(e);
  const TensorId edges = m.edges(m.operand(0, DType::I64));
  const TensorId low = e.slice(edges, 0, 0, -2), peak = e.slice(edges, 0, 1, -1), high = e.slice(edges, 0, 2);
  const TensorId half = e.emit("Div", {m.operand(1, DType::I64), e.scalar(2, DType::I64)});
  const TensorId bin = e.unsqueeze(m.up_to(e.emit("Add", {half, e.scalar(1, DType::I64)})), {1});
  const TensorId rising = m.ramp(bin, low, peak), falling = m.ramp(bin, high, peak);
  const TensorId left = e.emit("Where", {m.between(low, bin, peak), rising, m.number(0)});
  const TensorId in_right = e.emit("And", {m.between(peak, bin, high), e.emit("Less", {bin, high})});
  e.result(0, e.cast(e.emit("Where", {in_right, falling, left}), *type));
}

}  // namespace

void register_mel_weight_matrix(ExpansionRegistry& r) { r.add("MelWeightMatrix", expand_mel_weight_matrix); }

}  // namespace ingot
