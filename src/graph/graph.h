// The one graph type: what loaders produce, passes and fusions rewrite, the emitter writes and the planner reads.
//
// A Graph owns tensors and nodes. Nodes stand in topological order and name tensors by id. A tensor has at most one
// producer: a node, the graph's inputs, or a constant. Subgraphs (If, Loop, Scan) are Graphs in attributes; what they
// capture from outside is made explicit: a subgraph's inputs are its formal inputs followed by its captured values,
// and the node lists the captured outer tensors after its own operands (attribute "captures": how many).
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "base/target.h"

namespace ingot {

// Constant data with whatever keeps it alive: the content of a file, a vector, another constant.
struct Constant {
  DType dtype = DType::Undefined;
  std::vector<int64_t> dims;
  std::span<const std::byte> bytes;  // row-major, little endian; empty for strings
  std::vector<std::string> strings;  // for DType::String
  std::shared_ptr<const void> owner;

  int64_t elements() const;
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};
using ConstantPtr = std::shared_ptr<const Constant>;

// A constant that owns a copy of the bytes (64-byte aligned).
ConstantPtr make_constant(DType, std::vector<int64_t> dims, std::span<const std::byte> bytes);
// The same with room to be filled by the caller.
ConstantPtr make_constant(DType, std::vector<int64_t> dims, std::byte** data);
template <class T>
ConstantPtr make_constant(DType dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
  return make_constant(dtype, std::move(dims), std::as_bytes(std::span(values)));
}

using TensorId = int32_t;
inline constexpr TensorId kNoTensor = -1;  // an optional operand that is absent

// What a tensor id stands for: one tensor, or a list of tensors, and whether it may be absent.
enum class Form : uint8_t { Tensor, Sequence, Optional, OptionalSequence };
std::string_view name(Form);
std::optional<Form> form_from_name(std::string_view);

// What is known of a tensor's type and value; of the elements, if it is a sequence or optional. `values` holds the
// elements of small integer tensors (shapes, axes, indices) as dims, known from the shapes alone; `constant` holds data
// fixed in the model.
struct TensorInfo {
  DType dtype = DType::Undefined;
  std::optional<Shape> shape;  // absent: rank unknown
  std::optional<std::vector<Dim>> values;
  ConstantPtr constant;
  Form form = Form::Tensor;
};

struct Tensor {
  std::string name;
  TensorInfo info;
};

class Graph;
using GraphPtr = std::shared_ptr<Graph>;

using Attribute = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                               std::vector<std::string>, ConstantPtr, GraphPtr>;

struct Node {
  std::string op;
  std::string domain;  // "" is ai.onnx; "ingot" for our own operators
  std::string name;
  std::vector<TensorId> inputs;  // kNoTensor where an optional operand is absent
  std::vector<TensorId> outputs;
  std::map<std::string, Attribute> attrs;
  std::vector<std::string> origins;  // names of the ONNX nodes this came from

  bool is(std::string_view op_name, std::string_view in_domain = "") const {
    return op == op_name && domain == in_domain;
  }
  bool has_input(size_t i) const { return i < inputs.size() && inputs[i] != kNoTensor; }
  bool has_output(size_t i) const { return i < outputs.size() && outputs[i] != kNoTensor; }
  bool has(const std::string& attr) const { return attrs.contains(attr); }

  // Typed access; a present attribute of another type is an InvalidModel error that names it.
  int64_t get_int(const std::string&, int64_t fallback) const;
  float get_float(const std::string&, float fallback) const;
  std::string get_string(const std::string&, const std::string& fallback) const;
  std::vector<int64_t> get_ints(const std::string&, std::vector<int64_t> fallback = {}) const;
  std::vector<float> get_floats(const std::string&, std::vector<float> fallback = {}) const;
  std::vector<std::string> get_strings(const std::string&, std::vector<std::string> fallback = {}) const;
  ConstantPtr get_constant(const std::string&) const;  // nullptr when absent
  GraphPtr get_graph(const std::string&) const;        // nullptr when absent
  int64_t need_int(const std::string&) const;          // error when absent

  std::string label() const;         // "Conv 'conv1'": for messages
  std::string qualified_op() const;  // "Gelu", "ingot.Attention"
};

class Graph {
 public:
  std::string name;
  std::deque<Tensor> tensors;  // references to tensors survive additions
  std::vector<Node> nodes;     // topological order
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::map<std::string, std::string> metadata;
  const Target* target = nullptr;  // for which the weights are packed (planner/pack_weights.h); nullptr: for none

  Tensor& tensor(TensorId id) { return tensors[static_cast<size_t>(id)]; }
  const Tensor& tensor(TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  TensorInfo& info(TensorId id) { return tensor(id).info; }
  const TensorInfo& info(TensorId id) const { return tensor(id).info; }

  TensorId add_tensor(const std::string& name, TensorInfo info = {});
  TensorId add_constant(const std::string& name, ConstantPtr);
  // A name no tensor has: `base`, or `base` with a number after it.
  std::string fresh_name(const std::string& base) const;
  TensorId find_tensor(std::string_view name) const;  // kNoTensor when there is none
};

// In the graph and the graphs inside it.
void set_target(Graph&, const Target&);
// The target whose kernels run the graph: the one it is packed for, or this CPU's.
inline const Target& target_of(const Graph& g) { return g.target ? *g.target : cpu_target(); }

// Who makes and who reads each tensor, for one state of the graph.
struct Uses {
  explicit Uses(const Graph&);
  std::vector<int> producer;                // node index, -1 for inputs and constants
  std::vector<std::vector<int>> consumers;  // node indices, one entry per use
  std::vector<bool> is_output;
};

// Throws InvalidModel naming the node and the broken rule: ids in range, one producer each, topological order,
// outputs produced, names unique and not empty, subgraphs likewise.
void verify(const Graph&);

// Removes nodes whose outputs nobody reads and tensors nobody names. Keeps order.
void remove_dead(Graph&);
// Reads of `from` become reads of `to`, in nodes and in the graph's outputs.
void replace_uses(Graph&, TensorId from, TensorId to);

}  // namespace ingot
