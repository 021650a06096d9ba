// Mish(x) = x tanh(softplus(x)),  softplus(x) = log(1 + exp(x))
#include "matcher/fusion.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) { return replace_function(e, m, Node{.op = "Mish"}); }

}  // namespace

void register_mish(FusionRegistry& registry) {
  Pattern softplus = any_of({op("Softplus", {value("x")}), op("Log", {sum(1, {op("Exp", {value("x")})})})});
  registry.add({.name = "mish",
                .formula = "x tanh(softplus(x)) -> Mish(x)",
                .patterns = {product(1, {value("x"), op("Tanh", {softplus})})},
                .rewrite = rewrite});
}

}  // namespace ingot
