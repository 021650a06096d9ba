// Softmax(x) = exp(x - max(x)) / sum(exp(x - max(x))) over one axis. Without the maximum it is the same number where
// the exponentials do not overflow.
#include "matcher/fusion.h"
#include "passes/reduction.h"

namespace ingot {
namespace {

using namespace match;

std::string rewrite(Editor& e, const Match& m) {
  auto axes = reduced_axes(e, e.node(m.node_names.at("sum")));
  if (!axes || axes->size() != 1) return "the sum is not over one known axis";
  if (auto it = m.node_names.find("max"); it != m.node_names.end() && reduced_axes(e, e.node(it->second)) != axes)
    return "the maximum is over another axis than the sum";
  replace_match(e, m, Node{.op = "Softmax", .inputs = {m.value("x")}, .attrs = {{"axis", (*axes)[0]}}});
  return "";
}

}  // namespace

void register_softmax(FusionRegistry& registry) {
  Pattern shifted = op("Sub", {value("x"), op("ReduceMax", {value("x")}, "max")});
  Pattern exponentials = named("e", any_of({op("Exp", {shifted}), op("Exp", {value("x")})}));
  registry.add({.name = "softmax",
                .formula = "exp(x - max x) / sum exp(x - max x) -> Softmax(x)",
                .patterns = {product(1, {exponentials, inverse(op("ReduceSum", {value("e")}, "sum"))})},
                .rewrite = rewrite});
}

}  // namespace ingot
