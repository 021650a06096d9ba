// MatMul(OneHot(i), W) = W[i]: a product with rows that are zero but for one element reads one row of W.
//   MatMul(Cast(Equal(i, [0, 1, ..., N-1])), W) -> Gather(W with a row of zeros, i where 0 <= i < N, else N)
// An index outside of the range is a row of zeros in the product, and stays one.
#include <algorithm>

#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using namespace match;

ConstantPtr with_zero_row(const Constant& w) {
  std::vector<float> rows(w.as<float>().begin(), w.as<float>().end());
  rows.resize(rows.size() + static_cast<size_t>(w.dims[1]), 0.f);
  return make_constant(DType::F32, {w.dims[0] + 1, w.dims[1]}, rows);
}

ConstantPtr index_scalar(DType dtype, int64_t value) {
  return dtype == DType::I32 ? make_constant(dtype, {}, std::vector<int32_t>{static_cast<int32_t>(value)})
                             : make_constant(dtype, {}, std::vector<int64_t>{value});
}

// A vector 0, 1, ..., n-1 along the last axis.
bool counts_up(const TensorInfo& info, int64_t n) {
  auto values = integer_values(info);
  if (!values || static_cast<int64_t>(values->size()) != n || info.constant->dims.back() != n) return false;
  for (int64_t i = 0; i < n; i++)
    if ((*values)[static_cast<size_t>(i)] != i) return false;
  return true;
}

std::string rewrite(Editor& e, const Match& m) {
  const TensorId index = m.value("index"), w = m.value("w"), out = e.node(m.root).outputs[0];
  const TensorInfo table = e.info(w), classes = e.info(m.value("classes"));
  const DType dtype = e.info(index).dtype;
  if (table.dtype != DType::F32 || table.constant->dims.size() != 2 || e.info(out).dtype != DType::F32)
    return "W is not an f32 matrix";
  if (dtype != DType::I32 && dtype != DType::I64) return "the index is not i32 or i64";
  const int64_t n = table.constant->dims[0];
  if (classes.constant->dims.empty() || !counts_up(classes, n)) return "the classes are not 0, 1, ..., N-1";
  const std::optional<Shape> shape = e.info(index).shape;
  if (!shape || shape->empty() || !shape->back().is(1) || !e.info(out).shape ||
      e.info(out).shape->size() != shape->size())
    return "the index has no last axis of size 1";

  const Node at = e.node(m.root);
  const Shape rows(shape->begin(), shape->end() - 1);
  auto flat = emit_reshape(e, at, index, rows);
  if (!flat) return "the shape of the index cannot be written as a constant";
  TensorId zero = e.add_constant(at.name + "/zero", index_scalar(dtype, 0));
  TensorId end = e.add_constant(at.name + "/classes", index_scalar(dtype, n));
  TensorId above = e.emit(at, "GreaterOrEqual", {*flat, zero}, {}, DType::Bool, rows);
  TensorId below = e.emit(at, "Less", {*flat, end}, {}, DType::Bool, rows);
  TensorId inside = e.emit(at, "And", {above, below}, {}, DType::Bool, rows);
  TensorId safe = e.emit(at, "Where", {inside, *flat, end}, {}, dtype, rows);
  TensorId padded = e.add_constant(e.graph.tensor(w).name + "/padded", with_zero_row(*table.constant));
  replace_match(e, m, Node{.op = "Gather", .inputs = {padded, safe}, .attrs = {{"axis", int64_t{0}}}});
  return "";
}

}  // namespace

void register_one_hot(FusionRegistry& registry) {
  registry.add(
      {.name = "one_hot",
       .formula = "MatMul(OneHot(i), W) -> Gather(W, i)",
       .patterns = {op("MatMul", {op("Cast", {op("Equal", {value("index"), constant("classes")})}), constant("w")})},
       .rewrite = rewrite});
}

}  // namespace ingot
