#include "extractors/rewriter.h"

#include "base/checked.h"

namespace ingot {

std::string Rewriter::tensor_name(const std::string& what) {
  if (!tensor_names_) {
    tensor_names_.emplace();
    for (const Tensor& t : graph.tensors) tensor_names_->take(t.name);
  }
  return tensor_names_->make(node.name + "/" + what);
}

Node Rewriter::make(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs) {
  if (!node_names_) {
    node_names_.emplace();
    for (const Node& n : graph.nodes) node_names_->take(n.name);
    node_names_->take(node.name);
  }
  Node n;
  n.op = op;
  n.name = node_names_->make(node.name + "/" + op);
  n.inputs = std::move(inputs);
  n.attrs = std::move(attrs);
  n.origins = node.origins;
  while (!n.inputs.empty() && n.inputs.back() == kNoTensor) n.inputs.pop_back();
  return n;
}

TensorId Rewriter::emit(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs,
                        const std::string& domain) {
  const TensorId result = graph.add_tensor(tensor_name(op));
  before_.push_back(make(op, std::move(inputs), std::move(attrs)));
  before_.back().domain = domain;
  before_.back().outputs = {result};
  return result;
}

void Rewriter::emit_after(const std::string& op, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                          AttributeMap attrs) {
  after_.push_back(make(op, std::move(inputs), std::move(attrs)));
  after_.back().outputs = std::move(outputs);
}

TensorId Rewriter::detach(size_t i) {
  if (!node.has_output(i)) fail(ErrorKind::InvalidModel, "has no result {}", i);
  const TensorId result = node.outputs[i];
  node.outputs[i] = graph.add_tensor(tensor_name(node.op));
  return result;
}

void Rewriter::become(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs,
                      const std::string& domain) {
  node.op = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
}

TensorId Rewriter::constant(ConstantPtr c, const std::string& what) {
  return graph.add_constant(tensor_name(what), std::move(c));
}

TensorId Rewriter::ints(std::vector<int64_t> values, const std::string& what) {
  return constant(make_constant(DType::I64, {static_cast<int64_t>(values.size())}, values), what);
}

TensorId Rewriter::scalar_like(double value, TensorId like, const std::string& what) {
  const DType dtype = graph.info(like).dtype;
  switch (dtype) {
    case DType::F64:
      return constant(make_constant(dtype, {}, std::vector{value}), what);
    case DType::I64:
      return constant(make_constant(dtype, {}, std::vector{static_cast<int64_t>(value)}), what);
    case DType::I32:
      return constant(make_constant(dtype, {}, std::vector{static_cast<int32_t>(value)}), what);
    default:
      break;
  }
  const TensorId f32 = constant(make_constant(DType::F32, {}, std::vector{static_cast<float>(value)}), what);
  if (dtype == DType::F32) return f32;
  if (dtype == DType::Undefined) return emit("CastLike", {f32, like});
  return emit("Cast", {f32}, {{"to", static_cast<int64_t>(dtype)}});
}

std::optional<std::vector<int64_t>> Rewriter::take_ints(const std::string& attr) {
  if (!node.has(attr)) return std::nullopt;
  auto values = node.get_ints(attr);
  node.attrs.erase(attr);
  return values;
}
std::optional<int64_t> Rewriter::take_int(const std::string& attr) {
  if (!node.has(attr)) return std::nullopt;
  const int64_t value = node.get_int(attr, 0);
  node.attrs.erase(attr);
  return value;
}
std::optional<float> Rewriter::take_float(const std::string& attr) {
  if (!node.has(attr)) return std::nullopt;
  const float value = node.get_float(attr, 0);
  node.attrs.erase(attr);
  return value;
}
void Rewriter::remove(std::initializer_list<const char*> attrs) {
  for (const char* a : attrs) node.attrs.erase(a);
}

void Rewriter::set_input(size_t i, TensorId t) {
  if (node.inputs.size() <= i) node.inputs.resize(i + 1, kNoTensor);
  node.inputs[i] = t;
}

TensorId Rewriter::need_input(size_t i) const {
  if (!node.has_input(i)) fail(ErrorKind::InvalidModel, "operand {} is missing", i);
  return node.inputs[i];
}

std::optional<int64_t> Rewriter::rank(TensorId t) const {
  if (t == kNoTensor || !graph.info(t).shape) return std::nullopt;
  return static_cast<int64_t>(graph.info(t).shape->size());
}

bool Rewriter::used(size_t output) {
  if (!node.has_output(output)) return false;
  if (!read_) {
    read_.emplace();
    for (TensorId t : graph.outputs) read_->insert(t);
    for (const Node& n : graph.nodes) read_->insert(n.inputs.begin(), n.inputs.end());
  }
  return read_->contains(node.outputs[output]);
}

void Rewriter::flush(std::vector<Node>& out) {
  for (Node& n : before_) out.push_back(std::move(n));
  if (!dropped_) {
    while (!node.outputs.empty() && node.outputs.back() == kNoTensor) node.outputs.pop_back();
    out.push_back(std::move(node));
  }
  for (Node& n : after_) out.push_back(std::move(n));
  before_.clear();
  after_.clear();
  dropped_ = false;
}

}  // namespace ingot
