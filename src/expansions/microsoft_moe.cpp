// com.microsoft.MoE: a mixture of experts, of which a router chooses k for each token.
//   y[t] = sum over chosen e of  p[t][e] (act(x[t] W1[e]^T + b1[e]) W2[e]^T + b2[e]),   p = softmax(router)
// With W3 the activation is multiplied by x W3^T + b3. All experts see all tokens, those that are not chosen with a
// weight of 0: the products keep their shapes, whatever the router says.
#include "expansions/expander.h"

namespace ingot {
namespace {

enum Operand : size_t { kTokens, kRouter, kW1, kB1, kW2, kB2, kW3, kB3 };

// x [1 or experts, tokens, n] times W [experts, m, n], plus b [experts, m]
TensorId linear(Expander& e, TensorId x, size_t weights, size_t bias) {
  e.require(e.rank(e.in(weights)) == 3, "operand {} is of rank {}, expected [experts, rows, columns]", weights,
            e.rank(e.in(weights)));
  const TensorId y = e.emit("MatMul", {x, e.transpose(e.in(weights), {0, 2, 1})});
  return e.has(bias) ? e.emit("Add", {y, e.unsqueeze(e.in(bias), {1})}) : y;
}

// gate sigmoid(alpha gate) (linear + beta), both cut off at the limit. swiglu_fusion 1: gate and linear take turns in
// the last axis; 2: the gates stand before the others.
TensorId swiglu(Expander& e, TensorId x) {
  const DType type = e.dtype(x);
  const int64_t fusion = e.node.get_int("swiglu_fusion", 0);
  if (fusion != 1 && fusion != 2)
    e.fail(ErrorKind::Unsupported, "swiglu_fusion {} is not supported, 1 and 2 are", fusion);
  std::vector<TensorId> halves = {e.slice(x, 2, 0, kToTheEnd, 2), e.slice(x, 2, 1, kToTheEnd, 2)};
  if (fusion == 2) halves = e.emit_many("Split", {x}, 2, {{"axis", int64_t{2}}, {"num_outputs", int64_t{2}}});
  TensorId gate = halves[0], other = halves[1];
  auto number = [&](const char* attr, float fallback) { return e.scalar(e.node.get_float(attr, fallback), type); };
  if (e.node.has("swiglu_limit")) {
    const TensorId limit = number("swiglu_limit", 0);
    gate = e.emit("Min", {gate, limit});
    other = e.emit("Clip", {other, e.emit("Neg", {limit}), limit});
  }
  const TensorId swish =
      e.emit("Mul", {gate, e.emit("Sigmoid", {e.emit("Mul", {gate, number("activation_alpha", 1)})})});
  return e.emit("Mul", {swish, e.emit("Add", {other, number("activation_beta", 0)})});
}

TensorId activated(Expander& e, TensorId x) {
  const std::string type = e.node.get_string("activation_type", "relu");
  if (type == "identity") return x;
  if (type == "relu") return e.emit("Relu", {x});
  if (type == "gelu") return e.emit("Gelu", {x}, {{"approximate", std::string("tanh")}});
  if (type == "silu") return e.emit("Swish", {x});
  if (type == "swiglu") return swiglu(e, x);
  e.fail(ErrorKind::Unsupported, "the activation '{}' is not supported", type);
}

// [tokens, experts]: how much each expert counts.
TensorId routing(Expander& e) {
  const TensorId p = e.emit("Softmax", {e.in(kRouter)}, {{"axis", int64_t{-1}}});
  const int64_t k = e.node.get_int("k", 1);
  e.require(k > 0, "k is {}", k);
  if (e.node.get_int("use_sparse_mixer", 0)) e.fail(ErrorKind::Unsupported, "use_sparse_mixer is not supported");
  const auto chosen = e.emit_many("TopK", {p, e.ints({k})}, 2, {{"axis", int64_t{-1}}});
  TensorId weight = chosen[0];
  if (e.node.get_int("normalize_routing_weights", 0))
    weight = e.emit("Div", {weight, e.reduce("ReduceSum", weight, {-1}, true)});
  const TensorId none = e.emit("Expand", {e.scalar(0, e.dtype(p)), e.sizes({e.size(p, 0), e.size(p, 1)})});
  return e.emit("ScatterElements", {none, chosen[1], weight}, {{"axis", int64_t{1}}});
}

void expand_moe(Expander& e) {
  const TensorId x = e.in(kTokens);
  e.require(e.rank(x) >= 2 && e.rank(e.in(kRouter)) == 2, "input and router_probs are of ranks {} and {}", e.rank(x),
            e.rank(e.in(kRouter)));
  const TensorId tokens = e.reshape(x, {1, -1, e.size(x, -1)});
  TensorId hidden = activated(e, linear(e, tokens, kW1, kB1));
  if (e.has(kW3)) hidden = e.emit("Mul", {hidden, linear(e, tokens, kW3, kB3)});
  const TensorId each = linear(e, hidden, kW2, kB2);
  const TensorId weights = e.unsqueeze(e.transpose(routing(e), {1, 0}), {2});
  const TensorId y = e.reduce("ReduceSum", e.emit("Mul", {each, weights}), {0});
  e.result(0, e.emit("Reshape", {y, e.emit("Shape", {x})}, {{"allowzero", int64_t{1}}}));
}

}  // namespace

void register_microsoft_moe(ExpansionRegistry& r) { r.add("MoE", expand_moe, "com.microsoft"); }

}  // namespace ingot
