#include "quantizer/widen.h"

#include <algorithm>
#include <bit>

#include "ops/via_f32.h"
#include "quantizer/products.h"
#include "writer/onnx_graph.h"

namespace ingot {
namespace {

float from_half(uint16_t bits, DType type) {
  if (type == DType::BF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

ConstantPtr widened(const ConstantPtr& c) {
  if (!c || !is_half(c->dtype)) return c;
  std::vector<float> values;
  for (uint16_t bits : c->as<uint16_t>()) values.push_back(from_half(bits, c->dtype));
  return make_constant(DType::F32, c->dims, values);
}

bool has_half_products(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    return is_product(n) && n.has_input(1) &&
           (is_half(g.info(n.inputs[0]).dtype) || is_half(g.info(n.inputs[1]).dtype));
  });
}

// Constants and attributes that name a type, here and in subgraphs; what was inferred is forgotten.
void widen_inside(Graph& g) {
  for (Tensor& t : g.tensors) {
    t.info.constant = widened(t.info.constant);
    if (is_half(t.info.dtype)) t.info.dtype = DType::F32;
  }
  for (Node& n : g.nodes)
    for (auto& [key, value] : n.attrs) {
      if (auto* c = std::get_if<ConstantPtr>(&value)) *c = widened(*c);
      if (auto* body = std::get_if<GraphPtr>(&value)) widen_inside(**body);
      auto* number = std::get_if<int64_t>(&value);
      const bool names_type = key == "to" || key == "dtype" || key == "output_dtype";
      if (number && names_type && is_half(static_cast<DType>(*number))) *number = static_cast<int64_t>(DType::F32);
    }
}

Node cast(TensorId from, TensorId to, DType type, const std::string& name) {
  Node n{.op = "Cast", .name = name};
  n.inputs = {from};
  n.outputs = {to};
  n.attrs["to"] = static_cast<int64_t>(type);
  return n;
}

}  // namespace

bool widen(Graph& graph) {
  Graph typed = deep_copy(graph);
  infer_types(typed);
  if (!has_half_products(typed)) return false;
  graph = std::move(typed);
  std::vector<DType> inputs, outputs;
  for (TensorId t : graph.inputs) inputs.push_back(graph.info(t).dtype);
  for (TensorId t : graph.outputs) outputs.push_back(graph.info(t).dtype);
  widen_inside(graph);
  std::vector<Node> casts;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!is_half(inputs[i])) continue;
    const TensorId t = graph.inputs[i];
    const TensorId wide = graph.add_tensor(graph.fresh_name(graph.tensor(t).name + "_f32"), graph.info(t));
    graph.info(t).dtype = inputs[i];
    replace_uses(graph, t, wide);
    casts.push_back(cast(t, wide, DType::F32, graph.tensor(wide).name));
  }
  graph.nodes.insert(graph.nodes.begin(), casts.begin(), casts.end());
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!is_half(outputs[i])) continue;
    const TensorId wide = graph.outputs[i];
    const std::string name = graph.tensor(wide).name;
    graph.tensor(wide).name = graph.fresh_name(name + "_f32");
    TensorInfo info = graph.info(wide);
    info.dtype = outputs[i];
    const TensorId narrow = graph.add_tensor(name, std::move(info));
    graph.nodes.push_back(cast(wide, narrow, outputs[i], name + "_cast"));
    graph.outputs[i] = narrow;
  }
  return true;
}

}  // namespace ingot
