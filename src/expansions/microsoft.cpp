// com.microsoft: operators of onnxruntime that are formulas of standard ones for which ranks or sizes must be known.
#include <algorithm>
#include <numeric>

#include "expansions/expander.h"

namespace ingot {
namespace {

TensorId added(Expander& e, TensorId x, TensorId bias) { return bias == kNoTensor ? x : e.emit("Add", {x, bias}); }

// scale_a scale_b (A - zero_a)(B - zero_b) + bias
struct ScaledProduct {
  TensorId a, b, a_scale, b_scale, a_zero, b_zero, bias;
};
TensorId product(Expander& e, const ScaledProduct& p) {
  const DType type = e.dtype(p.a_scale);
  const TensorId sum = e.cast(e.emit("MatMulInteger", {p.a, p.b, p.a_zero, p.b_zero}), DType::F32);
  const TensorId scale = e.emit("Mul", {e.cast(p.a_scale, DType::F32), e.cast(p.b_scale, DType::F32)});
  return added(e, e.cast(e.emit("Mul", {sum, scale}), type), p.bias);
}

void matmul_integer_to_float(Expander& e) {
  e.result(0, product(e, {e.in(0), e.in(1), e.in(2), e.in(3), e.in_or_none(4), e.in_or_none(5), e.in_or_none(6)}));
}

void dynamic_quantize_matmul(Expander& e) {
  const auto a = e.emit_many("DynamicQuantizeLinear", {e.in(0)}, 3);
  e.result(0, product(e, {a[0], e.in(1), a[1], e.in(2), a[2], e.in_or_none(3), e.in_or_none(4)}));
}

// Weights [directions, inputs, gates hidden] with a scale for each direction, or for each column too, as LSTM has them.
TensorId lstm_weights(Expander& e, size_t weights, size_t scale) {
  auto aligned = [&](TensorId t) {
    e.require(e.rank(t) == 1 || e.rank(t) == 2, "scales and zero points are of rank {}, expected 1 or 2", e.rank(t));
    return e.unsqueeze(t, e.rank(t) == 1 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1});
  };
  TensorId w = e.cast(e.in(weights), DType::F32);
  e.require(e.rank(w) == 3, "the weights of operand {} are of rank {}, expected 3", weights, e.rank(w));
  if (e.has(scale + 1)) w = e.emit("Sub", {w, aligned(e.cast(e.in(scale + 1), DType::F32))});
  return e.transpose(e.emit("Mul", {w, aligned(e.in(scale))}), {0, 2, 1});
}

// LSTM with quantized weights. onnxruntime rounds the activations to 8 bits as well, to be faster; here they are exact.
void dynamic_quantize_lstm(Expander& e) {
  std::vector<TensorId> operands = {e.in(0), lstm_weights(e, 1, 8), lstm_weights(e, 2, 10)};
  for (size_t i = 3; i < 8; i++) operands.push_back(e.in_or_none(i));
  const auto results = e.emit_many("LSTM", operands, 3, e.node.attrs);
  for (size_t i = 0; i < 3; i++) e.result(i, results[i]);
}

// Softmax of the opset that the attribute names: before 13 it was over all axes from `axis` on.
void qlinear_softmax(Expander& e) {
  const TensorId x = e.emit("DequantizeLinear", {e.in(0), e.in(1), e.in_or_none(2)});
  const int64_t rank = e.rank(x), opset = e.node.get_int("opset", 13);
  const int64_t axis = e.axis(e.node.get_int("axis", opset < 13 ? 1 : -1), rank);
  TensorId y = kNoTensor;
  if (opset >= 13 || axis == rank - 1) {
    y = e.emit("Softmax", {x}, {{"axis", axis}});
  } else {
    const TensorId flat = e.emit("Flatten", {x}, {{"axis", axis}});
    const TensorId shape = e.emit("Shape", {x});
    y = e.emit("Reshape", {e.emit("Softmax", {flat}, {{"axis", int64_t{1}}}), shape}, {{"allowzero", int64_t{1}}});
  }
  e.result(0, e.emit("QuantizeLinear", {y, e.in(3), e.in_or_none(4)}));
}

// The matrices of an operand of FusedMatMul: "transBatch" says that their rows stand before the batches, "trans" that
// rows and columns are exchanged.
TensorId matrices(Expander& e, size_t operand, const std::string& which) {
  const TensorId t = e.in(operand);
  const auto rank = static_cast<size_t>(e.rank(t));
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (rank < 2) return t;
  const auto last = perm.end() - 1;
  if (e.node.get_int("transBatch" + which, 0)) std::rotate(perm.begin(), perm.begin() + 1, last);
  if (e.node.get_int("trans" + which, 0)) std::iter_swap(last - 1, last);
  return e.transpose(t, perm);
}

void fused_matmul(Expander& e) {
  const TensorId y = e.emit("MatMul", {matrices(e, 0, "A"), matrices(e, 1, "B")});
  const float alpha = e.node.get_float("alpha", 1);
  e.result(0, alpha == 1 ? y : e.emit("Mul", {y, e.scalar(alpha, e.dtype(y))}));
}

// LayerNormalization(word + position + segment); the second result counts the tokens that the mask shows.
void embed_layer_norm(Expander& e) {
  enum Operand : size_t { kIds, kSegments, kWord, kPosition, kSegment, kGamma, kBeta, kMask, kPositions };
  const TensorId ids = e.in(kIds);
  e.require(e.rank(ids) == 2, "input_ids are of rank {}, expected 2", e.rank(ids));
  const TensorId position = e.has(kPositions) ? e.emit("Gather", {e.in(kPosition), e.in(kPositions)})
                                              : e.slice(e.in(kPosition), 0, 0, e.size(ids, 1));
  TensorId sum = e.emit("Add", {e.emit("Gather", {e.in(kWord), ids}), position});
  if (e.has(kSegment)) sum = e.emit("Add", {sum, e.emit("Gather", {e.in(kSegment), e.in(kSegments)})});
  e.result(0, e.emit("LayerNormalization", {sum, e.in(kGamma), e.in(kBeta)},
                     {{"axis", int64_t{-1}}, {"epsilon", e.node.get_float("epsilon", 1e-12f)}}));
  const TensorId none = e.emit("Expand", {e.scalar(0, DType::I32), e.sizes({e.size(ids, 0)})});
  e.result(1, e.has(kMask) ? e.reduce("ReduceSum", e.cast(e.in(kMask), DType::I32), {1}) : none);
  e.result(2, sum);
}

// The standard operator's, with position_ids and the caches in another order; one position is that of the first token.
void rotary_embedding(Expander& e) {
  const TensorId x = e.in(0), cos = e.in(2);
  const int64_t rank = e.rank(x);
  e.require(rank == 3 || rank == 4, "the input is of rank {}, expected 3 or 4", rank);
  if (e.node.get_int("is_packed_batching", 0) || e.node.get_float("scale", 1) != 1)
    e.fail(ErrorKind::Unsupported, "packed batches and a scale are not supported");
  TensorId positions = e.in(1);
  if (e.rank(positions) != 2) {
    const Size batch = e.size(x, 0), tokens = e.size(x, rank - 2);
    const TensorId all = e.emit("Add", {e.reshape(positions, {1}), e.count_up(tokens)});
    positions = e.emit("Expand", {all, e.sizes({batch, tokens})});
  }
  std::map<std::string, Attribute> attrs = {{"interleaved", e.node.get_int("interleaved", 0)},
                                            {"rotary_embedding_dim", e.node.get_int("rotary_embedding_dim", 0)}};
  int64_t heads = e.node.get_int("num_heads", 0);
  if (rank == 3 && heads == 0) heads = e.number(x, 2) / std::max<int64_t>(1, 2 * e.number(cos, 1));
  if (rank == 3) attrs["num_heads"] = heads;
  e.result(0, e.emit("RotaryEmbedding", {x, cos, e.in(3), positions}, std::move(attrs)));
}

constexpr const char* kDomain = "com.microsoft";

}  // namespace

void register_microsoft(ExpansionRegistry& r) {
  r.add("MatMulIntegerToFloat", matmul_integer_to_float, kDomain);
  r.add("DynamicQuantizeMatMul", dynamic_quantize_matmul, kDomain);
  r.add("DynamicQuantizeLSTM", dynamic_quantize_lstm, kDomain);
  r.add("QLinearSoftmax", qlinear_softmax, kDomain);
  r.add("FusedMatMul", fused_matmul, kDomain);
  r.add("TransposeMatMul", fused_matmul, kDomain);
  r.add("EmbedLayerNormalization", embed_layer_norm, kDomain);
  r.add("RotaryEmbedding", rotary_embedding, kDomain);
}

}  // namespace ingot
