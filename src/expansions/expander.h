// What an expansion works with: one node with its operands' types, and the means to say it in other operators. Each
// file of this folder defines `void register_<file>(ExpansionRegistry&)`; the build collects them into the registry.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace ingot {

class GraphExpansion;

// One size of a shape to be built: a number, times sizes of axes that are told at run time only.
struct Size {
  Size(int64_t n) : number(n) {}  // NOLINT: numbers are sizes
  int64_t number;
  std::vector<std::pair<TensorId, int64_t>> factors;  // tensor and axis
  bool is_number() const { return factors.empty(); }
  friend Size operator*(Size a, const Size& b);
};

inline constexpr int64_t kToTheEnd = INT64_MAX;

class Expander {
 public:
  Expander(GraphExpansion&, const Node&);

  const Node& node;

  // Operands.
  bool has(size_t i) const { return node.has_input(i); }
  TensorId in(size_t i) const;  // InvalidModel when absent
  TensorId in_or_none(size_t i) const { return has(i) ? node.inputs[i] : kNoTensor; }

  // The graph around the node, as far as it has been walked.
  const std::vector<Node>& nodes_before() const;
  TensorId find(const std::string& tensor) const;  // kNoTensor when there is none

  // What is known of any tensor. Unsupported when it is not.
  DType dtype(TensorId) const;
  Shape shape(TensorId) const;
  int64_t rank(TensorId t) const { return static_cast<int64_t>(shape(t).size()); }
  int64_t number(TensorId, int64_t axis) const;     // the size of an axis
  int64_t axis(int64_t value, int64_t rank) const;  // from the front; InvalidModel outside
  const TensorInfo& info(TensorId) const;

  // Nodes. Operands of kNoTensor at the end are left out.
  TensorId emit(const std::string& op, std::vector<TensorId> inputs, std::map<std::string, Attribute> attrs = {});
  std::vector<TensorId> emit_many(const std::string& op, std::vector<TensorId> inputs, size_t results,
                                  std::map<std::string, Attribute> attrs = {});
  // The same node with other operands; its results.
  std::vector<TensorId> emit_copy(const Node&, std::vector<TensorId> inputs);
  // The nodes of a graph, reading `inputs`; its results.
  std::vector<TensorId> inline_graph(const Graph&, const std::vector<TensorId>& inputs);
  // t is the node's i-th result.
  void result(size_t i, TensorId t);

  // Constants.
  TensorId constant(ConstantPtr, const std::string& what = "constant");
  TensorId ints(const std::vector<int64_t>&);
  TensorId scalar(double, DType);

  // Often needed nodes. Those that would change nothing are not emitted.
  TensorId cast(TensorId, DType);
  TensorId transpose(TensorId, const std::vector<int64_t>& perm);
  TensorId unsqueeze(TensorId, const std::vector<int64_t>& axes);
  TensorId concat(const std::vector<TensorId>&, int64_t axis);
  TensorId squeeze(TensorId, const std::vector<int64_t>& axes);
  TensorId slice(TensorId, int64_t axis, const Size& begin, const Size& end = kToTheEnd, int64_t step = 1);
  TensorId reduce(const std::string& op, TensorId, const std::vector<int64_t>& axes, bool keep = false);
  // 0, 1, ... n - 1 of i64.
  TensorId count_up(const Size& n);

  // Shapes that may have symbols in them.
  Size size(TensorId, int64_t axis) const;  // axis may count from the back
  TensorId sizes(const std::vector<Size>&);
  TensorId scalar_size(const Size&);
  TensorId reshape(TensorId, const std::vector<Size>&);  // one size may be -1

  template <class... Args>
  [[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(kind, node.label() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) fail(ErrorKind::InvalidModel, format, std::forward<Args>(args)...);
  }

 private:
  friend class GraphExpansion;
  std::optional<std::pair<TensorId, int64_t>> operand_axis(const Dim&) const;
  void finish(std::vector<Node>& out);

  GraphExpansion& run_;
  std::vector<Node> nodes_;
  std::vector<TensorId> results_;
};

using ExpandFn = void (*)(Expander&);

class ExpansionRegistry {
 public:
  static const ExpansionRegistry& get();
  void add(const std::string& op, ExpandFn fn, const std::string& domain = "");
  ExpandFn find(const Node&) const;  // nullptr when there is none

 private:
  std::unordered_map<std::string, ExpandFn> expansions_;
};

extern "C" void (*const ingot_expansions_registrars[])(ExpansionRegistry&);  // generated

}  // namespace ingot
