#include "loader/onnx_graph.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "base/utf8.h"
#include "extractors/extract.h"
#include "loader/onnx_call.h"
#include "loader/onnx_constant.h"
#include "loader/onnx_order.h"
#include "loader/onnx_wire.h"

namespace ingot {
namespace {

constexpr TensorId kUndefined = -2;  // kNoTensor is an absent operand

void check_name(const std::string& name, const char* what) {
  if (name.empty()) invalid_model("{} has no name", what);
  if (!is_utf8(name)) invalid_model("{} has a name that is not UTF-8", what);
}

}  // namespace

OnnxGraphBuilder::OnnxGraphBuilder(OnnxModel& model, OnnxGraphBuilder* outer, const Attributes* function_attrs,
                                   const Opsets& opsets, int depth)
    : model_(model),
      outer_(outer),
      function_attrs_(function_attrs),
      opsets_(opsets),
      depth_(depth),
      graph_(std::make_shared<Graph>()) {
  if (depth > kMaxGraphDepth) invalid_model("graphs and functions are nested more than {} deep", kMaxGraphDepth);
}

GraphPtr OnnxGraphBuilder::build(const onnx::GraphProto& proto) {
  graph_->name = proto.name();
  add_initializers(proto);
  add_inputs(proto);
  add_hints(proto.value_info());
  add_hints(proto.output());
  add_nodes(proto.node());
  add_outputs(proto);
  finish();
  return graph_;
}

GraphPtr OnnxGraphBuilder::build(const onnx::FunctionProto& proto,
                                 const std::vector<std::optional<TensorInfo>>& arguments) {
  graph_->name = proto.name();
  for (int i = 0; i < proto.input_size(); i++) {
    const auto at = static_cast<size_t>(i);
    if (at < arguments.size() && arguments[at]) {
      graph_->inputs.push_back(define(proto.input(i), *arguments[at], "function input"));
    } else {
      graph_->inputs.push_back(kNoTensor);
      names_[proto.input(i)] = kNoTensor;
    }
  }
  add_hints(proto.value_info());
  add_nodes(proto.node());
  for (const auto& name : proto.output()) graph_->outputs.push_back(resolve(name));
  finish();
  return graph_;
}

TensorId OnnxGraphBuilder::define(const std::string& name, TensorInfo info, const char* what) {
  check_name(name, what);
  const TensorId id = graph_->add_tensor(name, std::move(info));
  if (!names_.emplace(name, id).second) invalid_model("{} '{}' has the name of another tensor", what, name);
  return id;
}

TensorId OnnxGraphBuilder::lookup(const std::string& name) {
  if (auto it = names_.find(name); it != names_.end()) return it->second;
  if (!outer_) return kUndefined;
  const TensorId outside = outer_->lookup(name);
  if (outside == kUndefined || outside == kNoTensor) return outside;
  TensorInfo info = outer_->graph_->info(outside);
  const bool constant = info.constant != nullptr;  // shared, not captured: its value then is known inside as well
  const TensorId id = define(name, std::move(info), "captured tensor");
  if (!constant) captures_.push_back({outside, id});
  return id;
}

TensorId OnnxGraphBuilder::resolve(const std::string& name) {
  const TensorId id = lookup(name);
  if (id == kUndefined) invalid_model("tensor '{}' is not defined by any input, initializer or node", name);
  return id;
}

void OnnxGraphBuilder::add_initializers(const onnx::GraphProto& proto) {
  auto add = [&](const std::string& name, ConstantPtr constant) {
    TensorInfo info{constant->dtype, to_shape(constant->dims), std::nullopt, constant};
    define(name, std::move(info), "initializer");
  };
  for (const auto& t : proto.initializer()) add(t.name(), model_.tensors.read(t));
  for (const auto& s : proto.sparse_initializer()) add(s.values().name(), model_.tensors.read(s));
}

void OnnxGraphBuilder::add_inputs(const onnx::GraphProto& proto) {
  std::unordered_set<std::string_view> seen;
  for (const auto& v : proto.input()) {
    if (!seen.insert(v.name()).second) invalid_model("graph input '{}' is listed twice", v.name());
    // An initializer that is also an input has a default value; the default is what is used.
    if (auto it = names_.find(v.name()); it != names_.end() && graph_->info(it->second).constant) continue;
    check_name(v.name(), "a graph input");
    TensorInfo info = read_type(v, Role::Input, model_.symbols);
    if (depth_ == 0 && info.dtype == DType::Undefined) invalid_model("graph input '{}' has no element type", v.name());
    graph_->inputs.push_back(define(v.name(), std::move(info), "graph input"));
  }
}

void OnnxGraphBuilder::add_hints(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  for (const auto& v : values)
    if (v.type().value_case() == onnx::TypeProto::kTensorType)
      hints_.emplace(v.name(), read_type(v, Role::Other, model_.symbols));
}

void OnnxGraphBuilder::add_outputs(const onnx::GraphProto& proto) {
  std::unordered_set<std::string_view> seen;
  for (const auto& v : proto.output()) {
    if (depth_ == 0 && !seen.insert(v.name()).second) invalid_model("graph output '{}' is listed twice", v.name());
    check_name(v.name(), "a graph output");
    read_type(v, Role::Other, model_.symbols);  // refuses types that are not tensors
    graph_->outputs.push_back(resolve(v.name()));
  }
  if (depth_ == 0 && graph_->outputs.empty()) invalid_model("the graph has no outputs");
}

void OnnxGraphBuilder::add_nodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  // Given names first: an unnamed node must not take the name of a later one.
  std::vector<std::string> names;
  for (int i = 0; i < nodes.size(); i++) {
    if (!is_utf8(nodes[i].name())) invalid_model("node {} has a name that is not UTF-8", i);
    names.push_back(nodes[i].name().empty() ? "" : node_names_.make(nodes[i].name()));
  }
  for (int i = 0; i < nodes.size(); i++)
    if (auto& name = names[static_cast<size_t>(i)]; name.empty())
      name = node_names_.make(fmt::format("{}_{}", nodes[i].op_type(), i));
  for (int index : reading_order(nodes)) {
    const std::string& name = names[static_cast<size_t>(index)];
    try {
      add_node(nodes[index], name);
    } catch (const Error& e) {
      throw e.at(fmt::format("node '{}' ({})", name, nodes[index].op_type()));
    }
  }
}

void OnnxGraphBuilder::add_node(const onnx::NodeProto& proto, const std::string& name) {
  if (proto.op_type().empty()) invalid_model("has no operator type");
  Node node;
  node.op = proto.op_type();
  node.domain = normal_domain(proto.domain());
  node.name = name;
  node.origins = {name};
  for (const auto& i : proto.input()) node.inputs.push_back(i.empty() ? kNoTensor : resolve(i));

  std::vector<std::unique_ptr<OnnxGraphBuilder>> subgraphs;
  for (const auto& a : proto.attribute()) {
    if (node.has(a.name())) invalid_model("attribute '{}' is given twice", a.name());
    if (auto value = attribute(a, subgraphs)) node.attrs.emplace(a.name(), std::move(*value));
  }
  auto function = model_.functions.find(function_key(proto.domain(), proto.op_type(), proto.overload()));
  if (function != model_.functions.end()) {
    if (!subgraphs.empty()) unsupported("passes a graph to a function, which is not supported");
    calls_.emplace(name, function->second);
    node.domain = kCallDomain;
  } else if (node.is("Constant")) {
    if (proto.output_size() != 1) invalid_model("has {} outputs, expected 1", proto.output_size());
    ConstantPtr constant = constant_value(node.attrs);
    define(proto.output(0), {constant->dtype, to_shape(constant->dims), std::nullopt, constant}, "result");
    return;
  } else if (!subgraphs.empty()) {
    if (node.is("Loop")) node.inputs.resize(std::max<size_t>(node.inputs.size(), 2), kNoTensor);
    add_captures(node, subgraphs);
  } else {
    while (!node.inputs.empty() && node.inputs.back() == kNoTensor) node.inputs.pop_back();
  }
  for (const auto& o : proto.output()) node.outputs.push_back(o.empty() ? kNoTensor : define_output(o));
  while (!node.outputs.empty() && node.outputs.back() == kNoTensor) node.outputs.pop_back();
  graph_->nodes.push_back(std::move(node));
}

TensorId OnnxGraphBuilder::define_output(const std::string& name) {
  auto hint = hints_.find(name);
  return define(name, hint == hints_.end() ? TensorInfo{} : hint->second, "result");
}

// The subgraphs of one node (then_branch, else_branch) all take the captured values of all of them, in one order.
void OnnxGraphBuilder::add_captures(Node& node, std::vector<std::unique_ptr<OnnxGraphBuilder>>& subgraphs) {
  std::vector<TensorId> captured;
  std::unordered_set<TensorId> seen;
  for (const auto& sub : subgraphs)
    for (const Capture& c : sub->captures_)
      if (seen.insert(c.outer).second) captured.push_back(c.outer);
  for (const auto& sub : subgraphs) {
    Graph& inside = *sub->graph_;
    std::unordered_map<TensorId, TensorId> inner;
    for (const Capture& c : sub->captures_) {
      inner.emplace(c.outer, c.inner);
      inside.info(c.inner) = {};  // the outer type is not inferred yet
    }
    UniqueNames names;
    if (inner.size() < captured.size())
      for (const Tensor& t : inside.tensors) names.take(t.name);
    for (TensorId outer : captured) {
      auto it = inner.find(outer);
      inside.inputs.push_back(it != inner.end() ? it->second
                                                : inside.add_tensor(names.make(graph_->tensor(outer).name)));
    }
  }
  node.inputs.insert(node.inputs.end(), captured.begin(), captured.end());
  node.attrs["captures"] = static_cast<int64_t>(captured.size());
}

void OnnxGraphBuilder::finish() {
  extract(*graph_, opsets_);
  inline_functions();
  // Declared types of inner tensors may be wrong; inference will tell. Outputs keep theirs: it is a promise to the
  // caller.
  std::vector<bool> keep(graph_->tensors.size());
  for (TensorId t : graph_->inputs)
    if (t != kNoTensor) keep[static_cast<size_t>(t)] = true;
  for (TensorId t : graph_->outputs)
    if (t != kNoTensor) keep[static_cast<size_t>(t)] = true;
  for (size_t i = 0; i < keep.size(); i++)
    if (!keep[i] && !graph_->tensors[i].info.constant) graph_->tensors[i].info = {};
}

}  // namespace ingot
