#include "expansions/attention_parts.h"

#include <cmath>

namespace ingot {
namespace {

// 1 / sqrt(sqrt(dim)), where the dim is told at run time only.
TensorId root_of_default_scale(Expander& e, TensorId q, DType dtype) {
  const TensorId dim = e.cast(e.scalar_size(e.size(q, 3)), DType::F32);
  return e.cast(e.emit("Reciprocal", {e.emit("Sqrt", {e.emit("Sqrt", {dim})})}), dtype);
}

}  // namespace

TensorId split_heads(Expander& e, TensorId x, int64_t heads) {
  e.require(e.rank(x) == 3, "a tensor of rank {} cannot be split into heads, expected 3", e.rank(x));
  const Size width = e.size(x, 2);
  e.require(heads > 0, "the number of heads is {}", heads);
  e.require(!width.is_number() || width.number % heads == 0, "{} heads do not divide {} values", heads, width.number);
  const Size dim = width.is_number() ? width.number / heads : -1;
  return e.transpose(e.reshape(x, {e.size(x, 0), e.size(x, 1), heads, dim}), {0, 2, 1, 3});
}

TensorId merge_heads(Expander& e, TensorId x) {
  return e.reshape(e.transpose(x, {0, 2, 1, 3}), {e.size(x, 0), e.size(x, 2), e.size(x, 1) * e.size(x, 3)});
}

TensorId repeat_heads(Expander& e, TensorId x, TensorId q) {
  if (e.shape(x)[1] == e.shape(q)[1]) return x;
  const Size few = e.size(x, 1), many = e.size(q, 1);
  TensorId often = kNoTensor;
  if (few.is_number() && many.is_number()) {
    e.require(few.number > 0 && many.number % few.number == 0, "{} heads of K and V do not divide the {} of Q",
              few.number, many.number);
    often = e.ints({1, 1, many.number / few.number, 1, 1});
  } else {
    const TensorId times = e.emit("Div", {e.sizes({many}), e.sizes({few})});
    often = e.concat({e.ints({1, 1}), times, e.ints({1, 1})}, 0);
  }
  const TensorId each = e.emit("Expand", {e.unsqueeze(x, {2}), often});
  return e.reshape(each, {e.size(x, 0), many, e.size(x, 2), e.size(x, 3)});
}

TensorId scaled_scores(Expander& e, TensorId q, TensorId k) {
  const DType dtype = e.dtype(q);
  const Dim dim = e.shape(q)[3];
  e.require(e.dtype(k) == dtype, "Q is {} and K is {}", name(dtype), name(e.dtype(k)));
  TensorId root = kNoTensor;
  if (!e.node.has("scale") && !dim.is_const()) {
    root = root_of_default_scale(e, q, dtype);
  } else {
    const double scale =
        e.node.has("scale") ? e.node.get_float("scale", 1) : 1 / std::sqrt(static_cast<double>(dim.value()));
    e.require(scale >= 0, "attribute 'scale' is {}, expected 0 or more", scale);
    root = e.scalar(std::sqrt(scale), dtype);
  }
  return e.emit("MatMul", {e.emit("Mul", {q, root}), e.emit("Mul", {e.transpose(k, {0, 1, 3, 2}), root})});
}

DType softmax_type(const Expander& e, DType fallback) {
  if (!e.node.has("softmax_precision")) return fallback;
  const auto type = dtype_from_onnx(static_cast<int32_t>(e.node.get_int("softmax_precision", 0)));
  const bool serves =
      type && (*type == DType::F32 || *type == DType::F16 || *type == DType::F64 || *type == DType::BF16);
  e.require(serves, "attribute 'softmax_precision' is {}, which is no type of softmax",
            e.node.get_int("softmax_precision", 0));
  return *type;
}

}  // namespace ingot
