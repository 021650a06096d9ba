// Clusters of element-wise nodes, as expressions: what the element-wise fusion, epilogues and reductions share.
#pragma once
#include <functional>
#include <unordered_map>
#include <vector>

#include "graph/expr.h"
#include "passes/editor.h"

namespace ingot {

inline constexpr size_t kMaxClusterInstructions = 64;

// Can the node be part of an expression: element-wise, of types that expressions compute with?
bool is_expressible(const Editor&, const Node&);

// The expression of a growing set of nodes. Values made inside are instructions, scalar constants are literals, and
// everything else becomes an operand x0, x1, ...
class ClusterExpr {
 public:
  explicit ClusterExpr(const Editor& e) : e_(e) {}

  // The instruction of operand t, which is added when it is new.
  int operand(TensorId t);
  // Instruction `i` is the value t.
  void define(TensorId t, int i) { made_[t] = i; }
  bool makes(TensorId t) const { return made_.contains(t); }
  // Operands that adding the node would make necessary.
  std::vector<TensorId> new_operands(const Node&) const;
  // Adds the node; its operands made inside must have been defined.
  void add(const Node&);
  // The expression with these values as results, without dead code.
  Expr finish(const std::vector<TensorId>& results) const;

  const std::vector<TensorId>& operands() const { return operands_; }
  size_t size() const { return expr_.code.size(); }
  Expr& expr() { return expr_; }
  int instruction(TensorId t) const { return made_.at(t); }

 private:
  bool is_literal(const Node&, TensorId) const;
  int narrow(int instruction, DType stored);
  int rounded(int instruction, DType stored);

  const Editor& e_;
  Expr expr_;
  std::vector<TensorId> operands_;
  std::unordered_map<TensorId, int> made_;
  std::unordered_map<int, DType> narrow_;  // instructions whose values are all of this 16-bit type
};

// What follows a node element by element and can be computed before its result is stored.
struct EpilogueNodes {
  std::vector<Editor::Handle> nodes;
  TensorId result = kNoTensor;     // the value stored in the end
  std::vector<TensorId> operands;  // after x0, the result of the node itself
  std::string expr;                // "" when there is nothing to compute
};

inline constexpr size_t kMaxEpilogueOperands = 6;

inline TensorId operand_or_none(const Node& n, size_t i) { return n.has_input(i) ? n.inputs[i] : kNoTensor; }

// Which types the operands and the result of an epilogue may have: those of kernels for floats are f32, the kernels for
// integers take all.
enum class EpilogueTypes { kF32, kAny };

// The largest cluster after `value` (made by the node the epilogue is for) with one result of the same shape that is
// all anybody else reads. `cluster` comes with x0 = value, perhaps already further computed; `allowed` says which
// operands the node can read along.
EpilogueNodes grow_epilogue(const Editor&, TensorId value, ClusterExpr cluster, EpilogueTypes,
                            const std::function<bool(TensorId)>& allowed);

// `fused`, with the operands of the epilogue behind its own, in the place of `node` and the nodes of the epilogue.
void replace_with_epilogue(Editor&, Editor::Handle node, Node fused, const EpilogueNodes&);

// t broadcasts against the matrix rows of `out` ([..., M, N]) in a way that epilogues read: one element, a vector over
// the columns, one value per row, or the same shape.
bool row_column_operand(const Editor&, TensorId t, const Shape& out, EpilogueTypes);

}  // namespace ingot
