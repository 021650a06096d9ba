// The steps of a graph for numbers as input shapes, before memory.
//
// It stays and is updated from one set of shapes to the next. A node is inferred again where the info of an operand has
// changed, and lowered again where that of an operand or a result has; all others keep their steps, with the kernels
// bound to them. A decoder that writes one token more meets other shapes in few of its nodes.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"
#include "planner/specialised.h"

namespace ingot {

// A step with the code that runs it.
struct BoundStep {
  Step step;
  KernelFn native = nullptr;                   // null: not bound yet
  KernelSlot* specialised = nullptr;           // may be null, or still be empty
  std::shared_ptr<const ExprProgram> program;  // for the native build; null if the specialised code was there before
};

// What a node became. It is shared by the plans made of it and not changed once they have it.
struct LoweredNode {
  std::vector<BoundStep> steps;
  std::vector<LowerContext::View> views;
};

struct PlanInput {
  std::vector<int64_t> dims;
  std::string elements = {};  // bytes of all, where the plan may depend on them
  friend bool operator==(const PlanInput&, const PlanInput&) = default;
};
using PlanInputs = std::vector<PlanInput>;

// Tensors that decide shapes and were found by running a part of the graph.
using KnownValues = std::map<TensorId, ConstantPtr>;

// Thrown by Lowering::update when shapes depend on data: run a plan for `tensor` first, then update with its values.
struct DataNeeded {
  TensorId tensor;
};

class Lowering {
 public:
  // targets: what is to be computed. The graph must outlive this.
  Lowering(const Graph&, std::vector<TensorId> targets);
  // When it throws (an Error, DataNeeded, RoomNeeded), the next update makes good what this one left.
  void update(const PlanInputs&, const KnownValues& = {});

  const Graph& graph() const { return graph_; }
  const std::vector<TensorId>& targets() const { return targets_; }
  const std::vector<TensorInfo>& infos() const { return infos_; }  // of what the targets depend on
  // By node; null for those that have nothing to compute: nobody needs their results, or shapes tell them.
  std::vector<std::shared_ptr<LoweredNode>> nodes() const;

 private:
  void set_input(size_t index, const PlanInput&, const KnownValues&);
  void set_info(TensorId, TensorInfo);
  void infer(size_t node);
  void lower(size_t node);
  void find_needed();

  const Graph& graph_;
  const std::vector<TensorId> targets_;
  const Uses uses_;
  KnownValues known_;
  std::vector<TensorInfo> infos_;
  std::vector<bool> ancestors_;                      // nodes that shapes or values of the targets may depend on
  std::vector<bool> to_infer_, to_lower_;            // nodes whose operands have changed, or results
  std::vector<bool> needed_;                         // nodes that have something to compute
  bool find_needed_ = true;                          // whether that has to be found again
  std::vector<std::shared_ptr<LoweredNode>> nodes_;  // as they were when last needed
};

}  // namespace ingot
