#include "loader/onnx_call.h"

#include "base/error.h"
#include "loader/onnx_graph.h"
#include "onnx.pb.h"

namespace ingot {

void splice(Graph& caller, const Node& call, const Graph& body, UniqueNames& tensor_names, UniqueNames& node_names) {
  std::vector<TensorId> mapped(body.tensors.size(), kNoTensor);
  std::vector<bool> known(body.tensors.size());
  auto map = [&](TensorId inner, TensorId outer) {
    mapped[static_cast<size_t>(inner)] = outer;
    known[static_cast<size_t>(inner)] = true;
  };
  for (size_t i = 0; i < body.inputs.size() && i < call.inputs.size(); i++)
    if (body.inputs[i] != kNoTensor) map(body.inputs[i], call.inputs[i]);
  // A result made in the body takes the caller's tensor; one that is an input, a constant, or returned twice is copied.
  std::vector<std::pair<TensorId, TensorId>> copies;
  for (size_t i = 0; i < call.outputs.size(); i++) {
    const TensorId outer = call.outputs[i], inner = body.outputs[i];
    if (outer == kNoTensor) continue;
    if (inner == kNoTensor) invalid_model("returns an absent operand as result '{}'", caller.tensor(outer).name);
    if (known[static_cast<size_t>(inner)] || body.info(inner).constant)
      copies.emplace_back(inner, outer);
    else
      map(inner, outer);
  }
  for (size_t i = 0; i < body.tensors.size(); i++)
    if (!known[i])
      mapped[i] = caller.add_tensor(tensor_names.make(call.name + "/" + body.tensors[i].name), body.tensors[i].info);

  auto remap = [&](std::vector<TensorId>& ids) {
    for (TensorId& t : ids)
      if (t != kNoTensor) t = mapped[static_cast<size_t>(t)];
  };
  for (Node node : body.nodes) {
    node.name = node_names.make(call.name + "/" + node.name);
    for (auto& origin : node.origins) origin = call.origins[0] + "/" + origin;
    remap(node.inputs);
    remap(node.outputs);
    caller.nodes.push_back(std::move(node));
  }
  for (auto [inner, outer] : copies) {
    Node copy;
    copy.op = "Identity";
    copy.name = node_names.make(call.name + "/Identity");
    copy.origins = call.origins;
    copy.inputs = {mapped[static_cast<size_t>(inner)]};
    copy.outputs = {outer};
    caller.nodes.push_back(std::move(copy));
  }
}

GraphPtr OnnxGraphBuilder::function_body(const Node& call, const onnx::FunctionProto& function) {
  if (call.inputs.size() > static_cast<size_t>(function.input_size()) ||
      call.outputs.size() > static_cast<size_t>(function.output_size()))
    invalid_model("calls function '{}' with {} operands and {} results; it has {} and {}", function.name(),
                  call.inputs.size(), call.outputs.size(), function.input_size(), function.output_size());

  Attributes attrs = call.attrs;
  for (const auto& a : function.attribute_proto())  // defaults
    if (!attrs.contains(a.name())) attrs.emplace(a.name(), read_attribute(a, model_.tensors));
  std::vector<std::optional<TensorInfo>> arguments;
  for (TensorId t : call.inputs) arguments.push_back(t == kNoTensor ? std::nullopt : std::optional(graph_->info(t)));
  Opsets opsets = model_.opsets;
  for (const auto& [domain, version] : read_opsets(function.opset_import())) opsets[domain] = version;

  return OnnxGraphBuilder(model_, nullptr, &attrs, opsets, depth_ + 1).build(function, arguments);
}

void OnnxGraphBuilder::inline_functions() {
  if (calls_.empty()) return;
  UniqueNames tensor_names, node_names;
  for (const Tensor& t : graph_->tensors) tensor_names.take(t.name);
  for (const Node& n : graph_->nodes) node_names.take(n.name);
  std::vector<Node> nodes = std::move(graph_->nodes);
  graph_->nodes.clear();
  for (Node& node : nodes) {
    if (node.domain != kCallDomain) {
      graph_->nodes.push_back(std::move(node));
      continue;
    }
    try {
      splice(*graph_, node, *function_body(node, *calls_.at(node.name)), tensor_names, node_names);
    } catch (const Error& e) {
      throw e.at(fmt::format("node '{}' ({})", node.name, node.op));
    }
  }
}

}  // namespace ingot
