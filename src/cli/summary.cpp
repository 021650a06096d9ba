#include "cli/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "cli/model.h"
#include "kernels/narrow.h"
#include "ops/product.h"
#include "ops/quantized_product.h"
#include "planner/lowering.h"

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

static const char* describe_bytes(const Node& n) {
  const auto form = packed_form(n);
  if (!form) return "8-bit operands, packed at run time";
  switch (*form) {
    case PackedForm::Chained:
      return "8-bit weights, chained";
    case PackedForm::Pairs:
      return "8-bit weights, pairs (widened to 16 bits)";
    case PackedForm::Rows:
      return "8-bit weights, rows (for few rows of activations)";
    case PackedForm::Dot:
      return "8-bit weights, dot (vpdpbusd)";
    case PackedForm::Tiles:
      return "8-bit weights, tiles (AMX)";
    case PackedForm::Depthwise:
      return "8-bit depthwise filters";
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

static std::string describe_floats(const Graph& g, const Node& n) {
  const int64_t columns = n.get_int("packed", 0);
  if (!columns) return fmt::format("{} operands, not packed ahead", name(g.tensor(n.inputs[1]).info.dtype));
  if (n.op == "Conv" && columns == 1) return "f32 depthwise filters";
  const char* kinds[] = {"f32", "bf16", "f16", "8-bit", "4-bit"};  // kernel::PanelType
  return fmt::format("{} weights, panels of {} columns", kinds[n.get_int("packed_type", kernel::kPanelF32)], columns);
}

Counts products(const Graph& graph, const Target& target) {
  std::vector<std::string> names;
  const auto packed = packed_for(graph, target);
  for (const Node& n : packed->nodes)
    if (n.op == "MatMulInteger" || n.op == "ConvInteger")
      names.emplace_back(describe_bytes(n));
    else if ((n.op == "MatMul" || n.op == "Gemm") && packed->info(n.inputs[0]).dtype == DType::BF16)
      names.emplace_back(describe_bf16(n, target));
    else if (n.op == "MatMul" || n.op == "Gemm" || n.op == "Conv")
      names.push_back(describe_floats(*packed, n));
  return count(names);
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
    PlanInputs inputs;
    for (const auto& dims : input_dims) inputs.push_back({dims});
    Lowering lowering(graph, graph.outputs);
    lowering.update(inputs);
    for (const Node& n : graph.nodes)
      (n.op.ends_with("Integer") ? out.bytes : out.floats) += multiply_adds(n, lowering.infos());
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
