// Clean-up passes: each is a function from a graph to an equivalent graph, alone in the file of its name. All of them
// expect a graph that verifies and leave one that does, without dead nodes. Those that read shapes work with what
// infer_shapes has found so far; a tensor they add carries its own type and shape.
#pragma once
#include <limits>

#include "base/error.h"
#include "graph/graph.h"

namespace ingot {

// Types, shapes and small integer values of every tensor that a node makes. What the model declares about them is
// not trusted. Precondition: inputs and constants have their types.
void infer_shapes(Graph&);
// Types of the inputs of a subgraph of `node`, from those of the node's operands.
void bind_body(const Node& node, Graph& body, const std::vector<TensorInfo>& known);
// Calls work() for a subgraph of `node`. A branch of an If may make no sense for the shapes at hand and never be taken:
// then it is left as it is, and says what is wrong if it is run.
template <class Work>
void in_body(const Node& node, const Work& work) {
  if (!node.is("If")) return work();
  try {
    work();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::InvalidModel) throw;
  }
}

// Nodes whose results are known become constants: integer values told by shapes, and nodes with only constant
// operands, which are executed. Precondition: infer_shapes. True when something was folded.
// Weights that a node prepares for another which can do so itself: transposed for a product, or in fewer bits and
// widened (a Cast of f16 or bf16 for a product or a table, a DequantizeLinear). They stay as they are while passes and
// fusions that use them so are still to come: kNone. kTransposed folds the transposes.
enum class FoldWeights { kNone, kTransposed, kAll };
// What folding may still take: a node that would take more is left as it is.
struct FoldBudget {
  double seconds = std::numeric_limits<double>::infinity(), bytes = seconds;
};
bool fold_constants(Graph&, FoldWeights, FoldBudget* budget = nullptr);

// An If whose condition is known becomes the nodes of the branch it takes. Precondition: infer_shapes. True when one
// did.
bool inline_if(Graph&);

// What does not change from turn to turn leaves a loop: states that the body hands on as they are and constants that
// bodies capture become constants of the body, nodes that read nothing of their turn move before the loop.
// Precondition: infer_shapes.
void hoist_invariants(Graph&);

// Outputs of a body that are copies (Identity) become what they are copies of: outputs of a body need no names of their
// own, and whoever runs it hands its inputs on as they are.
void forward_outputs(Graph& body);

// Nodes whose results are as large as their operands' elements say, which shapes do not tell, get the attribute
// "sized_by_data": they are planned alone (planner/cut.h). Precondition: infer_shapes.
void mark_sized_by_data(Graph&);

// Two nodes with the same operator, attributes and operands become one; equal small constants too.
void merge_common(Graph&);

// Local rules, applied until none fits: x + 0, Reshape of Reshape, Transpose of Transpose, ... See the files
// simplify_*.cpp, each a table of rules with their formulas. Precondition: infer_shapes.
void simplify(Graph&);

// BatchNormalization into the weights of the node before it, otherwise into a multiplication and an addition.
void fold_batch_norm(Graph&);

// Pad of spatial axes into the padding of the convolution or pooling that reads it.
void fold_pad(Graph&);

// QuantizeLinear and DequantizeLinear -> the element-wise nodes they stand for, which then become part of epilogues and
// loops. Scales that meet are multiplied: Q(c float(i), s) -> round(c/s float(i)). Blocked ones, and types that
// expressions do not have, stay.
void expand_quantization(Graph&);

// Reshape(MatMul(Reshape(x), W)) -> MatMul(Reshape(x), W) where the last axis is kept: exporters flatten the leading
// axes around a linear layer, which hides that the residual has the same shape.
void hoist_reshape(Graph&);

// f(Squeeze(Conv(x))) -> Squeeze(f(Conv(x))), so that f can be computed by the convolution.
void sink_squeeze(Graph&);

// Convolution networks in NHWC. Precondition: simplify, fold_batch_norm. Transposes stay at the borders of each island
// of nodes that can work in either layout.
void channels_last(Graph&);

}  // namespace ingot
