// Gelu(x) = 0.5 x (1 + erf(x / sqrt 2)), or with the tanh approximation
//           0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
#include <numbers>

#include "matcher/fusion.h"

namespace ingot {
namespace {

using namespace match;

const double kSqrtHalf = 1 / std::numbers::sqrt2;
const double kSqrtTwoOverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

Pattern x() { return value("x"); }
Pattern half_x_times_one_plus(Pattern f) { return product(0.5, {x(), sum(1, {std::move(f)})}); }

// sqrt(2/pi) (x + 0.044715 x^3), also as sqrt(2/pi) x (1 + 0.044715 x^2) and with the constants multiplied out
Pattern tanh_argument() {
  const double c = 0.044715;
  Pattern cube = any_of({product(c, {x(), x(), x()}), product(c, {x(), product(1, {x(), x()})}),
                         product(c, {op("Pow", {x(), scalar(3)})})});
  Pattern square = any_of({product(c, {x(), x()}), product(c, {op("Pow", {x(), scalar(2)})})});
  return any_of({product(kSqrtTwoOverPi, {sum(0, {x(), cube})}), product(kSqrtTwoOverPi, {x(), sum(1, {square})}),
                 sum(0, {product(kSqrtTwoOverPi, {x()}), product(kSqrtTwoOverPi * c, {x(), x(), x()})})});
}

std::string rewrite(Editor& e, const Match& m) {
  const bool erf = m.node_names.contains("erf");
  if (!is_float(e.info(m.value("x")).dtype)) return "x is not of a floating type";
  return replace_function(e, m, Node{.op = "Gelu", .attrs = {{"approximate", std::string(erf ? "none" : "tanh")}}});
}

}  // namespace

void register_gelu(FusionRegistry& registry) {
  registry.add({.name = "gelu",
                .formula = "0.5 x (1 + erf(x / sqrt 2)) -> Gelu(x), and the tanh approximation",
                .patterns = {half_x_times_one_plus(op("Erf", {product(kSqrtHalf, {x()})}, "erf")),
                             half_x_times_one_plus(op("Tanh", {tanh_argument()}))},
                .rewrite = rewrite});
}

}  // namespace ingot
