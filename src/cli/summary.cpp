#include "cli/summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "cli/model.h"
#include "ops/quantized_product.h"

namespace ingot {

Counts count(std::vector<std::string> names) {
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
  for (const Node& n : graph.nodes) names.push_back(n.qualified_op());
  return count(std::move(names));
}

Counts matched_fusions(const FusionReport& report) {
  std::vector<std::string> names;
  for (const auto& e : report.entries)
    if (e.outcome == "matched") names.push_back(e.fusion);
  return count(std::move(names));
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

Counts integer_products(const Graph& graph, const CompileOptions& options) {
  const auto is_product = [](const Node& n) { return n.op == "MatMulInteger" || n.op == "ConvInteger"; };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_product)) return {};
  std::vector<std::string> names;
  const auto packed = packed_for(graph, options);
  for (const Node& n : packed->nodes)
    if (is_product(n)) names.push_back(describe_form(n));
  return count(std::move(names));
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
