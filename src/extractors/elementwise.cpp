// Element-wise operators: the `broadcast` and `axis` attributes of opset 6 and before; bounds that became operands.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// Appends `count` dimensions of size 1 to t's shape: t [C] -> [C, 1, 1].
TensorId append_ones(Rewriter& r, TensorId t, int64_t rank, int64_t count) {
  if (count <= 0) return t;
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < count; i++) axes.push_back(rank + i);
  return r.emit("Unsqueeze", {t, r.ints(axes, "axes")});
}

// B's dimensions meet A's from `axis` on: B gets 1s behind. When A's rank is not known, their number is computed:
// Reshape(B, Concat(Shape(B), ConstantOfShape(rank(A) - axis - rank(B), 1)))
TensorId align_at(Rewriter& r, TensorId a, TensorId b, int64_t axis) {
  auto rank_a = r.rank(a), rank_b = r.rank(b);
  if (rank_a && rank_b) {
    if (axis < 0) axis += *rank_a;
    if (axis < 0 || axis + *rank_b > *rank_a)
      r.fail(ErrorKind::InvalidModel, "axis {} does not place {} dimensions inside {}", axis, *rank_b, *rank_a);
    return append_ones(r, b, *rank_b, *rank_a - axis - *rank_b);
  }
  const TensorId dims_b = r.emit("Shape", {b}), rank_of_b = r.emit("Shape", {dims_b});
  // An axis from the back counts from rank(A), which then cancels.
  const TensorId end = axis < 0 ? r.ints({-axis}, "axis")
                                : r.emit("Sub", {r.emit("Shape", {r.emit("Shape", {a})}), r.ints({axis}, "axis")});
  const TensorId count = r.emit("Sub", {end, rank_of_b});
  const TensorId ones =
      r.emit("ConstantOfShape", {count}, {{"value", make_constant(DType::I64, {1}, std::vector<int64_t>{1})}});
  return r.emit("Reshape", {b, r.emit("Concat", {dims_b, ones}, {{"axis", int64_t{0}}})});
}

void broadcast_attribute(Rewriter& r) {
  const bool broadcast = r.take_int("broadcast").value_or(0) != 0;
  const auto axis = r.take_int("axis");
  // Without an axis the shapes match from the back, which is what operators do today.
  if (broadcast && axis) r.set_input(1, align_at(r, r.need_input(0), r.need_input(1), *axis));
}

// A slope [C] belongs to axis 1; today it would belong to the last one.
void prelu_6(Rewriter& r) {
  const TensorId slope = r.need_input(1);
  if (auto c = r.value(slope); c && c->elements() == 1) return;
  if (r.rank(slope) != 1) return;
  r.set_input(1, align_at(r, r.need_input(0), slope, 1));
}

void clip_6(Rewriter& r) {
  const TensorId x = r.need_input(0);
  const auto low = r.take_float("min"), high = r.take_float("max");
  if (low) r.set_input(1, r.scalar_like(*low, x, "min"));
  if (high) r.set_input(2, r.scalar_like(*high, x, "max"));
}

// The constants were written with fewer digits.
void selu_1(Rewriter& r) {
  r.node.attrs.try_emplace("alpha", 1.6732f);
  r.node.attrs.try_emplace("gamma", 1.0507f);
}

constexpr Rule kRules[] = {
    {"Add", 1, 6, broadcast_attribute},
    {"Sub", 1, 6, broadcast_attribute},
    {"Mul", 1, 6, broadcast_attribute},
    {"Div", 1, 6, broadcast_attribute},
    {"Pow", 1, 6, broadcast_attribute},
    {"And", 1, 6, broadcast_attribute},
    {"Or", 1, 6, broadcast_attribute},
    {"Xor", 1, 6, broadcast_attribute},
    {"Equal", 1, 6, broadcast_attribute},
    {"Greater", 1, 6, broadcast_attribute},
    {"Less", 1, 6, broadcast_attribute},
    {"PRelu", 1, 6, prelu_6},
    {"Clip", 1, 10, clip_6},
    {"Selu", 1, 5, selu_1},
};

}  // namespace

RuleTable elementwise_rules() { return {"", kRules}; }

}  // namespace ingot
