// com.microsoft: onnxruntime's fused operators, where they are a spelling of standard ones.
#include "extractors/microsoft.h"

namespace ingot {
namespace {

const AttributeMap kTanh = {{"approximate", std::string("tanh")}};

void gelu(Rewriter& r) { r.become("Gelu", {r.need_input(0)}); }
void bias_gelu(Rewriter& r) { r.become("Gelu", {r.emit("Add", {r.need_input(0), r.need_input(1)})}); }
void fast_gelu(Rewriter& r) {
  const TensorId x = r.need_input(0);
  r.become("Gelu", {r.node.has_input(1) ? r.emit("Add", {x, r.input(1)}) : x}, kTanh);
}
// x * sigmoid(alpha * x)
void quick_gelu(Rewriter& r) { r.become("Swish", {r.need_input(0)}, {{"alpha", r.node.get_float("alpha", 1.702f)}}); }

void same_name(Rewriter& r) { r.node.domain.clear(); }

// (x, skip, gamma, beta, bias) -> norm(x + skip + bias); the fourth result is that sum.
void skip_norm(Rewriter& r, const std::string& op, TensorId beta, TensorId bias) {
  if (r.used(1) || r.used(2)) r.fail(ErrorKind::Unsupported, "results 1 and 2 are not supported");
  const float epsilon = r.node.get_float("epsilon", 1e-12f);
  TensorId sum = r.emit("Add", {r.need_input(0), r.need_input(1)});
  if (bias != kNoTensor) sum = r.emit("Add", {sum, bias});
  if (r.node.has_output(3)) r.emit_after("Identity", {sum}, {r.node.outputs[3]});
  r.node.outputs.resize(1);
  const TensorId gamma = r.need_input(2);
  r.become(op, {sum, gamma}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
  if (beta != kNoTensor) r.set_input(2, beta);
}
void skip_layer_norm(Rewriter& r) { skip_norm(r, "LayerNormalization", r.input(3), r.input(4)); }
void skip_rms_norm(Rewriter& r) { skip_norm(r, "RMSNormalization", kNoTensor, r.input(3)); }

void rms_norm(Rewriter& r) {
  if (r.used(1)) r.fail(ErrorKind::Unsupported, "the second result is not supported");
  r.node.outputs.resize(1);
  r.become("RMSNormalization", {r.need_input(0), r.need_input(1)},
           {{"axis", r.node.get_int("axis", -1)}, {"epsilon", r.node.get_float("epsilon", 1e-5f)}});
}

// Applies the activation that a fused operator names to the node's result.
void activate(Rewriter& r, const std::string& activation, const std::vector<float>& params) {
  if (activation.empty()) return;
  auto param = [&](size_t i, float fallback) { return i < params.size() ? params[i] : fallback; };
  AttributeMap attrs;
  std::vector<TensorId> more;
  if (activation == "LeakyRelu") {
    attrs = {{"alpha", param(0, 0.01f)}};
  } else if (activation == "HardSigmoid") {
    attrs = {{"alpha", param(0, 0.2f)}, {"beta", param(1, 0.5f)}};
  } else if (activation == "Clip") {
    if (params.size() != 2) r.fail(ErrorKind::InvalidModel, "Clip needs two activation_params");
    more = {r.scalar_like(params[0], r.need_input(0), "min"), r.scalar_like(params[1], r.need_input(0), "max")};
  } else if (activation != "Relu" && activation != "Tanh" && activation != "Sigmoid") {
    r.fail(ErrorKind::Unsupported, "activation '{}' is not supported", activation);
  }
  const TensorId result = r.detach();
  std::vector<TensorId> inputs = {r.node.outputs[0]};
  inputs.insert(inputs.end(), more.begin(), more.end());
  r.emit_after(activation, inputs, {result}, attrs);
}

}  // namespace

void fused_conv(Rewriter& r) {
  const std::string activation = r.node.get_string("activation", "");
  const auto params = r.node.get_floats("activation_params");
  r.remove({"activation", "activation_params"});
  r.node.domain.clear();
  r.node.op = "Conv";
  const TensorId z = r.input(3);
  if (r.node.inputs.size() > 3) r.node.inputs.resize(3);
  if (z != kNoTensor) {
    // The sum takes the place of the convolution, so that the activation follows it.
    const TensorId sum = r.node.outputs.at(0);
    const TensorId conv = r.emit("Conv", r.node.inputs, r.node.attrs);
    r.become("Add", {conv, z});
    r.node.outputs = {sum};
  }
  activate(r, activation, params);
}

namespace {

void fused_gemm(Rewriter& r) {
  const std::string activation = r.node.get_string("activation", "");
  std::vector<float> params;
  for (const char* p : {"activation_alpha", "activation_beta"})
    if (r.node.has(p)) params.push_back(r.node.get_float(p, 0));
  r.remove({"activation", "activation_alpha", "activation_beta", "activation_gamma"});
  r.node.domain.clear();
  r.node.op = "Gemm";
  activate(r, activation, params);
}

void expand_dims(Rewriter& r) {
  const TensorId axis = r.emit("Reshape", {r.need_input(1), r.ints({1}, "shape")});
  r.become("Unsqueeze", {r.need_input(0), r.emit("Cast", {axis}, {{"to", static_cast<int64_t>(DType::I64)}})});
}

// The operand with other dims, which a list tells.
TensorId reshaped(Rewriter& r, TensorId x, std::vector<int64_t> dims) {
  return r.emit("Reshape", {x, r.ints(std::move(dims), "shape")});
}

// pads may be [1, 2 rank], the value [1]
void pad(Rewriter& r) {
  std::vector<TensorId> inputs = {r.need_input(0), reshaped(r, r.need_input(1), {-1})};
  if (r.node.has_input(2)) inputs.push_back(reshaped(r, r.input(2), {}));
  r.become("Pad", std::move(inputs), {{"mode", r.node.get_string("mode", "constant")}});
}

// start, limit and delta may be [1]; delta may be absent
void range(Rewriter& r) {
  const TensorId start = reshaped(r, r.need_input(0), {}), limit = reshaped(r, r.need_input(1), {});
  const TensorId delta = r.node.has_input(2) ? reshaped(r, r.input(2), {}) : r.scalar_like(1, r.need_input(0), "delta");
  r.become("Range", {start, limit, delta});
}

// (values in order of appearance, where each element of x is among them, how often they appear)
void unique(Rewriter& r) {
  if (r.node.outputs.size() > 1) r.node.outputs.insert(r.node.outputs.begin() + 1, kNoTensor);
  r.become("Unique", {r.need_input(0)}, {{"sorted", int64_t{0}}});
}

// Operators that Ingot has under the same name.
void own(Rewriter& r) { r.node.domain = "ingot"; }

constexpr Rule kRules[] = {
    {"Gelu", 1, kAnyVersion, gelu},
    {"BiasGelu", 1, kAnyVersion, bias_gelu},
    {"FastGelu", 1, kAnyVersion, fast_gelu},
    {"QuickGelu", 1, kAnyVersion, quick_gelu},
    {"LayerNormalization", 1, kAnyVersion, same_name},
    {"QuantizeLinear", 1, kAnyVersion, same_name},
    {"DequantizeLinear", 1, kAnyVersion, same_name},
    {"Trilu", 1, kAnyVersion, same_name},
    {"SkipLayerNormalization", 1, kAnyVersion, skip_layer_norm},
    {"SkipSimplifiedLayerNormalization", 1, kAnyVersion, skip_rms_norm},
    {"SimplifiedLayerNormalization", 1, kAnyVersion, rms_norm},
    {"FusedConv", 1, kAnyVersion, fused_conv},
    {"FusedGemm", 1, kAnyVersion, fused_gemm},
    {"ExpandDims", 1, kAnyVersion, expand_dims},
    {"GridSample", 1, kAnyVersion, same_name},
    {"Pad", 1, kAnyVersion, pad},
    {"Range", 1, kAnyVersion, range},
    {"Unique", 1, kAnyVersion, unique},
    {"Inverse", 1, kAnyVersion, own},
    {"MurmurHash3", 1, kAnyVersion, own},
    {"Tokenizer", 1, kAnyVersion, own},
};

// onnxruntime writes this one as if it were standard.
constexpr Rule kStandardRules[] = {{"SimplifiedLayerNormalization", 1, kAnyVersion, rms_norm}};

}  // namespace

RuleTable microsoft_rules() { return {"com.microsoft", kRules}; }
RuleTable microsoft_standard_rules() { return {"", kStandardRules}; }

}  // namespace ingot
