// Swish(x) = x sigmoid(alpha x)
#include "matcher/fusion.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  const double sign = m.numbers.contains("minus_alpha") ? -m.number("minus_alpha") : m.number("alpha");
  return replace_function(e, m, Node{.op = "Swish", .attrs = {{"alpha", static_cast<float>(sign)}}});
}

}  // namespace

void register_swish(FusionRegistry& registry) {
  registry.add(
      {.name = "swish",
       .formula = "x sigmoid(alpha x) -> Swish(x)",
       .patterns = {product(1, {value("x"), op("Sigmoid", {product("alpha", {value("x")})})}),
                    product(1, {value("x"), inverse(sum(1, {op("Exp", {product("minus_alpha", {value("x")})})}))})},
       .rewrite = rewrite});
}

}  // namespace ingot
