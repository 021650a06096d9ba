// ingot.Table(x, t) = t[x]: a function of one 8-bit number that is dear to compute, by looking it up.
//   f(x) of bytes -> Table(x, f(0), f(1), ..., f(255)),   f with an exponential, a quotient, ... in it
#include <algorithm>
#include <array>

#include "matcher/fusion.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr std::array kDear = {"div(",  "exp(",       "log(",  "erf(",      "tanh(",     "sigmoid(",
                              "gelu(", "gelu_tanh(", "silu(", "softplus(", "softsign(", "mish(",
                              "sqrt(", "sin(",       "cos(",  "pow(",      "elu("};

std::string tabulate(Editor& e, Handle h) {
  const Node n = e.node(h);
  if (n.inputs.size() != 1 || n.outputs.size() != 1) return "more than one operand or result";
  const DType from = e.info(n.inputs[0]).dtype, to = e.info(n.outputs[0]).dtype;
  if (!is_byte(from) || !is_byte(to)) return "operand or result is not of 8 bits";
  const std::string expr = n.get_string("expr", "");
  if (std::none_of(kDear.begin(), kDear.end(), [&](const char* f) { return expr.find(f) != std::string::npos; }))
    return "computing is as fast as looking up";
  std::vector<std::byte> all(256);
  for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<std::byte>(i);
  const TensorId numbers = e.add_constant("bytes", make_constant(from, {256}, all));
  const TensorId table = e.emit(n, "Elementwise", {numbers}, n.attrs, to, Shape{256}, "ingot");
  Node with{.op = "Table", .domain = "ingot", .inputs = {n.inputs[0], table}};
  with.origins = n.origins;
  e.replace(h, std::move(with));
  return "";
}

void run(Editor& e, const Explain& explain) {
  const Handle count = e.size();
  for (Handle h = 0; h < count; h++) {
    if (!e.alive(h) || !e.node(h).is("Elementwise", "ingot")) continue;
    const TensorId x = e.node(h).inputs.empty() ? kNoTensor : e.node(h).inputs[0];
    if (x == kNoTensor || !is_byte(e.info(x).dtype)) continue;
    const std::string label = e.node(h).label(), why = tabulate(e, h);
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace

void register_table(FusionRegistry& registry) {
  registry.add({.name = "table", .formula = "f(x) of bytes -> ingot.Table(x, f(0 .. 255))", .pass = run});
}

}  // namespace ingot
