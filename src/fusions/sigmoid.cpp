// Sigmoid(x) = 1 / (1 + exp(-x))
#include "matcher/fusion.h"
#include "passes/constants.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  const TensorId in = m.value("x");
  if (!same_shape(e.info(in), e.info(e.node(m.root).outputs[0]))) return "a constant in it broadcasts x";
  replace_match(e, m, Node{.op = "Sigmoid", .inputs = {in}});
  return "";
}

}  // namespace

void register_sigmoid(FusionRegistry& registry) {
  registry.add({.name = "sigmoid",
                .priority = 10,
                .formula = "1 / (1 + exp(-x)) -> Sigmoid(x)",
                .patterns = {product(1, {inverse(sum(1, {op("Exp", {product(-1, {value("x")})})}))})},
                .rewrite = rewrite});
}

}  // namespace ingot
