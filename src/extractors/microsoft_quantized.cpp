// com.microsoft: onnxruntime's quantized operators, which are by definition Quantize(op(Dequantize(...))).
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// DequantizeLinear of operands i, i+1, i+2: data, scale, zero point
TensorId dequantized(Rewriter& r, size_t i, AttributeMap attrs = {}) {
  return r.emit("DequantizeLinear", {r.need_input(i), r.need_input(i + 1), r.input(i + 2)}, std::move(attrs));
}

// The node becomes the QuantizeLinear of x with the scale and zero point at operand i.
void quantized(Rewriter& r, TensorId x, size_t i) {
  std::vector<TensorId> inputs = {x, r.need_input(i)};
  if (r.node.has_input(i + 1)) inputs.push_back(r.input(i + 1));
  r.node.op = "QuantizeLinear";
  r.node.domain.clear();
  r.node.inputs = std::move(inputs);
  r.node.attrs.clear();
}

// (A, a_scale, a_zero, B, b_scale, b_zero, y_scale, y_zero)
void binary(Rewriter& r, const char* op) {
  const TensorId a = dequantized(r, 0), b = dequantized(r, 3);
  quantized(r, r.emit(op, {a, b}), 6);
}
void add(Rewriter& r) { binary(r, "Add"); }
void mul(Rewriter& r) { binary(r, "Mul"); }

// (X, x_scale, x_zero, y_scale, y_zero), attributes as those of the operator itself
void unary(Rewriter& r, const char* op, AttributeMap attrs) {
  quantized(r, r.emit(op, {dequantized(r, 0)}, std::move(attrs)), 3);
}
void sigmoid(Rewriter& r) { unary(r, "Sigmoid", {}); }
void leaky_relu(Rewriter& r) { unary(r, "LeakyRelu", r.node.attrs); }

void pooling(Rewriter& r, const char* op) {
  if (r.node.get_int("channels_last", 0)) return;  // expansions/microsoft_nhwc.cpp takes it
  AttributeMap attrs = r.node.attrs;
  attrs.erase("channels_last");
  unary(r, op, std::move(attrs));
}
void average_pool(Rewriter& r) { pooling(r, "AveragePool"); }
void global_average_pool(Rewriter& r) { pooling(r, "GlobalAveragePool"); }

// (condition, X, x_scale, x_zero, Y, y_scale, y_zero, z_scale, z_zero)
void where(Rewriter& r) {
  const TensorId x = dequantized(r, 1), y = dequantized(r, 4);
  quantized(r, r.emit("Where", {r.need_input(0), x, y}), 7);
}

// (y_scale, y_zero, X0, x0_scale, x0_zero, X1, ...)
void concat(Rewriter& r) {
  std::vector<TensorId> parts;
  for (size_t i = 2; i < r.node.inputs.size(); i += 3) parts.push_back(dequantized(r, i));
  quantized(r, r.emit("Concat", parts, {{"axis", r.node.need_int("axis")}}), 0);
}

// (A, a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero); C is int32 in units of alpha * a_scale * b_scale.
// Without y_scale the result stays float.
void gemm(Rewriter& r) {
  const bool transposed = r.node.get_int("transB", 0) != 0;
  const float alpha = r.node.get_float("alpha", 1);
  const TensorId a = dequantized(r, 0), b = dequantized(r, 3, {{"axis", int64_t{transposed ? 0 : 1}}});
  std::vector<TensorId> operands = {a, b};
  if (r.node.has_input(6)) {
    TensorId unit = r.emit("Mul", {r.need_input(1), r.need_input(4)});
    if (alpha != 1) unit = r.emit("Mul", {unit, r.scalar_like(alpha, r.need_input(1), "alpha")});
    operands.push_back(r.emit("DequantizeLinear", {r.input(6), unit}, {{"axis", int64_t{-1}}}));
  }
  const AttributeMap attrs = {
      {"alpha", alpha}, {"transA", r.node.get_int("transA", 0)}, {"transB", r.node.get_int("transB", 0)}};
  if (r.node.has_input(7)) return quantized(r, r.emit("Gemm", operands, attrs), 7);
  r.node.op = "Gemm";
  r.node.domain.clear();
  r.node.inputs = std::move(operands);
  r.node.attrs = attrs;
}

constexpr Rule kRules[] = {
    {"QLinearAdd", 1, kAnyVersion, add},
    {"QLinearMul", 1, kAnyVersion, mul},
    {"QLinearSigmoid", 1, kAnyVersion, sigmoid},
    {"QLinearLeakyRelu", 1, kAnyVersion, leaky_relu},
    {"QLinearAveragePool", 1, kAnyVersion, average_pool},
    {"QLinearGlobalAveragePool", 1, kAnyVersion, global_average_pool},
    {"QLinearWhere", 1, kAnyVersion, where},
    {"QLinearConcat", 1, kAnyVersion, concat},
    {"QGemm", 1, kAnyVersion, gemm},
};

}  // namespace

RuleTable microsoft_quantized_rules() { return {"com.microsoft", kRules}; }

}  // namespace ingot
