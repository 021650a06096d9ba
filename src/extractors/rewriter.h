// What a rewrite rule works with: one node of an older opset or another domain, and the means to say it in current
// operators. Each group of rules is a table in its own file; extract.cpp lists the tables.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/unique_names.h"
#include "graph/graph.h"

namespace ingot {

using AttributeMap = std::map<std::string, Attribute>;

class Rewriter {
 public:
  explicit Rewriter(Graph& g) : graph(g) {}

  Graph& graph;
  Node node;            // being rewritten; kept after the rule ran, unless dropped
  int64_t version = 0;  // of the opset the node was written in

  // A new node in front of `node`; its only result.
  TensorId emit(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs = {},
                const std::string& domain = {});
  // A new node behind `node`, making `outputs`.
  void emit_after(const std::string& op, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                  AttributeMap attrs = {});
  // The node makes a new tensor instead of its i-th result, which is returned: emit_after must make it.
  TensorId detach(size_t i = 0);
  // The node becomes another one that makes the same results.
  void become(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs = {},
              const std::string& domain = {});
  // The node is left out: emitted nodes make its results.
  void drop() { dropped_ = true; }

  TensorId ints(std::vector<int64_t> values, const std::string& what);  // a list as a constant operand
  TensorId constant(ConstantPtr, const std::string& what);
  // A scalar of the element type of `like`: a constant if the type is known, else cast at run time.
  TensorId scalar_like(double value, TensorId like, const std::string& what);

  // Takes an attribute off the node.
  std::optional<std::vector<int64_t>> take_ints(const std::string& attr);
  std::optional<int64_t> take_int(const std::string& attr);
  std::optional<float> take_float(const std::string& attr);
  void remove(std::initializer_list<const char*> attrs);
  // Operand i, made room for.
  void set_input(size_t i, TensorId);
  TensorId input(size_t i) const { return node.has_input(i) ? node.inputs[i] : kNoTensor; }
  TensorId need_input(size_t i) const;  // InvalidModel when absent

  std::optional<int64_t> rank(TensorId) const;
  ConstantPtr value(TensorId t) const { return t == kNoTensor ? nullptr : graph.info(t).constant; }
  bool used(size_t output);  // does anything read that result of the node?

  template <class... Args>
  [[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(kind, node.label() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  friend void extract(Graph&, const std::map<std::string, int64_t>&);
  std::string tensor_name(const std::string& what);
  Node make(const std::string& op, std::vector<TensorId> inputs, AttributeMap attrs);
  void flush(std::vector<Node>& out);

  std::vector<Node> before_, after_;
  bool dropped_ = false;
  std::optional<UniqueNames> tensor_names_, node_names_;  // made when first needed: most graphs are current
  std::optional<std::unordered_set<TensorId>> read_;      // tensors that the graph as written reads
};

// A rule for nodes of `op` written in opset versions [since, until].
struct Rule {
  const char* op;
  int64_t since, until;
  void (*rewrite)(Rewriter&);
};
inline constexpr int64_t kAnyVersion = INT64_MAX;

struct RuleTable {
  const char* domain;
  std::span<const Rule> rules;
};

RuleTable elementwise_rules();
RuleTable shape_rules();
RuleTable pad_slice_rules();
RuleTable reduce_rules();
RuleTable network_rules();
RuleTable resize_rules();
RuleTable other_rules();
RuleTable experimental_rules();
RuleTable microsoft_rules();
RuleTable microsoft_nbits_rules();
RuleTable microsoft_standard_rules();
RuleTable microsoft_quantized_rules();
RuleTable nchwc_rules();
std::vector<RuleTable> qonnx_rules();
RuleTable ml_rules();
RuleTable ml_tree_rules();
RuleTable ml_svm_rules();

}  // namespace ingot
