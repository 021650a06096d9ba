// Layers: normalisation, dropout, pooling, Gemm, recurrent layers.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// One scale per activation rather than per channel: (x - mean) / sqrt(var + eps) * scale + bias
void per_activation_norm(Rewriter& r) {
  const TensorId x = r.need_input(0), scale = r.need_input(1), bias = r.need_input(2), mean = r.need_input(3),
                 var = r.need_input(4);
  const TensorId eps = r.scalar_like(r.node.get_float("epsilon", 1e-5f), x, "epsilon");
  const TensorId deviation = r.emit("Sqrt", {r.emit("Add", {var, eps})});
  const TensorId scaled = r.emit("Mul", {r.emit("Div", {r.emit("Sub", {x, mean}), deviation}), scale});
  const TensorId y = r.node.outputs[0];
  r.drop();
  r.emit_after("Add", {scaled, bias}, {y});
}

// Before opset 14 a second result meant training. Exporters list it all the same, and nobody reads it.
void batch_norm_13(Rewriter& r) {
  for (size_t i = 1; i < r.node.outputs.size(); i++)
    if (r.used(i)) r.fail(ErrorKind::Unsupported, "in training mode is not supported");
  r.need_input(0);
  if (!r.node.has_output(0)) r.fail(ErrorKind::InvalidModel, "has no result");
  r.node.outputs.resize(1);
  const bool spatial = r.take_int("spatial").value_or(1) != 0;
  r.remove({"is_test", "momentum"});
  if (!spatial) per_activation_norm(r);
}

bool trains(Rewriter& r) {
  const TensorId mode = r.input(2);
  if (r.version < 12 || mode == kNoTensor) return false;
  const ConstantPtr value = r.value(mode);
  if (!value || value->bytes.size() != 1) return true;  // not known: leave it to the operator
  return value->bytes[0] != std::byte{0};
}

// In inference the mask, if somebody reads it, is all true.
void dropout(Rewriter& r) {
  if (trains(r)) return;
  const TensorId x = r.need_input(0);
  if (r.used(1)) {
    const TensorId mask = r.node.outputs[1], shape = r.emit("Shape", {x});
    const AttributeMap yes = {{"value", make_constant(DType::Bool, {1}, std::vector<uint8_t>{1})}};
    if (r.version >= 10)
      r.emit_after("ConstantOfShape", {shape}, {mask}, yes);
    else  // it had the type of x
      r.emit_after("CastLike", {r.emit("ConstantOfShape", {shape}, yes), x}, {mask});
  }
  if (!r.node.has_output(0)) return r.drop();
  r.node.op = "Identity";
  r.node.attrs.clear();
  r.node.inputs.resize(1);
  r.node.outputs.resize(1);
}

void gemm_6(Rewriter& r) { r.remove({"broadcast"}); }

// p was a float.
void lp_pool_1(Rewriter& r) {
  const auto* p = r.node.has("p") ? std::get_if<float>(&r.node.attrs["p"]) : nullptr;
  if (p) r.node.attrs["p"] = static_cast<int64_t>(*p);
}

void recurrent_6(Rewriter& r) { r.remove({"output_sequence"}); }

// One scale per group became one per channel: scale [G] -> [G, 1] -> [G, C / G] -> [C]
void group_norm_18(Rewriter& r) {
  const TensorId groups = r.ints({r.node.need_int("num_groups")}, "num_groups");
  const TensorId channels = r.emit("Shape", {r.need_input(0)}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const TensorId each = r.emit("Div", {channels, groups});
  const TensorId shape = r.emit("Concat", {groups, each}, {{"axis", int64_t{0}}});
  for (size_t i : {1u, 2u}) {
    const TensorId column = r.emit("Unsqueeze", {r.need_input(i), r.ints({1}, "axes")});
    r.set_input(i, r.emit("Reshape", {r.emit("Expand", {column, shape}), r.ints({-1}, "shape")}));
  }
}

void roi_align_10(Rewriter& r) {
  r.node.attrs.try_emplace("coordinate_transformation_mode", std::string("output_half_pixel"));
}

// onnxruntime wrote these in the default domain before they were standard.
void layer_norm_16(Rewriter& r) { r.remove({"scale"}); }
void simplified_layer_norm(Rewriter& r) {
  r.node.op = "RMSNormalization";
  r.node.attrs.try_emplace("epsilon", 1e-5f);
  if (r.used(1)) r.fail(ErrorKind::Unsupported, "the second result is not supported");
  r.node.outputs.resize(1);
}

constexpr Rule kRules[] = {
    {"BatchNormalization", 1, 13, batch_norm_13},
    {"Dropout", 1, kAnyVersion, dropout},
    {"Gemm", 1, 6, gemm_6},
    {"LpPool", 1, 1, lp_pool_1},
    {"GlobalLpPool", 1, 1, lp_pool_1},
    {"RNN", 1, 6, recurrent_6},
    {"GRU", 1, 6, recurrent_6},
    {"LSTM", 1, 6, recurrent_6},
    {"GroupNormalization", 18, 20, group_norm_18},
    {"RoiAlign", 10, 15, roi_align_10},
    {"LayerNormalization", 1, 16, layer_norm_16},
    {"SimplifiedLayerNormalization", 1, kAnyVersion, simplified_layer_norm},
};

}  // namespace

RuleTable network_rules() { return {"", kRules}; }

}  // namespace ingot
