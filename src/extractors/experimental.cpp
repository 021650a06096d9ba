// Operators that stood in the default domain as experiments, were exported by early converters, and were removed.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

TensorId attribute(Rewriter& r, const char* name, float fallback) {
  return r.scalar_like(r.node.get_float(name, fallback), r.need_input(0), name);
}

// alpha * x + beta
void affine(Rewriter& r) {
  const TensorId alpha = attribute(r, "alpha", 1), beta = attribute(r, "beta", 0);
  r.become("Add", {r.emit("Mul", {r.need_input(0), alpha}), beta});
}

// alpha * tanh(beta * x)
void scaled_tanh(Rewriter& r) {
  const TensorId alpha = attribute(r, "alpha", 1), beta = attribute(r, "beta", 1);
  r.become("Mul", {r.emit("Tanh", {r.emit("Mul", {r.need_input(0), beta})}), alpha});
}

// alpha * softplus(beta * x)
void parametric_softplus(Rewriter& r) {
  const TensorId alpha = attribute(r, "alpha", 1), beta = attribute(r, "beta", 1);
  r.become("Mul", {r.emit("Softplus", {r.emit("Mul", {r.need_input(0), beta})}), alpha});
}

void scale(Rewriter& r) { r.become("Mul", {r.need_input(0), attribute(r, "scale", 1)}); }

// scale * x + bias, a bias for each channel of NCHW
void image_scaler(Rewriter& r) {
  const auto bias = r.node.get_floats("bias");
  const TensorId factor = attribute(r, "scale", 1);
  const TensorId biases =
      r.constant(make_constant(DType::F32, {static_cast<int64_t>(bias.size()), 1, 1}, bias), "bias");
  r.become("Add", {r.emit("Mul", {r.need_input(0), factor}), r.emit("CastLike", {biases, r.need_input(0)})});
}

// border = left, top, right, bottom of NCHW; with `scale`, a size from the left top corner
void crop(Rewriter& r) {
  const auto border = r.node.get_ints("border"), size = r.node.get_ints("scale");
  if (border.size() != 4 || (!size.empty() && size.size() != 2))
    r.fail(ErrorKind::InvalidModel, "attribute 'border' has {} numbers, expected 4", border.size());
  auto end = [](int64_t b) { return b == 0 ? INT64_MAX : -b; };
  const std::vector<int64_t> ends = size.empty() ? std::vector{end(border[3]), end(border[2])}
                                                 : std::vector{border[1] + size[0], border[0] + size[1]};
  r.become("Slice",
           {r.need_input(0), r.ints({border[1], border[0]}, "starts"), r.ints(ends, "ends"), r.ints({2, 3}, "axes")});
}

// Slice with operands, before Slice had them
void dynamic_slice(Rewriter& r) { r.node.op = "Slice"; }

// A tensor of one value; its shape from an attribute, from the operand's elements, or from the operand's shape
void constant_fill(Rewriter& r) {
  const auto dtype = r.node.get_int("dtype", 1);
  const float value = r.node.get_float("value", 0);
  std::vector<int64_t> extra = r.node.get_ints("extra_shape");
  TensorId shape;
  if (!r.node.has_input(0))
    shape = r.ints(r.node.get_ints("shape"), "shape");
  else if (r.node.get_int("input_as_shape", 0))
    shape = r.emit("Cast", {r.need_input(0)}, {{"to", static_cast<int64_t>(DType::I64)}});
  else
    shape = r.emit("Shape", {r.need_input(0)});
  if (!extra.empty()) shape = r.emit("Concat", {shape, r.ints(extra, "extra_shape")}, {{"axis", int64_t{0}}});
  const TensorId filled =
      r.emit("ConstantOfShape", {shape}, {{"value", make_constant(DType::F32, {1}, std::vector{value})}});
  r.become("Cast", {filled}, {{"to", dtype}});
}

constexpr Rule kRules[] = {
    {"Affine", 1, kAnyVersion, affine},
    {"ScaledTanh", 1, kAnyVersion, scaled_tanh},
    {"ParametricSoftplus", 1, kAnyVersion, parametric_softplus},
    {"Scale", 1, kAnyVersion, scale},
    {"ImageScaler", 1, kAnyVersion, image_scaler},
    {"Crop", 1, kAnyVersion, crop},
    {"DynamicSlice", 1, kAnyVersion, dynamic_slice},
    {"ConstantFill", 1, kAnyVersion, constant_fill},
};

}  // namespace

RuleTable experimental_rules() { return {"", kRules}; }

}  // namespace ingot
