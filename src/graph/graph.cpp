#include "graph/graph.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

namespace ingot {

namespace {
constexpr std::string_view kForms[] = {"tensor", "sequence", "optional", "optional_sequence"};
}

std::string_view name(Form form) { return kForms[static_cast<size_t>(form)]; }

std::optional<Form> form_from_name(std::string_view text) {
  for (size_t i = 0; i < std::size(kForms); i++)
    if (kForms[i] == text) return static_cast<Form>(i);
  return std::nullopt;
}
namespace {

constexpr const char* kAttributeKinds[] = {"int", "float", "string", "ints", "floats", "strings", "tensor", "graph"};

template <class T>
const T* attribute(const Node& node, const std::string& name) {
  auto it = node.attrs.find(name);
  if (it == node.attrs.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  if (!value)
    invalid_model("{}: attribute '{}' is of kind {}, expected {}", node.label(), name,
                  kAttributeKinds[it->second.index()], kAttributeKinds[Attribute(T{}).index()]);
  return value;
}

}  // namespace

int64_t Constant::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n = checked_mul(n, d);
  return n;
}

ConstantPtr make_constant(DType dtype, std::vector<int64_t> dims, std::byte** data) {
  auto c = std::make_shared<Constant>();
  c->dtype = dtype;
  c->dims = std::move(dims);
  const auto size = static_cast<size_t>(byte_size(dtype, c->elements()));
  const std::shared_ptr<void> memory = tensor_memory(static_cast<int64_t>(size), "a tensor");
  c->owner = memory;
  *data = static_cast<std::byte*>(memory.get());
  c->bytes = {*data, size};
  return c;
}

ConstantPtr make_constant(DType dtype, std::vector<int64_t> dims, std::span<const std::byte> bytes) {
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(dtype, std::move(dims), &data);
  if (c->bytes.size() != bytes.size())
    fail(ErrorKind::Internal, "constant of {} bytes given {}", c->bytes.size(), bytes.size());
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  return c;
}

int64_t Node::get_int(const std::string& n, int64_t fallback) const {
  auto* v = attribute<int64_t>(*this, n);
  return v ? *v : fallback;
}
float Node::get_float(const std::string& n, float fallback) const {
  auto* v = attribute<float>(*this, n);
  return v ? *v : fallback;
}
std::string Node::get_string(const std::string& n, const std::string& fallback) const {
  auto* v = attribute<std::string>(*this, n);
  return v ? *v : fallback;
}
std::vector<int64_t> Node::get_ints(const std::string& n, std::vector<int64_t> fallback) const {
  auto* v = attribute<std::vector<int64_t>>(*this, n);
  return v ? *v : fallback;
}
std::vector<float> Node::get_floats(const std::string& n, std::vector<float> fallback) const {
  auto* v = attribute<std::vector<float>>(*this, n);
  return v ? *v : fallback;
}
std::vector<std::string> Node::get_strings(const std::string& n, std::vector<std::string> fallback) const {
  auto* v = attribute<std::vector<std::string>>(*this, n);
  return v ? *v : fallback;
}
ConstantPtr Node::get_constant(const std::string& n) const {
  auto* v = attribute<ConstantPtr>(*this, n);
  return v ? *v : nullptr;
}
GraphPtr Node::get_graph(const std::string& n) const {
  auto* v = attribute<GraphPtr>(*this, n);
  return v ? *v : nullptr;
}
int64_t Node::need_int(const std::string& n) const {
  auto* v = attribute<int64_t>(*this, n);
  if (!v) invalid_model("{}: attribute '{}' is missing", label(), n);
  return *v;
}

std::string Node::label() const {
  return (domain.empty() || domain == "ingot" ? op : domain + "." + op) + " '" + name + "'";
}
std::string Node::qualified_op() const { return domain.empty() ? op : domain + "." + op; }

TensorId Graph::add_tensor(const std::string& tensor_name, TensorInfo tensor_info) {
  tensors.push_back({tensor_name, std::move(tensor_info)});
  return static_cast<TensorId>(tensors.size() - 1);
}

TensorId Graph::add_constant(const std::string& tensor_name, ConstantPtr constant) {
  TensorInfo tensor_info;
  tensor_info.dtype = constant->dtype;
  tensor_info.shape = to_shape(constant->dims);
  tensor_info.constant = std::move(constant);
  return add_tensor(tensor_name, std::move(tensor_info));
}

std::string Graph::fresh_name(const std::string& base) const {
  if (find_tensor(base) == kNoTensor) return base;
  // Start at the number of tensors: names made in sequence are then found at the first try.
  for (size_t i = tensors.size();; i++) {
    std::string candidate = base + "_" + std::to_string(i);
    if (find_tensor(candidate) == kNoTensor) return candidate;
  }
}

TensorId Graph::find_tensor(std::string_view wanted) const {
  for (size_t i = 0; i < tensors.size(); i++)
    if (tensors[i].name == wanted) return static_cast<TensorId>(i);
  return kNoTensor;
}

Uses::Uses(const Graph& g) : producer(g.tensors.size(), -1), consumers(g.tensors.size()), is_output(g.tensors.size()) {
  for (size_t i = 0; i < g.nodes.size(); i++) {
    for (TensorId t : g.nodes[i].outputs)
      if (t != kNoTensor) producer[static_cast<size_t>(t)] = static_cast<int>(i);
    for (TensorId t : g.nodes[i].inputs)
      if (t != kNoTensor) consumers[static_cast<size_t>(t)].push_back(static_cast<int>(i));
  }
  for (TensorId t : g.outputs) is_output[static_cast<size_t>(t)] = true;
}

void verify(const Graph& g) {
  const auto count = static_cast<TensorId>(g.tensors.size());
  std::unordered_set<std::string_view> names;
  for (const Tensor& t : g.tensors) {
    if (t.name.empty()) invalid_model("graph '{}': a tensor has no name", g.name);
    if (!names.insert(t.name).second) invalid_model("graph '{}': two tensors are named '{}'", g.name, t.name);
  }
  std::vector<bool> defined(g.tensors.size());
  auto in_range = [&](TensorId t) { return t >= 0 && t < count; };
  for (TensorId t : g.inputs) {
    if (!in_range(t)) invalid_model("graph '{}': an input has tensor id {} of {}", g.name, t, count);
    if (defined[static_cast<size_t>(t)])
      invalid_model("graph '{}': input '{}' is listed twice", g.name, g.tensor(t).name);
    defined[static_cast<size_t>(t)] = true;
  }
  for (size_t i = 0; i < g.tensors.size(); i++) {
    if (!g.tensors[i].info.constant) continue;
    if (defined[i]) invalid_model("tensor '{}' is both an input and a constant", g.tensors[i].name);
    defined[i] = true;
  }
  for (const Node& n : g.nodes) {
    for (TensorId t : n.inputs) {
      if (t == kNoTensor) continue;
      if (!in_range(t)) invalid_model("{}: an operand has tensor id {} of {}", n.label(), t, count);
      if (!defined[static_cast<size_t>(t)])
        invalid_model("{}: operand '{}' is read before anything makes it (a cycle, or nodes out of order)", n.label(),
                      g.tensor(t).name);
    }
    for (TensorId t : n.outputs) {
      if (t == kNoTensor) continue;
      if (!in_range(t)) invalid_model("{}: a result has tensor id {} of {}", n.label(), t, count);
      if (defined[static_cast<size_t>(t)]) invalid_model("{}: result '{}' is made twice", n.label(), g.tensor(t).name);
      defined[static_cast<size_t>(t)] = true;
    }
    for (const auto& [key, value] : n.attrs)
      if (auto* sub = std::get_if<GraphPtr>(&value)) {
        if (!*sub) invalid_model("{}: attribute '{}' has no graph", n.label(), key);
        verify(**sub);
      }
  }
  for (TensorId t : g.outputs) {
    if (!in_range(t)) invalid_model("graph '{}': an output has tensor id {} of {}", g.name, t, count);
    if (!defined[static_cast<size_t>(t)])
      invalid_model("graph '{}': nothing makes output '{}'", g.name, g.tensor(t).name);
  }
}

void remove_dead(Graph& g) {
  std::vector<bool> live(g.tensors.size());
  for (TensorId t : g.outputs) live[static_cast<size_t>(t)] = true;
  std::vector<bool> keep(g.nodes.size());
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    for (TensorId t : n.outputs)
      if (t != kNoTensor && live[static_cast<size_t>(t)]) keep[i] = true;
    if (!keep[i]) continue;
    for (TensorId t : n.inputs)
      if (t != kNoTensor) live[static_cast<size_t>(t)] = true;
  }
  size_t at = 0;
  for (size_t i = 0; i < g.nodes.size(); i++)
    if (keep[i]) {
      if (at != i) g.nodes[at] = std::move(g.nodes[i]);
      at++;
    }
  g.nodes.resize(at);

  for (TensorId t : g.inputs) live[static_cast<size_t>(t)] = true;
  for (const Node& n : g.nodes)
    for (TensorId t : n.outputs)
      if (t != kNoTensor) live[static_cast<size_t>(t)] = true;
  std::vector<TensorId> moved(g.tensors.size(), kNoTensor);
  TensorId next = 0;
  for (size_t i = 0; i < g.tensors.size(); i++)
    if (live[i]) {
      moved[i] = next;
      if (static_cast<size_t>(next) != i) g.tensors[static_cast<size_t>(next)] = std::move(g.tensors[i]);
      next++;
    }
  g.tensors.resize(static_cast<size_t>(next));
  auto renumber = [&](std::vector<TensorId>& ids) {
    for (TensorId& t : ids)
      if (t != kNoTensor) t = moved[static_cast<size_t>(t)];
  };
  renumber(g.inputs);
  renumber(g.outputs);
  for (Node& n : g.nodes) {
    renumber(n.inputs);
    renumber(n.outputs);
  }
}

void replace_uses(Graph& g, TensorId from, TensorId to) {
  for (Node& n : g.nodes) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
  std::replace(g.outputs.begin(), g.outputs.end(), from, to);
}

void set_target(Graph& g, const Target& target) {
  g.target = &target;
  for (Node& n : g.nodes)
    for (auto& [attr, value] : n.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) set_target(**body, target);
}

}  // namespace ingot
