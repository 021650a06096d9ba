// Mish(x) = x tanh(softplus(x)),  softplus(x) = log(1 + exp(x))
#include "matcher/fusion.h"
#include "passes/constants.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  const TensorId in = m.value("x");
  if (!same_shape(e.info(in), e.info(e.node(m.root).outputs[0]))) return "a constant in it broadcasts x";
  replace_match(e, m, Node{.op = "Mish", .inputs = {in}});
  return "";
}

}  // namespace

void register_mish(FusionRegistry& registry) {
  Pattern softplus = any_of({op("Softplus", {value("x")}), op("Log", {sum(1, {op("Exp", {value("x")})})})});
  registry.add({.name = "mish",
                .priority = 21,
                .formula = "x tanh(softplus(x)) -> Mish(x)",
                .patterns = {product(1, {value("x"), op("Tanh", {softplus})})},
                .rewrite = rewrite});
}

}  // namespace ingot
