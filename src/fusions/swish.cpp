// Swish(x) = x sigmoid(alpha x)
#include "matcher/fusion.h"
#include "passes/constants.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  const TensorId in = m.value("x");
  if (!same_shape(e.info(in), e.info(e.node(m.root).outputs[0]))) return "a constant in it broadcasts x";
  const double sign = m.numbers.contains("minus_alpha") ? -m.number("minus_alpha") : m.number("alpha");
  replace_match(e, m, Node{.op = "Swish", .inputs = {in}, .attrs = {{"alpha", static_cast<float>(sign)}}});
  return "";
}

}  // namespace

void register_swish(FusionRegistry& registry) {
  registry.add(
      {.name = "swish",
       .priority = 21,
       .formula = "x sigmoid(alpha x) -> Swish(x)",
       .patterns = {product(1, {value("x"), op("Sigmoid", {product("alpha", {value("x")})})}),
                    product(1, {value("x"), inverse(sum(1, {op("Exp", {product("minus_alpha", {value("x")})})}))})},
       .rewrite = rewrite});
}

}  // namespace ingot
