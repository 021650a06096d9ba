// What a host operator (OpDef::host) sees of its node at run time: whole values in, whole values out.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/value.h"
#include "ops/op.h"

namespace ingot {

class HostContext {
 public:
  // Runs the subgraph in an attribute of the node, given its formal inputs; captured values are there already.
  using RunBody = std::function<std::vector<Value>(const std::string& attr, std::vector<Value> inputs)>;

  HostContext(const Node& node, const std::vector<Value>& inputs, StringPool& pool, const RunBody& run)
      : node(node), outputs(node.outputs.size()), pool_(pool), inputs_(inputs), run_(run) {}

  const Node& node;
  std::vector<Value> outputs;

  bool given(size_t i) const { return node.has_input(i); }
  size_t input_count() const { return inputs_.size(); }
  const Value& in(size_t i) const;
  const ConstantPtr& tensor(size_t i) const;           // error when it is no tensor
  const std::vector<Value>& sequence(size_t i) const;  // error when it is no sequence
  int64_t integer(size_t i) const;                     // the only element of an integer or bool tensor
  std::vector<int64_t> integers(size_t i) const;       // all elements of one
  double number(size_t i) const;                       // the only element of a tensor of numbers
  std::vector<std::string> strings(size_t i) const;    // all elements of a tensor of strings
  int64_t axis(int64_t value, int64_t rank) const;     // from the front; error outside [-rank, rank)

  void set(size_t out, Value value) {
    if (out < outputs.size()) outputs[out] = std::move(value);
  }
  template <class T>
  void set(size_t out, DType dtype, std::vector<int64_t> dims, const std::vector<T>& elements) {
    set(out, make_constant(dtype, std::move(dims), elements));
  }
  void set_strings(size_t out, std::vector<int64_t> dims, const std::vector<std::string>& elements);
  StringPool& pool() { return pool_; }

  std::vector<Value> body(const std::string& attr, std::vector<Value> inputs) const {
    return run_(attr, std::move(inputs));
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::InvalidInput, node.label() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  StringPool& pool_;
  const std::vector<Value>& inputs_;
  const RunBody& run_;
};

// A host operator: infer as for any other.
OpDef host_op(std::string name, int min_inputs, int max_inputs, int max_outputs, void (*infer)(InferContext&),
              void (*run)(HostContext&));

// Number of operands that are the node's own: the captured ones stand behind them.
size_t own_inputs(const Node&);

// Elements of an integer or bool tensor.
std::vector<int64_t> integer_elements(const Constant&);
// The same with other dims: the bytes are shared.
ConstantPtr with_dims(const ConstantPtr&, std::vector<int64_t> dims);
// Bytes per element; sub-byte types are an error.
int64_t element_bytes(const Constant&);

}  // namespace ingot
