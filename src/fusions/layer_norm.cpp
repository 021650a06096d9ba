// LayerNormalization(x) = d / sqrt(mean(d^2) + epsilon) * scale + bias,  d = x - mean(x), means over the last axes.
// A variance computed as mean(x^2) - mean(x)^2 is another number in floating point and is left as it is.
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/reduction.h"

namespace ingot {
namespace {

using namespace match;

Pattern deviation() { return named("d", op("Sub", {value("x"), op("ReduceMean", {value("x")}, "mean")})); }
Pattern standard_deviation() {
  Pattern square = any_of({product(1, {deviation(), value("d")}), op("Pow", {deviation(), scalar(2)})});
  return op("Sqrt", {sum("epsilon", {op("ReduceMean", {square}, "variance")})});
}
Pattern normalized(bool scale) {
  std::vector<Pattern> factors = {inverse(standard_deviation()), value("d")};
  if (scale) factors.push_back(value("scale"));
  return product(1, factors);
}

std::string rewrite(Editor& e, const Match& m) {
  const TensorId x = m.value("x");
  if (!e.info(x).shape || e.info(x).dtype != DType::F32) return "x has no known rank, or is not f32";
  const Shape shape = *e.info(x).shape;
  auto axes = reduced_axes(e, e.node(m.node_names.at("mean")));
  if (!axes || axes != reduced_axes(e, e.node(m.node_names.at("variance"))))
    return "mean and variance are over different axes, or axes that are not known";
  auto axis = first_of_last(*axes, shape.size());
  if (!axis) return "the mean is not over the last axes";
  if (!same_shape(e.info(x), e.info(e.node(m.root).outputs[0]))) return "scale or bias broadcast x to another shape";
  TensorId scale = m.has("scale") ? normalization_operand(e, m.value("scale"), shape, *axis)
                                  : ones_like_normalized(e, e.node(m.root).name, DType::F32, shape, *axis);
  if (scale == kNoTensor) return "the scale does not have the shape of the normalized axes";
  std::vector<TensorId> inputs = {x, scale};
  if (m.has("bias")) {
    inputs.push_back(normalization_operand(e, m.value("bias"), shape, *axis));
    if (inputs.back() == kNoTensor) return "the bias does not have the shape of the normalized axes";
  }
  const int64_t from_back = *axis - static_cast<int64_t>(shape.size());
  replace_match(e, m,
                Node{.op = "LayerNormalization",
                     .inputs = inputs,
                     .attrs = {{"axis", from_back}, {"epsilon", static_cast<float>(m.number("epsilon"))}}});
  return "";
}

}  // namespace

void register_layer_norm(FusionRegistry& registry) {
  registry.add({.name = "layer_norm",
                .formula = "(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * scale + bias -> LayerNormalization(x)",
                .patterns = {sum(0, {normalized(true), value("bias")}), sum(0, {normalized(false), value("bias")}),
                             normalized(true), normalized(false)},
                .rewrite = rewrite});
}

}  // namespace ingot
