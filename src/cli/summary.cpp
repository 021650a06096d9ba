#include "cli/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "cli/model.h"
#include "ops/product.h"
#include "ops/quantized_product.h"
#include "planner/plan.h"

namespace ingot {

Counts count(const std::vector<std::string>& names) {
  std::map<std::string, int64_t> by_name;
  for (const std::string& n : names) by_name[n]++;
  Counts out(by_name.begin(), by_name.end());
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return out;
}

Counts operators(const Graph& graph) {
  std::vector<std::string> names;
  names.reserve(graph.nodes.size());
  for (const Node& n : graph.nodes) names.push_back(n.qualified_op());
  return count(names);
}

Counts matched_fusions(const FusionReport& report) {
  std::vector<std::string> names;
  for (const auto& e : report.entries)
    if (e.outcome == "matched") names.push_back(e.fusion);
  return count(names);
}

static const char* describe_form(const Node& n) {
  const auto form = packed_form(n);
  if (!form) return "8-bit operands, packed at run time";
  switch (*form) {
    case PackedForm::Chained:
      return "chained 8-bit weights";
    case PackedForm::Pairs:
      return "weights widened to 16 bits";
    case PackedForm::Rows:
      return "8-bit weights for single rows";
    case PackedForm::Dot:
      return "8-bit weights for vpdpbusd";
    case PackedForm::Tiles:
      return "8-bit weights for AMX";
    case PackedForm::Depthwise:
      return "depthwise filters";
  }
  return "";
}

// Of a product of bf16 by bf16.
static const char* describe_bf16(const Node& n, const Target& target) {
  const std::string form = n.get_string("packed_form", "");
  if (form == name(kernel::kBf16Dot)) return "bf16 weights for vdpbf16ps";
  if (form == name(kernel::kBf16Tiles)) return "bf16 weights for AMX";
  return bf16_form(target) ? "bf16 operands, packed at run time" : "bf16 operands, widened to f32";
}

ProductForms product_forms(const Graph& graph, const CompileOptions& options) {
  const auto is_integer = [](const Node& n) { return n.op == "MatMulInteger" || n.op == "ConvInteger"; };
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), is_integer) ||
                   std::any_of(graph.tensors.begin(), graph.tensors.end(),
                               [](const Tensor& t) { return t.info.dtype == DType::BF16; });
  if (!any) return {};
  std::vector<std::string> integers, bf16;
  const auto packed = packed_for(graph, options);
  for (const Node& n : packed->nodes) {
    if (is_integer(n)) integers.push_back(describe_form(n));
    if ((n.op == "MatMul" || n.op == "Gemm") && packed->info(n.inputs[0]).dtype == DType::BF16)
      bf16.push_back(describe_bf16(n, target_of(*packed)));
  }
  return {count(integers), count(bf16)};
}

static double elements(const std::vector<int64_t>& dims) {
  double out = 1;
  for (int64_t d : dims) out *= static_cast<double>(d);
  return out;
}

// Of a node that is a product; 0 of any other.
static double multiply_adds(const Node& n, const std::vector<TensorInfo>& infos) {
  const auto dims = [&](TensorId t) { return numbers(*infos[static_cast<size_t>(t)].shape); };
  if (n.op == "MatMul" || n.op == "Gemm" || n.op == "MatMulInteger") {
    const auto a = dims(n.inputs[0]);
    const bool transposed = n.get_int("transA", 0) != 0 && a.size() > 1;
    return elements(dims(n.outputs[0])) * static_cast<double>(a[a.size() - (transposed ? 2 : 1)]);
  }
  if (n.op == "Conv" || n.op == "ConvInteger") {
    const auto w = dims(n.inputs[1]);
    return w[0] ? elements(dims(n.outputs[0])) * elements(w) / static_cast<double>(w[0]) : 0;
  }
  if (n.is("Attention", "ingot")) {
    double keys = 0;
    for (size_t k : {size_t{1}, size_t{4}})  // K and its past
      if (n.has_input(k)) keys += static_cast<double>(dims(n.inputs[k])[n.get_string("layout_k", "bhsd").find('s')]);
    return keys * (elements(dims(n.inputs[0])) + elements(dims(n.outputs[0])));
  }
  return 0;
}

std::optional<MultiplyAdds> multiply_adds(const Graph& graph, const std::vector<std::vector<int64_t>>& input_dims) {
  MultiplyAdds out;
  try {
    const Lowered lowered = lower_graph(graph, input_dims, graph.outputs);
    for (const Node& n : graph.nodes)
      (n.op.ends_with("Integer") ? out.bytes : out.floats) += multiply_adds(n, lowered.infos);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const DataNeeded&) {
    return std::nullopt;
  }
  return out;
}

int64_t weight_bytes(const Graph& graph) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const Tensor& t : graph.tensors)
    if (t.info.constant && seen.insert(t.info.constant->bytes.data()).second)
      bytes += static_cast<int64_t>(t.info.constant->bytes.size());
  return bytes;
}

}  // namespace ingot
