// A resolved plan: everything a run needs once the input shapes are known. Steps in order, each with its kernel's
// function, parameters and operand slots; every tensor placed in one arena by lifetime, in the caller's memory, or in
// the model's constants. Running it does no shape work and no allocation.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "kernels/abi.h"
#include "ops/op.h"
#include "planner/specialised.h"

namespace ingot {

// Where an operand's memory is.
struct Location {
  enum Kind { kNull, kInput, kOutput, kConstant, kArena } kind = kNull;
  int index = 0;                    // kInput, kOutput
  const std::byte* data = nullptr;  // kConstant
  int64_t offset = 0;               // bytes from the start of the arena, input or output
};

inline KernelFn native(const Kernel& kernel, const Target& target) {
  return kernel.native[static_cast<size_t>(target.build)];
}

struct PlannedStep {
  Step step;
  int node = 0;
  KernelFn native = nullptr;
  KernelSlot* specialised = nullptr;           // may be null, or still be empty
  std::shared_ptr<const ExprProgram> program;  // for the native build; null if the specialised code was there before
  std::vector<Location> operands;
};

// The last resort for a result that is not made where the caller wants it (an input or a constant returned as it is).
struct Copy {
  Location from;
  int output = 0;
  int64_t bytes = 0;
};

struct Plan {
  std::vector<TensorInfo> infos;  // of every tensor, all dims numbers
  std::vector<PlannedStep> steps;
  std::vector<TensorId> targets;  // what the plan computes: outputs 0, 1, ... of a run
  std::vector<Copy> copies;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;              // per thread
  std::vector<ConstantPtr> materialised;  // small values known from shapes
};

// Tensors that decide shapes and were found by running a part of the graph.
using KnownValues = std::map<TensorId, ConstantPtr>;

// Thrown by resolve when shapes depend on data: run a plan for `tensor` first, then resolve again with its values.
struct DataNeeded {
  TensorId tensor;
};

// The step list for these input shapes, before memory: enough to know which kernels to specialise.
struct Lowered {
  std::vector<TensorInfo> infos;
  std::vector<Step> steps;
  std::vector<int> step_node;
  struct Alias {
    TensorId root;
    int64_t offset;
  };
  std::vector<Alias> alias;  // per tensor: itself, or the tensor it is a view of
};
Lowered lower_graph(const Graph&, const std::vector<std::vector<int64_t>>& input_dims,
                    const std::vector<TensorId>& targets, const KnownValues& known = {});

Plan make_plan(const Graph&, const std::vector<std::vector<int64_t>>& input_dims, const std::vector<TensorId>& targets,
               KernelSource* kernels, const KnownValues& known = {});  // kernels: may be null

// Byte offsets for buffers with the given sizes and lifetimes [first, last], so that overlapping lifetimes never share
// memory; greedy by size. Returns the total.
struct Buffer {
  int64_t bytes;
  int first, last;
  int64_t offset = 0;
};
int64_t place_buffers(std::vector<Buffer>&);

}  // namespace ingot
