// RMSNormalization(x) = x / sqrt(mean(x^2) + epsilon) * scale, the mean over the last axes.
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/reduction.h"

namespace ingot {
namespace {

using namespace match;

Pattern normalized(bool scale) {
  Pattern square = any_of({product(1, {value("x"), value("x")}), op("Pow", {value("x"), scalar(2)})});
  Pattern root = op("Sqrt", {sum("epsilon", {op("ReduceMean", {square}, "mean")})});
  std::vector<Pattern> factors = {inverse(root), value("x")};
  if (scale) factors.push_back(value("scale"));
  return product(1, factors);
}

std::string rewrite(Editor& e, const Match& m) {
  const TensorId x = m.value("x");
  if (!e.info(x).shape || e.info(x).dtype != DType::F32) return "x has no known rank, or is not f32";
  const Shape shape = *e.info(x).shape;
  auto axes = reduced_axes(e, e.node(m.node_names.at("mean")));
  auto axis = axes ? first_of_last(*axes, shape.size()) : std::nullopt;
  if (!axis) return "the mean is not over the last axes";
  if (!same_shape(e.info(x), e.info(e.node(m.root).outputs[0]))) return "the scale broadcasts x to another shape";
  TensorId scale = m.has("scale") ? normalization_operand(e, m.value("scale"), shape, *axis)
                                  : ones_like_normalized(e, e.node(m.root).name, DType::F32, shape, *axis);
  if (scale == kNoTensor) return "the scale does not have the shape of the normalized axes";
  const int64_t from_back = *axis - static_cast<int64_t>(shape.size());
  replace_match(e, m,
                Node{.op = "RMSNormalization",
                     .inputs = {x, scale},
                     .attrs = {{"axis", from_back}, {"epsilon", static_cast<float>(m.number("epsilon"))}}});
  return "";
}

}  // namespace

void register_rms_norm(FusionRegistry& registry) {
  registry.add({.name = "rms_norm",
                .formula = "x / sqrt(mean x^2 + epsilon) * scale -> RMSNormalization(x)",
                .patterns = {normalized(true), normalized(false)},
                .rewrite = rewrite});
}

}  // namespace ingot
