#include "passes/qdq.h"

#include <algorithm>

#include "passes/constants.h"

namespace ingot {
namespace {

bool is_quantized(DType t) {
  return t == DType::U8 || t == DType::I8 || t == DType::U16 || t == DType::I16 || t == DType::I32;
}

bool equal_constants(const Editor& e, TensorId a, TensorId b) {
  if (a == b) return true;
  return e.is_constant(a) && e.is_constant(b) && e.info(a).constant->elements() == e.info(b).constant->elements() &&
         e.info(a).dtype == e.info(b).dtype && e.info(a).constant->bytes.size() == e.info(b).constant->bytes.size() &&
         std::equal(e.info(a).constant->bytes.begin(), e.info(a).constant->bytes.end(),
                    e.info(b).constant->bytes.begin());
}

}  // namespace

bool is_product(const Node& n) { return n.is("MatMul") || n.is("Gemm") || n.is("Conv") || n.is("ConvTranspose"); }

std::optional<QdqNode> read_qdq(const Editor& e, const Node& n) {
  if (!n.is("QuantizeLinear") && !n.is("DequantizeLinear")) return std::nullopt;
  if (n.get_int("block_size", 0) != 0 || n.has("output_dtype") || n.has("precision")) return std::nullopt;
  QdqNode q{n.inputs[0], n.inputs[1], n.has_input(2) ? n.inputs[2] : kNoTensor, QdqNode::kPerTensor};
  const TensorInfo &x = e.info(q.x), &y = e.info(n.outputs[0]), &scale = e.info(q.scale);
  const bool quantizes = n.is("QuantizeLinear");
  if (scale.dtype != DType::F32 || (quantizes ? x : y).dtype != DType::F32) return std::nullopt;
  if (!is_quantized((quantizes ? y : x).dtype) || !x.shape || !scale.shape) return std::nullopt;
  if (product(*scale.shape).is(1)) {
    const auto broadcasts = [&](TensorId t) {
      return t == kNoTensor || e.is_constant(t) || (e.info(t).shape && e.info(t).shape->size() <= x.shape->size());
    };
    return broadcasts(q.scale) && broadcasts(q.zero) ? std::optional(q) : std::nullopt;
  }
  if (scale.shape->size() != 1) return std::nullopt;  // one of unknown size may be a single number
  const auto rank = static_cast<int64_t>(x.shape->size());
  const int64_t axis = rank == 1 ? 0 : n.get_int("axis", 1);
  q.axis = axis < 0 ? axis + rank : axis;
  if (!e.is_constant(q.scale) || (q.zero != kNoTensor && !e.is_constant(q.zero))) return std::nullopt;
  if (q.axis < 0 || q.axis >= rank) return std::nullopt;
  return q;
}

std::optional<QdqNode> read_dequantized(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "DequantizeLinear");
  return n ? read_qdq(e, *n) : std::nullopt;
}

std::optional<double> known_zero_point(const Editor& e, const QdqNode& q) {
  if (q.zero == kNoTensor) return 0;
  if (auto one = scalar_value(e.info(q.zero))) return one;
  const ConstantPtr& c = e.info(q.zero).constant;
  const bool all_zero =
      c && std::all_of(c->bytes.begin(), c->bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  return all_zero ? std::optional<double>(0) : std::nullopt;
}

bool same_qdq(const Editor& e, const QdqNode& a, const QdqNode& b) {
  if (a.axis != b.axis || !equal_constants(e, a.scale, b.scale)) return false;
  if (a.zero != kNoTensor && b.zero != kNoTensor && equal_constants(e, a.zero, b.zero)) return true;
  const auto x = known_zero_point(e, a), y = known_zero_point(e, b);
  return x && y && *x == *y;
}

}  // namespace ingot
