// Sigmoid(x) = 1 / (1 + exp(-x))
#include "matcher/fusion.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) { return replace_function(e, m, Node{.op = "Sigmoid"}); }

}  // namespace

void register_sigmoid(FusionRegistry& registry) {
  registry.add({.name = "sigmoid",
                .formula = "1 / (1 + exp(-x)) -> Sigmoid(x)",
                .patterns = {product(1, {inverse(sum(1, {op("Exp", {product(-1, {value("x")})})}))})},
                .rewrite = rewrite});
}

}  // namespace ingot
