// HardSwish(x) = x clip(x + 3, 0, 6) / 6 = x HardSigmoid(x; 1/6, 1/2)
#include "matcher/fusion.h"
#include "passes/constants.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  if (auto it = m.node_names.find("hard_sigmoid"); it != m.node_names.end()) {
    const Node& h = e.node(it->second);
    if (!close(h.get_float("alpha", 0.2f), 1.0 / 6) || !close(h.get_float("beta", 0.5f), 0.5))
      return "its HardSigmoid has another slope or offset";
  }
  return replace_function(e, m, Node{.op = "HardSwish"});
}

Pattern relu6_of_x_plus_3() {
  Pattern x3 = sum(3, {value("x")});
  return any_of({op("Clip", {x3, scalar(0), scalar(6)}), op("Min", {op("Relu", {x3}), scalar(6)}),
                 op("Min", {op("Max", {x3, scalar(0)}), scalar(6)})});
}

}  // namespace

void register_hard_swish(FusionRegistry& registry) {
  registry.add({.name = "hard_swish",
                .formula = "x clip(x + 3, 0, 6) / 6 -> HardSwish(x)",
                .patterns = {product(1.0 / 6, {value("x"), relu6_of_x_plus_3()}),
                             product(1, {value("x"), op("HardSigmoid", {value("x")}, "hard_sigmoid")})},
                .rewrite = rewrite});
}

}  // namespace ingot
